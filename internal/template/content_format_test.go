package template

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// formats is testdata/content_format.json: what vLLM 0.32's detection says, for real templates by name and for our own.
type formats struct {
	Real map[string]string
	Own  []struct{ Src, Format string }
}

func loadFormats(t *testing.T) (f formats) {
	raw, err := os.ReadFile("testdata/content_format.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &f))
	return f
}

func TestContentFormatIsDetectedAsVLLMDoes(t *testing.T) {
	for _, c := range loadFormats(t).Own {
		tmpl, err := Parse(c.Src)
		require.NoError(t, err, c.Src)
		assert.Equal(t, c.Format, string(tmpl.ContentFormat()), c.Src)
	}
}

func TestContentFormatOfRealTemplates(t *testing.T) {
	dir := corpusDir(t)
	for name, want := range loadFormats(t).Real {
		src, err := os.ReadFile(filepath.Join(dir, name+".jinja"))
		require.NoError(t, err)
		tmpl, err := Parse(string(src))
		require.NoError(t, err, name)
		assert.Equal(t, want, string(tmpl.ContentFormat()), name)
	}
}

func TestDeveloperRoleIsLookedUpInTheSource(t *testing.T) {
	for src, want := range map[string]bool{`{{ m.role == "developer" }}`: true, `{{ m.role == 'developer' }}`: true, `developer`: false} {
		tmpl, err := Parse(src)
		require.NoError(t, err)
		assert.Equal(t, want, tmpl.SupportsDeveloperRole(), src)
	}
}
