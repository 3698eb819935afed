package openai

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/server/schema"
)

// golden is one recorded pair of vLLM 0.32's front end.
type golden struct {
	dir     string // the recorded server
	Name    string
	Request struct {
		Method, Path string
		Headers      map[string]string
		JSON         json.RawMessage
		Raw          *string
	}
	Response struct {
		Status  int
		Headers map[string]string
		BodyRaw string          `json:"body_raw"`
		SSERaw  string          `json:"sse_raw"`
		JSON    json.RawMessage `json:"json"`
	}
}

func (g *golden) body() []byte {
	if g.Request.Raw != nil {
		return []byte(*g.Request.Raw)
	}
	return g.Request.JSON
}

func goldens(t testing.TB, pattern string) []golden {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "api", pattern))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var all []golden
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		var g golden
		require.NoError(t, json.Unmarshal(data, &g), f)
		g.dir = filepath.Base(filepath.Dir(f))
		all = append(all, g)
	}
	return all
}

func TestSchemaErrorsAreThoseOfVLLM(t *testing.T) {
	types := newSchemas()
	byPath := map[string]schema.Type{"/v1/completions": types.completion, "/v1/chat/completions": types.chat,
		"/detokenize": types.detokenize}
	checked := 0
	for _, g := range goldens(t, "*/*.json") {
		typ := byPath[g.Request.Path]
		// vLLM looks at these two before it checks types.
		if strings.HasSuffix(g.Name, "cache_salt_type") || strings.HasSuffix(g.Name, "logprobs_string") {
			continue
		}
		if typ == nil || g.Request.Method != "POST" || strings.Contains(g.Response.BodyRaw, "Unsupported Media Type") {
			continue
		}
		var got error
		if v, err := schema.Parse(g.body()); err != nil || len(g.body()) == 0 {
			continue // syntax errors are the handler's
		} else {
			_, got = schema.Check(typ, v)
		}
		var want struct {
			Error struct{ Message, Param string }
		}
		_ = json.Unmarshal([]byte(g.Response.BodyRaw), &want)
		if !strings.Contains(want.Error.Message, "validation error") || strings.Contains(want.Error.Message, "ValidatorIterator") {
			if got != nil {
				t.Errorf("%s: %v", g.Name, got)
			}
			continue
		}
		checked++
		if got == nil {
			t.Errorf("%s: no error, want %s", g.Name, want.Error.Message)
			continue
		}
		assert.Equal(t, want.Error.Message, got.Error(), g.Name)
		require.Equal(t, want.Error.Param, got.(schema.Errors).Param(), g.Name)
	}
	require.Greater(t, checked, 20)
}
