package quant

import (
	"encoding/binary"
	"math"
)

// A super-block has 256 elements: 8 groups of 32 or 16 of 16, each with its own small integer scale.

// q2K: 16 bytes of (scale, minimum) nibbles; 64 bytes of 2-bit values, four planes of 32 elements each half; two halves; d, dmin.
func q2K(dst []float32, src []byte) {
	scales, qs, d, dmin := src[:16], src[16:80], half(src[80:]), half(src[82:])
	for group := range 16 {
		dl := d * float32(scales[group]&0xf)
		ml := dmin * float32(scales[group]>>4)
		plane, shift := qs[group/8*32+group%2*16:], uint(group%8/2*2)
		for l := range 16 {
			dst[group*16+l] = float32(dl*float32(plane[l]>>shift&3)) - ml
		}
	}
}

// q3K: 32 bytes of third bits (bit = plane, over both halves); 64 bytes of 2-bit values as in q2K; 12 bytes of 6-bit scales, offset 32; d.
func q3K(dst []float32, src []byte) {
	high, qs, scales, d := src[:32], src[32:96], src[96:108], half(src[108:])
	for group := range 16 {
		low := scales[group%8] >> (group / 8 * 4) & 0xf
		top := scales[8+group%4] >> (group / 4 * 2) & 3
		dl := d * float32(int(low|top<<4)-32)
		plane, shift := qs[group/8*32+group%2*16:], uint(group%8/2*2)
		third := high[group%2*16:]
		for l := range 16 {
			q := int(plane[l]>>shift&3) | int(third[l]>>(group/2)&1)<<2
			dst[group*16+l] = dl * float32(q-4)
		}
	}
}

// scaleMin unpacks the 6-bit scale and minimum of one of eight groups out of 12 bytes (Q4_K and Q5_K).
func scaleMin(packed []byte, group int) (scale, minimum float32) {
	if group < 4 {
		return float32(packed[group] & 63), float32(packed[group+4] & 63)
	}
	return float32(packed[group+4]&0xf | packed[group-4]>>6<<4), float32(packed[group+4]>>4 | packed[group]>>6<<4)
}

// q4K: d, dmin; 12 bytes of scales and minima; 128 bytes of nibbles: low nibbles are one group of 32, high nibbles the next.
func q4K(dst []float32, src []byte) {
	d, dmin, packed, qs := half(src), half(src[2:]), src[4:16], src[16:144]
	for group := range 8 {
		scale, minimum := scaleMin(packed, group)
		dl, ml := d*scale, dmin*minimum
		nibbles, shift := qs[group/2*32:], uint(group%2*4)
		for l := range 32 {
			dst[group*32+l] = float32(dl*float32(nibbles[l]>>shift&0xf)) - ml
		}
	}
}

// q5K: as q4K, with 32 bytes of fifth bits (bit = group) before the nibbles.
func q5K(dst []float32, src []byte) {
	d, dmin, packed, high, qs := half(src), half(src[2:]), src[4:16], src[16:48], src[48:176]
	for group := range 8 {
		scale, minimum := scaleMin(packed, group)
		dl, ml := d*scale, dmin*minimum
		nibbles, shift := qs[group/2*32:], uint(group%2*4)
		for l := range 32 {
			q := nibbles[l]>>shift&0xf | high[l]>>group&1<<4
			dst[group*32+l] = float32(dl*float32(q)) - ml
		}
	}
}

// q6K: 128 bytes of low nibbles, 64 bytes of upper 2 bits, both by halves of 128 elements; 16 signed scales; d; offset 32.
func q6K(dst []float32, src []byte) {
	low, high, scales, d := src[:128], src[128:192], src[192:208], half(src[208:])
	for group := range 8 { // of 32 elements; a half has four
		part := group % 4
		nibbles, top := low[group/4*64+part%2*32:], high[group/4*32:]
		for l := range 32 {
			q := int(nibbles[l]>>(part/2*4)&0xf) | int(top[l]>>(part*2)&3)<<4
			scale := float32(int8(scales[group*2+l/16]))
			dst[group*32+l] = float32(d*scale) * float32(q-32)
		}
	}
}

// q8K: float32 scale; 256 signed bytes; 16 sums that only dot products use.
func q8K(dst []float32, src []byte) {
	d := math.Float32frombits(binary.LittleEndian.Uint32(src))
	for j, q := range src[4:260] {
		dst[j] = d * float32(int8(q))
	}
}
