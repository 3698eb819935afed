package gguf

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"omni-engine/internal/tensor"
)

const (
	magic            = "GGUF"
	defaultAlignment = 32
	maxDims          = 4
	// The least bytes of an entry: key length, value type and one byte; name length, dimension count, type and offset.
	minEntry = 8 + 4 + 1
	minInfo  = 8 + 4 + 4 + 8
)

// info is one tensor of one part.
type info struct {
	name string
	view tensor.View
}

// part is one parsed file of a possibly split model.
type part struct {
	version uint32
	meta    Metadata
	tensors []info
}

// parse reads the header and checks that every tensor lies, aligned and alone, within data. The views share data's memory;
// strings are copied.
func parse(data []byte) (*part, error) {
	r := &reader{data: data}
	version, err := r.version()
	if err != nil {
		return nil, err
	}
	tensors, err := r.count(minInfo, "the tensor count")
	if err != nil {
		return nil, err
	}
	entries, err := r.count(minEntry, "the metadata count")
	if err != nil {
		return nil, err
	}
	p := &part{version: version}
	if p.meta, err = r.metadata(entries); err != nil {
		return nil, err
	}
	alignment, err := alignmentOf(p.meta)
	if err != nil {
		return nil, err
	}
	specs, err := r.specs(tensors)
	if err != nil {
		return nil, err
	}
	p.tensors, err = place(specs, data, uint64(r.pos), alignment)
	return p, err
}

func (r *reader) version() (uint32, error) {
	b, err := r.take(4, "the magic")
	if err != nil {
		return 0, err
	}
	if string(b) != magic {
		return 0, fmt.Errorf("not a GGUF file: it begins with %q", b)
	}
	v, err := r.u32("the version")
	switch {
	case err != nil:
		return 0, err
	case v == 2 || v == 3:
		return v, nil
	case v&0xffff == 0 && v != 0:
		return 0, fmt.Errorf("big-endian file (version field %#08x); only little-endian ones are supported", v)
	}
	return 0, fmt.Errorf("version %d is not supported (2 and 3 are)", v)
}

func alignmentOf(m Metadata) (uint64, error) {
	v, present := m.Value("general.alignment")
	if !present {
		return defaultAlignment, nil
	}
	n, ok := v.(uint32)
	if !ok {
		return 0, fmt.Errorf("general.alignment is a %T, not an unsigned 32-bit number", v)
	}
	if n == 0 || n&(n-1) != 0 {
		return 0, fmt.Errorf("general.alignment %d is not a power of two", n)
	}
	return uint64(n), nil
}

// spec is a tensor as the header describes it: nothing about its place is checked yet.
type spec struct {
	name   string
	dtype  tensor.DType
	shape  []int // row-major: [out, in]
	offset uint64
	size   uint64
}

func (r *reader) specs(n int) ([]spec, error) {
	specs := make([]spec, 0, n)
	seen := make(map[string]bool, n)
	for i := range n {
		name, err := r.str("a tensor name")
		if err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i, err)
		}
		if name == "" || len(name) > maxKey {
			return nil, fmt.Errorf("tensor %d: name of %d bytes (1 to %d allowed)", i, len(name), maxKey)
		}
		if seen[name] {
			return nil, fmt.Errorf("tensor %q occurs twice", name)
		}
		seen[name] = true
		s, err := r.spec()
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		s.name = name
		specs = append(specs, s)
	}
	return specs, nil
}

func (r *reader) spec() (s spec, err error) {
	if s.shape, err = r.shape(); err != nil {
		return s, err
	}
	id, err := r.u32("the element type")
	if err != nil {
		return s, err
	}
	if s.dtype, err = dtype(id); err != nil {
		return s, err
	}
	if s.offset, err = r.u64("the offset"); err != nil {
		return s, err
	}
	if last := len(s.shape) - 1; last >= 0 && s.shape[last]%s.dtype.BlockElems() != 0 {
		return s, fmt.Errorf("rows of %d elements do not fill %s blocks of %d", s.shape[last], s.dtype, s.dtype.BlockElems())
	}
	elems, err := tensor.Elems(s.shape)
	if err != nil {
		return s, err
	}
	size, err := s.dtype.Bytes(elems)
	s.size = uint64(size)
	return s, err
}

// shape reads the dimensions, fastest first in the file, and turns them round.
func (r *reader) shape() ([]int, error) {
	n, err := r.u32("the number of dimensions")
	if err != nil {
		return nil, err
	}
	if n > maxDims {
		return nil, fmt.Errorf("%d dimensions (at most %d)", n, maxDims)
	}
	b, err := r.take(8*uint64(n), "the dimensions")
	if err != nil {
		return nil, err
	}
	shape := make([]int, n)
	for i := range shape {
		dim := binary.LittleEndian.Uint64(b[8*i:])
		if dim > math.MaxInt64>>1 {
			return nil, fmt.Errorf("dimension %d of %d elements", i, dim)
		}
		shape[len(shape)-1-i] = int(dim)
	}
	return shape, nil
}

// place cuts the tensors out of the file: data begins at the first multiple of the alignment after the header.
func place(specs []spec, data []byte, header, alignment uint64) ([]info, error) {
	start := (header + alignment - 1) &^ (alignment - 1)
	var room uint64 // a header that ends the file leaves no data, and needs no padding
	if start < uint64(len(data)) {
		room = uint64(len(data)) - start
	}
	tensors := make([]info, len(specs))
	for i, s := range specs {
		switch {
		case s.offset%alignment != 0:
			return nil, fmt.Errorf("tensor %q: offset %d is not a multiple of the alignment %d", s.name, s.offset, alignment)
		case s.size == 0:
		case s.offset > room || s.size > room-s.offset:
			return nil, fmt.Errorf("tensor %q: %d bytes at offset %d run beyond the file's end (%d bytes of data): is the file cut short?",
				s.name, s.size, s.offset, room)
		}
		var bytes []byte
		if s.size > 0 {
			from, to := start+s.offset, start+s.offset+s.size
			bytes = data[from:to:to]
		}
		view, err := tensor.NewView(s.dtype, s.shape, bytes)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w", s.name, err)
		}
		tensors[i] = info{name: s.name, view: view}
	}
	return tensors, overlap(specs)
}

func overlap(specs []spec) error {
	sorted := slices.DeleteFunc(slices.Clone(specs), func(s spec) bool { return s.size == 0 })
	slices.SortFunc(sorted, func(a, b spec) int { return cmp.Compare(a.offset, b.offset) })
	for i := 1; i < len(sorted); i++ {
		if prev := sorted[i-1]; prev.offset+prev.size > sorted[i].offset {
			return fmt.Errorf("tensors %q and %q overlap", prev.name, sorted[i].name)
		}
	}
	return nil
}
