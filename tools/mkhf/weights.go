package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/gguf"
	"omni-engine/internal/weights/quant"
	"omni-engine/internal/weights/safetensors"
)

func writeWeights(path string, f *gguf.File, a architecture, d tensor.DType) (err error) {
	var sources []safetensors.Source
	for _, name := range f.Names() {
		view, err := f.Tensor(name)
		if err != nil {
			return err
		}
		slot, err := a.slot(name)
		if err != nil {
			return err
		}
		sources = append(sources, safetensors.Source{Name: slot, DType: d, Shape: view.Shape, Data: func() ([]byte, error) {
			return a.data(name, view, d)
		}})
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriterSize(file, 1<<20)
	if err := safetensors.Write(w, map[string]string{"format": "pt"}, sources); err != nil {
		return err
	}
	return w.Flush()
}

// data is a tensor's content as Hugging Face keeps it.
func (a architecture) data(name string, view tensor.View, d tensor.DType) ([]byte, error) {
	values, err := quant.Float32s(view)
	if err != nil {
		return nil, fmt.Errorf("tensor %q: %w", name, err)
	}
	if a.shifted && strings.HasSuffix(name, "_norm.weight") {
		for i := range values {
			values[i]--
		}
	}
	for suffix, key := range map[string]string{".attn_q.weight": "attention.head_count", ".attn_k.weight": "attention.head_count_kv"} {
		if !a.permuted || !strings.HasSuffix(name, suffix) {
			continue
		}
		heads, err := a.int(key)
		if err != nil {
			return nil, err
		}
		if values, err = unpermute(values, view.Shape, int(heads)); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
	}
	return encode(values, d), nil
}

// unpermute undoes the rearrangement of the rows [heads * dim, in] that llama's conversion to GGUF makes: row 2i+s of a head
// was row s*dim/2+i, so that the halves that rotate together lie side by side.
func unpermute(values []float32, shape []int, heads int) ([]float32, error) {
	if len(shape) != 2 || shape[0]%(2*heads) != 0 {
		return nil, fmt.Errorf("%v cannot be the rows of %d rotated heads", shape, heads)
	}
	dim, in := shape[0]/heads, shape[1]
	out := make([]float32, len(values))
	for row := range shape[0] {
		head, at := row/dim, row%dim
		from := head*dim + at%(dim/2)*2 + at/(dim/2)
		copy(out[row*in:(row+1)*in], values[from*in:])
	}
	return out, nil
}

func encode(values []float32, d tensor.DType) []byte {
	out := make([]byte, 0, len(values)*d.BlockBytes())
	for _, v := range values {
		switch d {
		case tensor.F16:
			out = binary.LittleEndian.AppendUint16(out, quant.F32ToF16(v))
		case tensor.BF16:
			out = binary.LittleEndian.AppendUint16(out, quant.F32ToBF16(v))
		default:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
		}
	}
	return out
}
