package gguf

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// builder writes files byte by byte, so that tests can make wrong ones.
type builder struct{ b []byte }

func header(tensors, entries uint64) *builder {
	return (&builder{b: []byte("GGUF")}).u32(3).u64(tensors).u64(entries)
}

func (b *builder) u32(v uint32) *builder {
	b.b = binary.LittleEndian.AppendUint32(b.b, v)
	return b
}

func (b *builder) u64(v uint64) *builder {
	b.b = binary.LittleEndian.AppendUint64(b.b, v)
	return b
}

func (b *builder) str(s string) *builder {
	b.u64(uint64(len(s)))
	b.b = append(b.b, s...)
	return b
}

func (b *builder) kvU32(key string, v uint32) *builder { return b.str(key).u32(typeU32).u32(v) }

// tensor appends an info; dims are in file order, fastest first.
func (b *builder) tensor(name string, typ uint32, offset uint64, dims ...uint64) *builder {
	b.str(name).u32(uint32(len(dims)))
	for _, d := range dims {
		b.u64(d)
	}
	return b.u32(typ).u64(offset)
}

// data pads to the default alignment and appends n bytes.
func (b *builder) data(n int) *builder {
	for len(b.b)%defaultAlignment != 0 {
		b.b = append(b.b, 0)
	}
	b.b = append(b.b, make([]byte, n)...)
	return b
}

func (b *builder) file(t *testing.T) string {
	path := filepath.Join(t.TempDir(), "model.gguf")
	require.NoError(t, os.WriteFile(path, b.b, 0o600))
	return path
}
