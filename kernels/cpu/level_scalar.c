//go:build cgo && linux && amd64

// level_scalar.c: the scalar level. cgo's flags are package-wide, so the target is set here.
#include "omni.h"
#include <math.h>
#include <stdlib.h>
#include "vec1.h"
#include "dot1.h"
#define LEVEL level_scalar
#define LEVEL_NAME "scalar"
#define ROWS 1
#define WIDE 0
#define EXPAND_FROM 0
#include "level.h"
