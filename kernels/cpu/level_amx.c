//go:build cgo && linux && amd64

// level_amx.c: the avx512-amx level: the products of AVX-512 VNNI bit for bit, with tiles where a unit has
// tokens enough, and attention by tiles over bfloat16 caches. cgo's flags are
// package-wide, so the target is set here.
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,avx512bf16,fma,f16c,popcnt,amx-tile,amx-int8,amx-bf16")
#define TILES
#define BF16_CACHE
#include "omni.h"
#include <math.h>
#include <stdlib.h>
#include "vec512.h"
#include "dot512.h"
#include "dot_tiles.h"
#define LEVEL level_amx
#define LEVEL_NAME "avx512-amx"
#define ROWS 16
#define WIDE 1
#define EXPAND_FROM 21
#define TILES_FROM 9
#include "level.h"
