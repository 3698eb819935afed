package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"omni-engine/internal/tensor"
)

// A Source is a tensor to write; Data is called once, in Write's order, so that a checkpoint need not be in memory at once.
type Source struct {
	Name  string
	DType tensor.DType
	Shape []int
	Data  func() ([]byte, error)
}

// Write writes one file, widest types first and then by name as the reference writer orders them, the header padded to 8 bytes.
func Write(w io.Writer, metadata map[string]string, sources []Source) error {
	sorted := slices.Clone(sources)
	slices.SortFunc(sorted, func(a, b Source) int {
		return cmp.Or(cmp.Compare(b.DType.BlockBytes(), a.DType.BlockBytes()), cmp.Compare(a.Name, b.Name))
	})
	header, sizes, err := writeHeader(metadata, sorted)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	if _, err := w.Write(header); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	for i, s := range sorted {
		data, err := s.Data()
		if err == nil && int64(len(data)) != sizes[i] {
			err = fmt.Errorf("%d bytes of data for %s%v, which needs %d", len(data), s.DType, s.Shape, sizes[i])
		}
		if err == nil {
			_, err = w.Write(data)
		}
		if err != nil {
			return fmt.Errorf("write safetensors tensor %q: %w", s.Name, err)
		}
	}
	return nil
}

func writeHeader(metadata map[string]string, sources []Source) ([]byte, []int64, error) {
	type item struct {
		DType   string   `json:"dtype"`
		Shape   []int    `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	header, sizes := map[string]any{}, make([]int64, len(sources))
	if len(metadata) > 0 {
		header[metadataKey] = metadata
	}
	var at int64
	for i, s := range sources {
		if dtype(s.DType.String()) != s.DType || s.DType == tensor.Invalid {
			return nil, nil, fmt.Errorf("tensor %q: the format has no %s", s.Name, s.DType)
		}
		n, err := tensor.Elems(s.Shape)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", s.Name, err)
		}
		if sizes[i], err = s.DType.Bytes(n); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", s.Name, err)
		}
		if _, twice := header[s.Name]; twice {
			return nil, nil, fmt.Errorf("tensor %q occurs twice", s.Name)
		}
		header[s.Name] = item{s.DType.String(), append([]int{}, s.Shape...), [2]int64{at, at + sizes[i]}}
		at += sizes[i]
	}
	raw, err := json.Marshal(header)
	if err != nil {
		return nil, nil, err
	}
	raw = append(raw, bytes.Repeat([]byte(" "), -len(raw)&7)...)
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(raw))), raw...), sizes, nil
}
