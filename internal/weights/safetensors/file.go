// Package safetensors reads safetensors checkpoints: a single file or the shards that an index names. Files are untrusted;
// the header is checked as strictly as by the format's reference implementation, and no byte of data is copied.
package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/mapped"
)

// ErrNoTensor is what Tensor's error wraps when the checkpoint has no tensor of that name.
var ErrNoTensor = errors.New("no such tensor")

// maxIndex bounds an index file; the largest public ones have a few megabytes.
const maxIndex = 100_000_000

// A File is an open checkpoint of one or more mapped files. It is safe for concurrent reading.
type File struct {
	// Metadata is the files' free-form metadata; where shards disagree, the first in name order wins.
	Metadata map[string]string

	maps    []*mapped.File
	names   []string
	entries map[string]entry
}

// Open opens a checkpoint: a .safetensors file, an index (NAME.safetensors.index.json), or a folder. In a folder the names
// that transformers and diffusers write are looked for first (model, diffusion_pytorch_model; file before index), else all
// its *.safetensors files together are the checkpoint.
func Open(path string) (*File, error) {
	f := &File{Metadata: map[string]string{}, entries: map[string]entry{}}
	if err := f.open(path); err != nil {
		return nil, errors.Join(fmt.Errorf("open safetensors checkpoint: %w", err), f.Close())
	}
	return f, nil
}

func (f *File) open(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return f.openDir(path)
	case strings.HasSuffix(path, ".json"):
		return f.openIndex(path)
	}
	return f.add(path, nil)
}

func (f *File) openDir(dir string) error {
	for _, stem := range []string{"model", "diffusion_pytorch_model"} {
		for _, suffix := range []string{".safetensors", ".safetensors.index.json"} {
			path := filepath.Join(dir, stem+suffix)
			if _, err := os.Stat(path); err == nil {
				return f.open(path)
			} else if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".safetensors") {
			continue
		}
		found = true
		if err := f.add(filepath.Join(dir, e.Name()), nil); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%s holds no .safetensors file", dir)
	}
	return nil
}

// add maps one file and takes its tensors: all, or those wanted.
func (f *File) add(path string, wanted []string) error {
	m, err := mapped.Open(path)
	if err != nil {
		return err
	}
	f.maps = append(f.maps, m)
	entries, metadata, err := parse(m.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for k, v := range metadata {
		if _, set := f.Metadata[k]; !set {
			f.Metadata[k] = v
		}
	}
	want := map[string]bool{}
	for _, name := range wanted {
		want[name] = true
	}
	for _, e := range entries {
		if wanted != nil && !want[e.name] {
			continue
		}
		if _, twice := f.entries[e.name]; twice {
			return fmt.Errorf("%s: tensor %q is already in another file", path, e.name)
		}
		f.entries[e.name] = e
		f.names = append(f.names, e.name)
		delete(want, e.name)
	}
	if missing := slices.Sorted(maps.Keys(want)); len(missing) > 0 {
		return fmt.Errorf("%s: the index places %d tensors here that the file does not have, such as %q", path, len(missing), missing[0])
	}
	return nil
}

func (f *File) openIndex(path string) error {
	shards, err := readIndex(path)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		if err := f.add(filepath.Join(filepath.Dir(path), name), shards[name]); err != nil {
			return err
		}
	}
	return nil
}

func readIndex(path string) (map[string][]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxIndex {
		return nil, fmt.Errorf("index of %d bytes exceeds the limit of %d", info.Size(), maxIndex)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseIndex(raw)
}

// parseIndex gives the tensors of each shard. A shard is a file beside the index: no name may lead elsewhere.
func parseIndex(raw []byte) (map[string][]string, error) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(raw, &index); err != nil {
		return nil, fmt.Errorf("index: %w", err)
	}
	if len(index.WeightMap) == 0 {
		return nil, errors.New("the index has no weight_map")
	}
	shards := map[string][]string{}
	for name, shard := range index.WeightMap {
		if shard != filepath.Base(shard) || strings.ContainsAny(shard, "/\\\x00") || !strings.HasSuffix(shard, ".safetensors") {
			return nil, fmt.Errorf("the index places tensor %q in %q, which is not the name of a .safetensors file beside it", name, shard)
		}
		shards[shard] = append(shards[shard], name)
	}
	return shards, nil
}

// Names are the tensors' names, file after file in the order of their headers.
func (f *File) Names() []string { return f.names }

// Tensor views a tensor in the mapped file, without copying; valid until Close.
func (f *File) Tensor(name string) (tensor.View, error) {
	e, ok := f.entries[name]
	switch {
	case !ok:
		return tensor.View{}, fmt.Errorf("safetensors tensor %q: %w", name, ErrNoTensor)
	case e.unsupported != "":
		return tensor.View{}, fmt.Errorf("safetensors tensor %q: dtype %s is not supported", name, e.unsupported)
	}
	return e.view, nil
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

// Close unmaps all files; every View is invalid afterwards. Closing twice is harmless.
func (f *File) Close() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	f.entries, f.names = nil, nil
	return errors.Join(errs...)
}
