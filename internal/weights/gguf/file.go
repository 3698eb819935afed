// Package gguf reads GGUF model files, versions 2 and 3 (the format of ggml's docs/gguf.md), single or split. Files are
// untrusted: every count, size and offset is checked against the bytes that exist before it is used.
package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/mapped"
)

// ErrNoTensor is what Tensor's error wraps when the file has no tensor of that name.
var ErrNoTensor = errors.New("no such tensor")

// A File is an open model: one mapped file, or all parts of a split one. It is safe for concurrent reading.
type File struct {
	Version uint32
	Meta    Metadata // of the first part, which alone carries the model's facts

	maps  []*mapped.File
	names []string
	views map[string]tensor.View
}

// Open maps the model at path. For a split model any of its parts may be named (NAME-00001-of-00003.gguf); all are opened.
func Open(path string) (*File, error) {
	f := &File{views: map[string]tensor.View{}}
	if err := f.open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open GGUF model: %w", err), f.Close())
	}
	return f, nil
}

func (f *File) open(path string) error {
	first, err := f.addPart(path)
	if err != nil {
		return err
	}
	f.Version, f.Meta = first.version, first.meta
	s, err := splitOf(first.meta)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if s.count <= 1 {
		return f.index(path, first)
	}
	return f.openSplit(path, first, s)
}

func (f *File) openSplit(path string, named *part, s split) error {
	paths, err := splitPaths(path, s)
	if err != nil {
		return err
	}
	for i, other := range paths {
		p := named
		if i != s.number {
			if p, err = f.addPart(other); err != nil {
				return fmt.Errorf("part %d of %d: %w", i+1, s.count, err)
			}
		}
		got, err := splitOf(p.meta)
		if err != nil {
			return fmt.Errorf("%s: %w", other, err)
		}
		if got.number != i || got.count != s.count || got.tensors != s.tensors {
			return fmt.Errorf("%s is part %d of %d (%d tensors), expected part %d of %d (%d tensors)",
				other, got.number+1, got.count, got.tensors, i+1, s.count, s.tensors)
		}
		if i == 0 {
			f.Version, f.Meta = p.version, p.meta
		}
		if err := f.index(other, p); err != nil {
			return err
		}
	}
	if s.tensors >= 0 && len(f.names) != s.tensors {
		return fmt.Errorf("%s: the %d parts hold %d tensors, not the %d they announce", path, s.count, len(f.names), s.tensors)
	}
	return nil
}

func (f *File) addPart(path string) (*part, error) {
	m, err := mapped.Open(path)
	if err != nil {
		return nil, err
	}
	f.maps = append(f.maps, m)
	p, err := parse(m.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

func (f *File) index(path string, p *part) error {
	for _, t := range p.tensors {
		if _, twice := f.views[t.name]; twice {
			return fmt.Errorf("%s: tensor %q is already in another part", path, t.name)
		}
		f.names = append(f.names, t.name)
		f.views[t.name] = t.view
	}
	return nil
}

// Names are the tensors' names in file order, part after part.
func (f *File) Names() []string { return f.names }

// Tensor views a tensor in the mapped file, without copying; valid until Close. The shape is row-major: a linear layer's
// weight is [out, in], the reverse of the order in which the format stores dimensions.
func (f *File) Tensor(name string) (tensor.View, error) {
	v, ok := f.views[name]
	if !ok {
		return tensor.View{}, fmt.Errorf("GGUF tensor %q: %w", name, ErrNoTensor)
	}
	return v, nil
}

// Architecture is general.architecture, such as "llama"; empty when the file does not say.
func (f *File) Architecture() string {
	s, _ := f.Meta.String("general.architecture")
	return s
}

// DropPages gives the mappings' resident pages back to the system, for use after the weights were packed elsewhere.
// Views stay valid.
func (f *File) DropPages() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.DropPages())
	}
	return errors.Join(errs...)
}

// Close unmaps all parts; every View is invalid afterwards. Closing twice is harmless.
func (f *File) Close() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	f.views, f.names = nil, nil
	return errors.Join(errs...)
}

// split is what a part says about the whole; tensors is -1 when it does not say how many there are.
type split struct{ number, count, tensors int }

func splitOf(m Metadata) (split, error) {
	s := split{tensors: -1}
	for _, field := range []struct {
		key string
		dst *int
	}{{"split.no", &s.number}, {"split.count", &s.count}, {"split.tensors.count", &s.tensors}} {
		if _, present := m.Value(field.key); !present {
			continue
		}
		n, ok := m.Int(field.key)
		if !ok || n < 0 || n > 1<<31-1 {
			return s, fmt.Errorf("%s is not a count", field.key)
		}
		*field.dst = int(n)
	}
	if s.count > 1<<16-1 { // the format stores 16 bits
		return s, fmt.Errorf("split.count %d is out of range", s.count)
	}
	if s.count > 1 && s.number >= s.count {
		return s, fmt.Errorf("split.no %d is not below split.count %d", s.number, s.count)
	}
	return s, nil
}

// splitPaths lists all parts' paths beside the named one, in order.
func splitPaths(path string, s split) ([]string, error) {
	dir, base := filepath.Split(path)
	m := regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`).FindStringSubmatch(base)
	if m == nil {
		return nil, fmt.Errorf("%s is part %d of %d, but its name does not end in -%05d-of-%05d.gguf: the other parts cannot be found",
			path, s.number+1, s.count, s.number+1, s.count)
	}
	number, _ := strconv.Atoi(m[2])
	count, _ := strconv.Atoi(m[3])
	if number != s.number+1 || count != s.count {
		return nil, fmt.Errorf("%s says within that it is part %d of %d", path, s.number+1, s.count)
	}
	paths := make([]string, s.count)
	for i := range paths {
		paths[i] = filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, s.count))
	}
	return paths, nil
}
