//go:build cgo && linux && amd64

// level_avx2.c: the avx2 level. cgo's flags are package-wide, so the target is set here.
#pragma GCC target("avx2,fma,f16c,popcnt")
#include "omni.h"
#include <math.h>
#include <stdlib.h>
#include "vec256.h"
#include "dot256.h"
#define LEVEL level_avx2
#define LEVEL_NAME "avx2"
#define ROWS 4
#define WIDE 0
#define EXPAND_FROM 0
#include "level.h"
