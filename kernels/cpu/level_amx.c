//go:build cgo && linux && amd64

// level_amx.c: the avx512-amx level. cgo's flags are package-wide, so the target is set here.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16,avx2,fma,f16c,popcnt,amx-tile,amx-bf16")
#define BY_ROWS
#define AMX
#include "omni.h"
#include <math.h>
#include <stdlib.h>
#include "vec512.h"
#include "dot_amx.h"
#define LEVEL level_amx
#define LEVEL_NAME "avx512-amx"
#define ROWS 12
#define WIDE 1
#define EXPAND_FROM 0
#include "level.h"
