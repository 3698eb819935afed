package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"omni-engine/internal/tensor"
)

// maxHeader is the reference implementation's limit on the header's bytes.
const maxHeader = 100_000_000

const metadataKey = "__metadata__"

// entry is one tensor of the header, its place checked. A type that exists in the format but not here keeps its name and no view.
type entry struct {
	name        string
	view        tensor.View
	unsupported string
	from, to    uint64
}

// parse reads a whole file. The views share data's memory.
func parse(data []byte) ([]entry, map[string]string, error) {
	if len(data) < 8 {
		return nil, nil, fmt.Errorf("%d bytes are too few for a header", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	switch {
	case n > maxHeader:
		return nil, nil, fmt.Errorf("header of %d bytes exceeds the limit of %d: not a safetensors file?", n, maxHeader)
	case n > uint64(len(data)-8):
		return nil, nil, fmt.Errorf("header of %d bytes runs beyond the file's %d bytes: is the file cut short?", n, len(data))
	}
	header, body := data[8:8+n], data[8+n:]
	switch {
	case n == 0 || header[0] != '{':
		return nil, nil, fmt.Errorf("the header does not begin with {")
	case !utf8.Valid(header):
		return nil, nil, fmt.Errorf("the header is not UTF-8")
	}
	raw, metadata, err := fields(header)
	if err != nil {
		return nil, nil, err
	}
	entries := make([]entry, len(raw))
	for i, f := range raw {
		if entries[i], err = f.entry(body); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", f.name, err)
		}
	}
	return entries, metadata, contiguous(entries, uint64(len(body)))
}

type field struct {
	name string
	raw  json.RawMessage
}

// fields walks the header's object, so that a name that occurs twice is seen.
func fields(header []byte) (list []field, metadata map[string]string, err error) {
	d := json.NewDecoder(bytes.NewReader(header))
	if _, err := d.Token(); err != nil { // the brace
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("header: %w", err)
		}
		name, _ := token.(string) // within an object the decoder gives only strings here
		if seen[name] {
			return nil, nil, fmt.Errorf("tensor %q occurs twice", name)
		}
		seen[name] = true
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, nil, fmt.Errorf("header, %q: %w", name, err)
		}
		if name != metadataKey {
			list = append(list, field{name, raw})
		} else if err := json.Unmarshal(raw, &metadata); err != nil {
			return nil, nil, fmt.Errorf("header, %s: %w", metadataKey, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	if rest := bytes.TrimRight(header[d.InputOffset():], " "); len(rest) > 0 { // padding is spaces
		return nil, nil, fmt.Errorf("the header has %d bytes after its object", len(rest))
	}
	return list, metadata, nil
}

func (f field) entry(body []byte) (e entry, err error) {
	var keys map[string]json.RawMessage // a map, because struct fields would match in any case
	if err := json.Unmarshal(f.raw, &keys); err != nil {
		return e, err
	}
	var dtypeName string
	var dims, offsets []uint64
	for key, dst := range map[string]any{"dtype": &dtypeName, "shape": &dims, "data_offsets": &offsets} {
		raw, ok := keys[key]
		if !ok || bytes.Equal(raw, []byte("null")) {
			return e, fmt.Errorf("no %s", key)
		}
		if err := json.Unmarshal(raw, dst); err != nil {
			return e, fmt.Errorf("%s: %w", key, err)
		}
	}
	if len(offsets) != 2 {
		return e, fmt.Errorf("data_offsets has %d numbers, not 2", len(offsets))
	}
	from, to := offsets[0], offsets[1]
	if from > to || to > uint64(len(body)) {
		return e, fmt.Errorf("data_offsets [%d, %d] do not lie within the file's %d bytes of data", from, to, len(body))
	}
	e = entry{name: f.name, from: from, to: to}
	shape, err := shapeOf(dims)
	if err != nil {
		return e, err
	}
	if bits := unsupportedBits(dtypeName); bits > 0 {
		e.unsupported = dtypeName
		return e, checkBits(shape, bits, to-from)
	}
	d := dtype(dtypeName)
	if d == tensor.Invalid {
		return e, fmt.Errorf("unknown dtype %q", dtypeName)
	}
	e.view, err = tensor.NewView(d, shape, body[from:to:to])
	return e, err
}

func shapeOf(dims []uint64) ([]int, error) {
	shape := make([]int, len(dims))
	for i, d := range dims {
		if d > math.MaxInt64>>1 {
			return nil, fmt.Errorf("dimension %d of %d elements", i, d)
		}
		shape[i] = int(d)
	}
	return shape, nil
}

func checkBits(shape []int, bits int64, size uint64) error {
	n, err := tensor.Elems(shape)
	if err != nil {
		return err
	}
	if n > math.MaxInt64/bits || uint64(n*bits) != size*8 {
		return fmt.Errorf("%d elements of %d bits do not fill %d bytes", n, bits, size)
	}
	return nil
}

func dtype(name string) tensor.DType {
	switch name {
	case "F64":
		return tensor.F64
	case "F32":
		return tensor.F32
	case "F16":
		return tensor.F16
	case "BF16":
		return tensor.BF16
	case "I64":
		return tensor.I64
	case "I32":
		return tensor.I32
	case "I16":
		return tensor.I16
	case "I8":
		return tensor.I8
	case "U8":
		return tensor.U8
	case "BOOL":
		return tensor.Bool
	case "F8_E4M3":
		return tensor.F8E4M3
	case "F8_E5M2":
		return tensor.F8E5M2
	}
	return tensor.Invalid
}

// unsupportedBits is the width of the format's types that no operation here takes; 0 for others. A file may hold such
// tensors (positions, packed integers) as long as nobody asks for them.
func unsupportedBits(name string) int64 {
	switch name {
	case "U16":
		return 16
	case "U32":
		return 32
	case "U64", "C64":
		return 64
	case "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "F4":
		return 4
	}
	return 0
}

// contiguous checks, as the reference does, that the tensors tile the data: no gap, no overlap, nothing after the last.
func contiguous(entries []entry, size uint64) error {
	sorted := slices.Clone(entries)
	slices.SortFunc(sorted, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
	var at uint64
	for _, e := range sorted {
		if e.from != at {
			return fmt.Errorf("tensor %q begins at byte %d of the data, but the one before it ends at %d", e.name, e.from, at)
		}
		at = e.to
	}
	if at != size {
		return fmt.Errorf("the tensors end at byte %d of %d bytes of data", at, size)
	}
	return nil
}
