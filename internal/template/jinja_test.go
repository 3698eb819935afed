package template

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recorded is testdata/jinja2_cases.json: our own templates, rendered by jinja2 3.1.6 set up as transformers 5.24 does.
type recorded struct {
	Vars  json.RawMessage
	Cases []recordedCase
}

type recordedCase struct {
	Src   string
	Out   *string
	Raise *string
	Error *string
	Msg   string
}

func loadRecorded(t testing.TB) (recorded, *Dict) {
	raw, err := os.ReadFile("testdata/jinja2_cases.json")
	require.NoError(t, err)
	var r recorded
	require.NoError(t, json.Unmarshal(raw, &r))
	return r, mustJSON(t, r.Vars).(*Dict)
}

func TestEveryConstructBehavesAsInJinja2(t *testing.T) {
	r, vars := loadRecorded(t)
	require.Greater(t, len(r.Cases), 900)
	for _, c := range r.Cases {
		var out string
		tmpl, err := Parse(c.Src, WithClock(corpusClock))
		if err == nil {
			out, err = tmpl.Render(context.Background(), vars, Limits{})
		}
		checkRecorded(t, c, out, err)
	}
}

func checkRecorded(t *testing.T, c recordedCase, out string, err error) {
	var raised *RaisedError
	var syntax *SyntaxError
	var failed *Error
	switch {
	case c.Out != nil:
		if assert.NoError(t, err, c.Src) {
			assert.Equal(t, *c.Out, out, c.Src)
		}
	case c.Raise != nil:
		if assert.ErrorAs(t, err, &raised, c.Src) {
			assert.Equal(t, *c.Raise, raised.Message, c.Src)
		}
	case !assert.Error(t, err, "%s: want %s %s, got %q", c.Src, *c.Error, c.Msg, out):
	case *c.Error == "TemplateSyntaxError" || *c.Error == "TemplateAssertionError" || *c.Error == "SyntaxError":
		assert.ErrorAs(t, err, &syntax, c.Src)
	case assert.False(t, errors.As(err, &syntax), "%s: %v", c.Src, err) && errors.As(err, &failed):
		if failed.Kind == UnsupportedKind {
			return
		}
		assert.Equal(t, *c.Error, string(failed.Kind), "%s: %v / %s", c.Src, err, c.Msg)
		assert.Equal(t, c.Msg, failed.Message, c.Src)
	}
}
