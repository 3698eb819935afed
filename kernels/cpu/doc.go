// Package cpu runs modules on the processor: C kernels for AMX, AVX-512 VNNI, AVX-VNNI, AVX2 and plain C, chosen at run time, on one
// pool of threads for the whole process. A module's operations are fused into phases ([kernels.Program].Explain lists them);
// weights stay in their own block formats, repacked once into tiles.
//
// Logits of a row do not depend on what else is in the batch, on how a prompt is cut into chunks, on the number of threads or on
// the prefix cache, bit for bit. Between levels they differ by rounding.
//
// Caches hold float16; on the AMX levels bfloat16, laid out as tiles read them, where all heads have a multiple of 32 dimensions; and
// float32 in exact programs. Programs share the pool: it serves the step of the highest [kernels.Limits] Priority, piece of work by
// piece of work, and among equals the oldest.
//
// Without cgo, or on another platform, Open returns the pure-Go reference device.
package cpu

// Options of a device.
type Options struct {
	// Threads of the pool, the calling thread included; 0: the processors that the affinity mask and the cgroup's quota allow.
	Threads int
	// Level forces a dispatch level: "avx512-amx", "amx-bf16", "avx512-vnni", "avx-vnni", "avx2" or "scalar"; "" takes the best.
	Level string
}
