//go:build cgo && linux && amd64

// level_avx512.c: the avx512-vnni level. cgo's flags are package-wide, so the target is set here.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,popcnt")
#include "omni.h"
#include <math.h>
#include <stdlib.h>
#include "vec512.h"
#include "dot512.h"
#define LEVEL level_avx512
#define LEVEL_NAME "avx512-vnni"
#define ROWS 12
#define WIDE 1
#define EXPAND_FROM 21
#include "level.h"
