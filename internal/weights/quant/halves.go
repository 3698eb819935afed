package quant

import "math"

// F16ToF32 widens an IEEE 754 half, exactly; NaN payloads are kept.
func F16ToF32(h uint16) float32 {
	sign, exp, frac := uint32(h&0x8000)<<16, uint32(h>>10)&0x1f, uint32(h&0x3ff)
	switch {
	case exp == 0x1f: // infinity and NaN
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case exp == 0: // zero and subnormals: frac * 2^-24 is exact in float32
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-24))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}

// F32ToF16 rounds to the nearest half, ties to even; too large becomes infinity, NaN stays NaN.
func F32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign, abs := uint16(bits>>16)&0x8000, bits&0x7fffffff
	switch {
	case abs > 0x7f800000:
		return sign | 0x7e00 | uint16(abs>>13)&0x3ff
	case abs >= 0x477ff000: // 65520 and more round to infinity
		return sign | 0x7c00
	case abs < 0x38800000: // below 2^-14: adding 0.5 leaves the subnormal's bits, rounded, at the bottom of the fraction
		sum := math.Float32frombits(abs) + 0.5
		return sign | uint16(math.Float32bits(sum)-math.Float32bits(0.5))
	}
	rounded := abs + 0xfff + (abs>>13)&1 - (127-15)<<23
	return sign | uint16(rounded>>13)
}

// BF16ToF32 widens a bfloat16, exactly.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even; NaN stays a (quiet) NaN.
func F32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7fff + (bits>>16)&1) >> 16)
}

// F8E4M3ToF32 widens the "fn" form that safetensors calls F8_E4M3: no infinities, NaN is 0x7f and 0xff, largest 448.
func F8E4M3ToF32(b uint8) float32 {
	sign, exp, frac := uint32(b&0x80)<<24, uint32(b>>3)&0xf, uint32(b&7)
	switch {
	case b&0x7f == 0x7f:
		return math.Float32frombits(sign | 0x7fc00000)
	case exp == 0:
		return math.Float32frombits(sign | math.Float32bits(float32(frac)*0x1p-9))
	}
	return math.Float32frombits(sign | (exp+127-7)<<23 | frac<<20)
}

// F8E5M2ToF32 widens the form that safetensors calls F8_E5M2: the upper byte of a half, infinities included.
func F8E5M2ToF32(b uint8) float32 { return F16ToF32(uint16(b) << 8) }
