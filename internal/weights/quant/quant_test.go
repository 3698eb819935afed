package quant

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
)

// reference is recorded from the Python packages named in its Source; values are little-endian.
type reference struct {
	Source string
	Blocks []struct {
		Type           string
		Blocks, Values b64
	}
	Rounding struct{ Values, F16, BF16 b64 }
	AllF16   string `json:"all_f16_sha256"`
	F16NaNs  int    `json:"f16_nans"`
}

type b64 []byte

func (b *b64) UnmarshalJSON(raw []byte) (err error) {
	var s string
	if err = json.Unmarshal(raw, &s); err == nil {
		*b, err = base64.StdEncoding.DecodeString(s)
	}
	return err
}

func readReference(t *testing.T) reference {
	raw, err := os.ReadFile("testdata/reference.json")
	require.NoError(t, err)
	var ref reference
	require.NoError(t, json.Unmarshal(raw, &ref))
	return ref
}

func byName(name string) tensor.DType {
	for d := tensor.F32; d <= tensor.Q8_K; d++ {
		if d.String() == name {
			return d
		}
	}
	return tensor.Invalid
}

func TestEveryTypeConvertsBitForBitAsTheReference(t *testing.T) {
	ref := readReference(t)
	tested := map[tensor.DType]bool{tensor.F16: true, tensor.BF16: true} // exhaustive, below
	for _, c := range ref.Blocks {
		t.Run(c.Type, func(t *testing.T) {
			d := byName(c.Type)
			tested[d] = true
			got := make([]float32, len(c.Values)/4)
			require.NoError(t, Dequantize(got, d, c.Blocks))
			for i, g := range got {
				want := math.Float32frombits(binary.LittleEndian.Uint32(c.Values[4*i:]))
				if want != want {
					require.True(t, g != g, "element %d is NaN", i)
					continue
				}
				require.Equal(t, math.Float32bits(want), math.Float32bits(g), "element %d: got %v, want %v", i, g, want)
			}
		})
	}
	for d := tensor.F32; d <= tensor.Q8_K; d++ {
		assert.True(t, tested[d], "%s has no reference", d)
	}
}

func TestAllHalvesWiden(t *testing.T) {
	ref := readReference(t)
	src := make([]byte, 2<<16)
	for i := range 1 << 16 {
		binary.LittleEndian.PutUint16(src[2*i:], uint16(i))
	}
	got := make([]float32, 1<<16)
	require.NoError(t, Dequantize(got, tensor.F16, src))
	sum, nans := sha256.New(), 0
	for i, g := range got {
		if g != g {
			assert.Equal(t, uint16(i)|0x200, F32ToF16(g), "NaN becomes quiet and keeps its payload")
			nans++
			g = 0
		} else {
			require.Equal(t, uint16(i), F32ToF16(g), "narrowing undoes widening")
		}
		require.NoError(t, binary.Write(sum, binary.LittleEndian, g))
	}
	assert.Equal(t, ref.F16NaNs, nans)
	assert.Equal(t, ref.AllF16, hex.EncodeToString(sum.Sum(nil)))
}

func TestAllBFloatsWidenAndNarrowBack(t *testing.T) {
	for i := range 1 << 16 {
		f := BF16ToF32(uint16(i))
		require.Equal(t, uint32(i)<<16, math.Float32bits(f))
		if f == f {
			require.Equal(t, uint16(i), F32ToBF16(f))
		} else {
			require.Equal(t, uint16(i)|0x40, F32ToBF16(f), "NaN becomes quiet")
		}
	}
}

func TestNarrowingRoundsToNearestEven(t *testing.T) {
	r := readReference(t).Rounding
	require.NotEmpty(t, r.Values)
	for i := 0; 4*i < len(r.Values); i++ {
		f := math.Float32frombits(binary.LittleEndian.Uint32(r.Values[4*i:]))
		require.Equal(t, binary.LittleEndian.Uint16(r.F16[2*i:]), F32ToF16(f), "f16 of %x", math.Float32bits(f))
		require.Equal(t, binary.LittleEndian.Uint16(r.BF16[2*i:]), F32ToBF16(f), "bf16 of %x", math.Float32bits(f))
	}
	assert.Equal(t, uint16(0x7e00), F32ToF16(math.Float32frombits(0x7f800001)), "a NaN whose payload is lost stays NaN")
}

func TestSizesThatDoNotMatchAreRefused(t *testing.T) {
	assert.ErrorContains(t, Dequantize(make([]float32, 31), tensor.Q4_0, make([]byte, 18)), "do not fill")
	assert.ErrorContains(t, Dequantize(make([]float32, 32), tensor.Q4_0, make([]byte, 17)), "are 18 bytes, got 17")
	assert.ErrorContains(t, Dequantize(make([]float32, 1), tensor.Invalid, nil), "invalid type")
	_, err := Float32s(tensor.View{DType: tensor.F32, Shape: []int{1 << 40}, Data: make([]byte, 4)})
	assert.ErrorContains(t, err, "does not match its 4 bytes")
	assert.NoError(t, Dequantize(nil, tensor.Q6_K, nil))
}

func TestViewConvertsInRowMajorOrder(t *testing.T) {
	v, err := tensor.NewView(tensor.I8, []int{2, 2}, []byte{1, 2, 0xff, 4})
	require.NoError(t, err)
	got, err := Float32s(v)
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 2, -1, 4}, got)
}

func BenchmarkDequantize(b *testing.B) {
	for _, d := range []tensor.DType{tensor.F16, tensor.BF16, tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q8_0, tensor.Q4_K, tensor.Q6_K} {
		dst := make([]float32, 1<<16)
		size, _ := d.Bytes(int64(len(dst)))
		src := make([]byte, size)
		b.Run(d.String(), func(b *testing.B) {
			b.SetBytes(int64(4 * len(dst)))
			for b.Loop() {
				_ = Dequantize(dst, d, src)
			}
		})
	}
}
