//go:build unix

// Package mapped maps model files into memory read-only, so that weights are paged in as they are packed and never copied.
package mapped

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// A File is a read-only mapping of a whole file. Its bytes are valid until Close; writing to them faults.
// A file that somebody truncates while it is mapped kills the process on access (SIGBUS), as with every mapped file.
type File struct{ data []byte }

// Open maps the regular file at path. An empty file maps to no bytes.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("map model file: %w", err)
	}
	defer f.Close() // the mapping outlives the descriptor
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("map model file: %w", err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("map model file %s: not a regular file", path)
	case info.Size() > math.MaxInt:
		return nil, fmt.Errorf("map model file %s: %d bytes exceed the address space", path, info.Size())
	case info.Size() == 0:
		return &File{}, nil
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map model file %s: %w", path, err)
	}
	return &File{data: data}, nil
}

// Bytes is the whole file.
func (m *File) Bytes() []byte { return m.data }

// DropPages gives the resident pages back to the system. The bytes stay readable: they are read from the file again.
func (m *File) DropPages() error {
	if len(m.data) == 0 {
		return nil
	}
	if err := unix.Madvise(m.data, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("drop pages of model file: %w", err)
	}
	return nil
}

// Close unmaps the file; every slice of its bytes is invalid afterwards. Closing twice is harmless.
func (m *File) Close() error {
	if len(m.data) == 0 {
		return nil
	}
	data := m.data
	m.data = nil
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmap model file: %w", err)
	}
	return nil
}
