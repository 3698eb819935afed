// nvml.cpp: a stand-in for what is used of NVML, with fixed figures.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define API extern "C" __attribute__((visibility("default"))) int
enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT = 7 };
static const char* UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

API nvmlInit_v2() { return SUCCESS; }
API nvmlShutdown() { return SUCCESS; }
extern "C" const char* nvmlErrorString(int r) { return r == NOT_FOUND ? "Not Found" : "Unknown Error"; }
API nvmlSystemGetDriverVersion(char* s, unsigned n) { return snprintf(s, n, "580.0.sim"), SUCCESS; }
API nvmlDeviceGetHandleByUUID(const char* u, void** d) {
	if (strcmp(u, UUID)) return NOT_FOUND;
	*d = (void*)1;
	return SUCCESS;
}
API nvmlDeviceGetUtilizationRates(void*, unsigned* u) { return u[0] = 42, u[1] = 17, SUCCESS; }
API nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) { return *mhz = type == 1 ? 1980 : 2619, SUCCESS; }
API nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* r) { return *r = 0x4 | 0x20 | 0x1, SUCCESS; }
API nvmlDeviceGetMemoryInfo(void*, unsigned long long* m) { return m[0] = 4ull << 30, m[1] = 3ull << 30, m[2] = 1ull << 30, SUCCESS; }
API nvmlDeviceGetTemperature(void*, int, unsigned* t) { return *t = 55, SUCCESS; }
API nvmlDeviceGetPowerUsage(void*, unsigned*) { return NOT_SUPPORTED; }
struct Info {
	unsigned pid;
	unsigned long long memory;
	unsigned gi, ci;
};
API nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* n, Info* out) { // more than fit at first
	const unsigned have = 70;
	if (*n < have) return *n = have, INSUFFICIENT;
	for (unsigned i = 0; i < have; i++) out[i] = {1000 + i, i ? 1ull << 20 : ~0ull, 0, 0};
	return *n = have, SUCCESS;
}
