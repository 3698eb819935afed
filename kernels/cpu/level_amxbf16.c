//go:build cgo && linux && amd64

// level_amxbf16.c: the amx-bf16 level. cgo's flags are package-wide, so the target is set here.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16,avx2,fma,f16c,popcnt,amx-tile,amx-bf16")
#define BY_ROWS
#define BF16_PANELS
#define BF16_CACHE
#include "omni.h"
#include <math.h>
#include <stdlib.h>
#include "vec512.h"
#include "dot_bf16.h"
#define LEVEL level_amxbf16
#define LEVEL_NAME "amx-bf16"
#define ROWS 16
#define WIDE 1
#define EXPAND_FROM 0
#include "level.h"
