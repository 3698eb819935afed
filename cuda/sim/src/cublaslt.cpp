// cublaslt.cpp: a stand-in for the functions of cuBLASLt that are used, on the memory of the software device. A product is a
// column-major D = alpha*op(A)*op(B) + beta*C in float32, as the real library defines it. It is put on the stream by a
// launch of a kernel, so that order and capture hold. Stricter than the library, on purpose: addresses that are not aligned as it
// takes for granted are refused, and a product overwrites the whole workspace that its algorithm asked for.
#include <algorithm>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID = 7, UNSUPPORTED = 15 };
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };

namespace {
struct Desc {
	int compute, scale, transa = 0, transb = 0, epilogue = 1;
	const void* bias = nullptr;
};
struct Layout {
	int type;
	uint64_t rows, cols;
	int64_t ld, stride = 0;
	int batch = 1;
};
struct Preference {
	uint64_t workspace = 0;
};
struct Algo {
	uint64_t data[8];
};
struct Heuristic {
	Algo algo;
	size_t workspace;
	int state;
	float waves;
	int reserved[4];
};

float load(const void* p, int type, size_t i) {
	if (type == R_32F) return ((const float*)p)[i];
	uint16_t h = ((const uint16_t*)p)[i];
	if (type == R_16F) {
		_Float16 f;
		memcpy(&f, &h, 2);
		return (float)f;
	}
	uint32_t u = (uint32_t)h << 16;
	float f;
	memcpy(&f, &u, 4);
	return f;
}
void store(void* p, int type, size_t i, float v) {
	if (type == R_32F) {
		((float*)p)[i] = v;
		return;
	}
	uint16_t h;
	if (type == R_16F) {
		_Float16 f = (_Float16)v;
		memcpy(&h, &f, 2);
	} else {
		uint32_t u;
		memcpy(&u, &v, 4);
		h = isnan(v) ? 0x7fff : (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
	}
	((uint16_t*)p)[i] = h;
}

struct Job {
	Desc d;
	Layout a, b, c, o;
	const void *A, *B, *C;
	void* D;
	float alpha, beta;
	void* workspace;
	size_t size;
};
void product(const Job& j) {
	memset(j.workspace, 0xff, j.size);
	size_t m = j.o.rows, n = j.o.cols, k = j.d.transa ? j.a.rows : j.a.cols;
	std::vector<float> a(k), row(n);
	for (size_t r = 0; r < m; r++) {
		for (size_t i = 0; i < k; i++) a[i] = load(j.A, j.a.type, j.d.transa ? r * (size_t)j.a.ld + i : i * (size_t)j.a.ld + r);
		for (size_t c = 0; c < n; c++) {
			float s = 0;
			for (size_t i = 0; i < k; i++) s += a[i] * load(j.B, j.b.type, j.d.transb ? i * (size_t)j.b.ld + c : c * (size_t)j.b.ld + i);
			s *= j.alpha;
			size_t at = c * (size_t)j.o.ld + r;
			if (j.beta != 0) s += j.beta * load(j.C, j.c.type, c * (size_t)j.c.ld + r);
			store(j.D, j.o.type, at, s);
		}
	}
}
bool known(int type) { return type == R_32F || type == R_16F || type == R_16BF; }
} // namespace

// Of the software libcuda: runs a function in the stream's order, recorded in a capture. The structure is copied.
extern "C" int omniSimEnqueue(void* stream, void (*f)(const void*), const void* data, size_t n);

API size_t cublasLtGetVersion() { return 130000; }
API const char* cublasLtGetStatusName(int s) { return s == SUCCESS ? "CUBLAS_STATUS_SUCCESS" : s == INVALID ? "CUBLAS_STATUS_INVALID_VALUE" : s == UNSUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED" : "CUBLAS_STATUS_EXECUTION_FAILED"; }
API int cublasLtCreate(void** h) { return *h = malloc(1), SUCCESS; }
API int cublasLtDestroy(void* h) { return free(h), SUCCESS; }
API int cublasLtMatmulDescCreate(Desc** d, int compute, int scale) {
	if (compute != 68 || scale != R_32F) return UNSUPPORTED; // CUBLAS_COMPUTE_32F
	*d = new Desc{compute, scale};
	return SUCCESS;
}
API int cublasLtMatmulDescDestroy(Desc* d) { return delete d, SUCCESS; }
API int cublasLtMatmulDescSetAttribute(Desc* d, int a, const void* p, size_t n) {
	int v = 0;
	if (n >= 4) memcpy(&v, p, 4);
	switch (a) {
	case 3: d->transa = v; return v <= 1 ? SUCCESS : UNSUPPORTED;
	case 4: d->transb = v; return v <= 1 ? SUCCESS : UNSUPPORTED;
	}
	return UNSUPPORTED;
}
API int cublasLtMatrixLayoutCreate(Layout** l, int type, uint64_t rows, uint64_t cols, int64_t ld) {
	if (!known(type)) return UNSUPPORTED;
	if (ld < (int64_t)rows) return INVALID;
	*l = new Layout{type, rows, cols, ld};
	return SUCCESS;
}
API int cublasLtMatrixLayoutDestroy(Layout* l) { return delete l, SUCCESS; }
API int cublasLtMatmulPreferenceCreate(Preference** p) { return *p = new Preference, SUCCESS; }
API int cublasLtMatmulPreferenceDestroy(Preference* p) { return delete p, SUCCESS; }
API int cublasLtMatmulPreferenceSetAttribute(Preference* p, int a, const void* v, size_t n) {
	if (a == 1 && n == 8) memcpy(&p->workspace, v, 8);
	return SUCCESS;
}
static bool fits(const Desc* d, const Layout* a, const Layout* b, const Layout* o) {
	uint64_t m = d->transa ? a->cols : a->rows, k = d->transa ? a->rows : a->cols, kb = d->transb ? b->cols : b->rows, n = d->transb ? b->rows : b->cols;
	return m == o->rows && n == o->cols && k == kb && a->type == b->type;
}
API int cublasLtMatmulAlgoGetHeuristic(void*, Desc* d, Layout* a, Layout* b, Layout* c, Layout* o, Preference* pref, int want, Heuristic* out, int* got) {
	*got = 0;
	if (!fits(d, a, b, o) || c->rows != o->rows || want < 1) return INVALID;
	memset(out, 0, sizeof *out);
	out->waves = 1;
	out->workspace = std::min<uint64_t>(pref->workspace, 1 << 20);
	*got = 1;
	return SUCCESS;
}
API int cublasLtMatmul(void*, Desc* d, const void* alpha, const void* A, Layout* a, const void* B, Layout* b, const void* beta, const void* C, Layout* c, void* D, Layout* o, const Algo*, void* workspace, size_t size, void* stream) {
	if (!fits(d, a, b, o) || (size && !workspace)) return INVALID;
	for (const void* p : {A, B, C, (const void*)D, (const void*)workspace})
		if ((uintptr_t)p % 256) return INVALID;
	Job j{*d, *a, *b, *c, *o, A, B, C, D, *(const float*)alpha, *(const float*)beta, workspace, size};
	return omniSimEnqueue(stream, [](const void* p) { product(*(const Job*)p); }, &j, sizeof j) ? 13 : SUCCESS;
}
