package quant

import "encoding/binary"

func half(src []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(src)) }

// q4_0: scale; 16 bytes, element j in the low and j+16 in the high nibble, offset 8.
func q4_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:18] {
		dst[j] = float32(int(q&0xf)-8) * d
		dst[j+16] = float32(int(q>>4)-8) * d
	}
}

// q4_1: scale, minimum; nibbles as in q4_0.
func q4_1(dst []float32, src []byte) {
	d, m := half(src), half(src[2:])
	for j, q := range src[4:20] {
		dst[j] = float32(float32(q&0xf)*d) + m
		dst[j+16] = float32(float32(q>>4)*d) + m
	}
}

// fifth is the fifth bit of element j of a five-bit block, in its place.
func fifth(high uint32, j int) int { return int(high>>j&1) << 4 }

// q5_0: scale; 32 fifth bits; nibbles; offset 16.
func q5_0(dst []float32, src []byte) {
	d, high := half(src), binary.LittleEndian.Uint32(src[2:])
	for j, q := range src[6:22] {
		dst[j] = float32((int(q&0xf)|fifth(high, j))-16) * d
		dst[j+16] = float32((int(q>>4)|fifth(high, j+16))-16) * d
	}
}

// q5_1: scale, minimum; 32 fifth bits; nibbles.
func q5_1(dst []float32, src []byte) {
	d, m, high := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for j, q := range src[8:24] {
		dst[j] = float32(float32(int(q&0xf)|fifth(high, j))*d) + m
		dst[j+16] = float32(float32(int(q>>4)|fifth(high, j+16))*d) + m
	}
}

// q8_0: scale; 32 signed bytes.
func q8_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:34] {
		dst[j] = float32(int8(q)) * d
	}
}
