package mapped

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMappedBytesSurviveDroppingPages(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	want := make([]byte, 3*os.Getpagesize()+17)
	for i := range want {
		want[i] = byte(i * 31)
	}
	require.NoError(t, os.WriteFile(path, want, 0o600))

	m, err := Open(path)
	require.NoError(t, err)
	assert.Equal(t, want, m.Bytes())
	require.NoError(t, m.DropPages())
	assert.Equal(t, want, m.Bytes(), "pages are read from the file again")
	require.NoError(t, m.Close())
	assert.Empty(t, m.Bytes())
	require.NoError(t, m.Close(), "closing twice is harmless")
}

func TestEmptyFileMapsToNoBytes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	m, err := Open(path)
	require.NoError(t, err)
	assert.Empty(t, m.Bytes())
	require.NoError(t, m.DropPages())
	require.NoError(t, m.Close())
}

func TestWhatIsNotARegularFileIsRefused(t *testing.T) {
	_, err := Open(t.TempDir())
	assert.ErrorContains(t, err, "not a regular file")
	_, err = Open(filepath.Join(t.TempDir(), "absent"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}
