// Package probe measures what a machine's processor can do at best: the ceilings that a benchmark's figures are held against.
package probe

// Peaks are rates over all the threads that were asked for; 0 where the machine lacks the instruction.
type Peaks struct {
	Threads int
	// Integer and tile products in 1e9 operations a second, a multiplication and an addition counted as two: vpdpbusd on 512 and on 256
	// bits, the AVX2 sequence vpmaddubsw, vpmaddwd, vpaddd, tdpbusd and tdpbf16ps.
	VNNI512, VNNI256, AVX2, TileInt8, TileBF16 float64
	// FMA is the float32 peak of the widest registers, in 1e9 operations a second.
	FMA float64
}

// ForLevel is the peak that a vector level's matrix products are held against.
func (p Peaks) ForLevel(level string) (gops float64, instruction string) {
	switch level {
	case "avx512-amx":
		return p.TileBF16, "tdpbf16ps"
	case "avx512-vnni":
		return p.VNNI512, "vpdpbusd, 512 bits"
	case "avx-vnni":
		return p.VNNI256, "vpdpbusd, 256 bits"
	case "avx2":
		return p.AVX2, "vpmaddubsw + vpmaddwd + vpaddd"
	}
	return 0, ""
}
