//go:build cgo && linux && amd64

// level_avxvnni.c: the avx-vnni level. cgo's flags are package-wide, so the target is set here.
#pragma GCC target("avx2,fma,f16c,avxvnni,popcnt")
#define VNNI256
#include "omni.h"
#include <math.h>
#include <stdlib.h>
#include "vec256.h"
#include "dot256.h"
#define LEVEL level_avxvnni
#define LEVEL_NAME "avx-vnni"
#define ROWS 4
#define WIDE 0
#define EXPAND_FROM 0
#include "level.h"
