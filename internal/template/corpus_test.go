package template

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// corpus is textdata/templates/cases.json: what transformers 5.24 renders.
type corpus struct {
	Conversations []struct {
		Name     string
		Messages json.RawMessage
		Kwargs   json.RawMessage
	}
	Tokens  map[string]json.RawMessage
	Results map[string]map[string]struct {
		Out   *string
		Raise *string
		Error *string
	}
}

func corpusClock() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC) }

func corpusDir(t testing.TB) string {
	root := os.Getenv("OMNI_TESTDATA")
	if root == "" {
		t.Skip("OMNI_TESTDATA is not set: the real chat templates are not part of the repository")
	}
	return filepath.Join(root, "textdata", "templates")
}

func loadCorpus(t testing.TB) (*corpus, string) {
	dir := corpusDir(t)
	raw, err := os.ReadFile(filepath.Join(dir, "cases.json"))
	require.NoError(t, err)
	var c corpus
	require.NoError(t, json.Unmarshal(raw, &c))
	return &c, dir
}

func mustJSON(t testing.TB, raw []byte) Value {
	v, err := FromJSON(raw)
	require.NoError(t, err)
	return v
}

// chatInput splits a case's kwargs into the arguments of apply_chat_template.
func chatInput(messages *List, kwargs, tokens *Dict) ChatInput {
	in := ChatInput{Messages: messages, SpecialTokens: tokens, Kwargs: NewDict()}
	for k, v := range kwargs.All() {
		switch k {
		case "tools":
			in.Tools = v
		case "documents":
			in.Documents = v
		case "add_generation_prompt":
			in.AddGenerationPrompt = v == Bool(true)
		case "continue_final_message":
			in.ContinueFinal = v == Bool(true)
		default:
			in.Kwargs.Set(k, v)
		}
	}
	return in
}

func TestRealTemplatesRenderAsTransformersDoes(t *testing.T) {
	c, dir := loadCorpus(t)
	names := make([]string, 0, len(c.Results))
	for name := range c.Results {
		names = append(names, name)
	}
	sort.Strings(names)
	outs, raises, errs := 0, 0, 0
	for _, name := range names {
		src, err := os.ReadFile(filepath.Join(dir, name+".jinja"))
		require.NoError(t, err)
		tmpl, parseErr := Parse(string(src), WithClock(corpusClock))
		tokens := mustJSON(t, c.Tokens[name]).(*Dict)
		for _, conv := range c.Conversations {
			want, ok := c.Results[name][conv.Name]
			if !ok {
				continue
			}
			var got string
			err := parseErr
			if err == nil {
				in := chatInput(mustJSON(t, conv.Messages).(*List), mustJSON(t, conv.Kwargs).(*Dict), tokens)
				got, err = tmpl.RenderChat(context.Background(), in, Limits{})
			}
			where := name + "/" + conv.Name
			var raised *RaisedError
			switch {
			case want.Out != nil:
				outs++
				if assert.NoError(t, err, where) {
					assert.Equal(t, *want.Out, got, where)
				}
			case want.Raise != nil:
				raises++
				if assert.ErrorAs(t, err, &raised, where) {
					assert.Equal(t, *want.Raise, raised.Message, where)
				}
			default:
				errs++
				assert.Error(t, err, where)
				assert.False(t, errors.As(err, &raised), where)
				checkKind(t, *want.Error, err, where)
			}
		}
	}
	t.Logf("%d templates: %d outputs, %d raises, %d errors", len(names), outs, raises, errs)
	assert.Positive(t, outs*raises*errs)
}

// checkKind compares the kind of a failure with the Python exception's class.
func checkKind(t *testing.T, want string, err error, where string) {
	var e *Error
	var cont *ContinueFinalError
	switch {
	case want == "ContinueFinal":
		assert.ErrorAs(t, err, &cont, where)
	case assert.ErrorAs(t, err, &e, where):
		assert.Equal(t, want, string(e.Kind), where)
	}
}
