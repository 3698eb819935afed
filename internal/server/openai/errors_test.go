package openai

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/stages"
)

// otherwise is the reason why a recorded error differs here; empty: it does not.
func otherwise(g *golden) string {
	switch p := g.Request.Path; {
	case strings.HasPrefix(p, "/v1/responses"), strings.HasPrefix(p, "/v1/messages"), strings.HasSuffix(p, "/render"), strings.HasSuffix(p, "/batch"), p == "/invocations":
		return "an endpoint that is not served: 404"
	}
	return map[string]string{
		"bad_chat_content_part_unknown": "the message is our own: vLLM's dumps every part type that other models read",
		"bad_chat_rf_bad_schema":        "response formats are refused before their schema is read",
		"bad_chat_so_bad_regex":         "constraints are refused before they are parsed",
		"bad_comp_beam_stream":          "beam search is refused, streamed or not",
	}[g.Name]
}

// TestErrorsAreVLLMs replays every recorded error: same status, same body.
func TestErrorsAreVLLMs(t *testing.T) {
	checked := 0
	for _, g := range goldens(t, "*/*.json") {
		if g.Response.Status < 400 || g.dir != "bf16" && g.dir != "f32" {
			continue
		}
		t.Run(g.dir+"/"+g.Name, func(t *testing.T) {
			r := &scripted{scripts: []script{{updates: []stages.Update{last(said("x", 1), request.FinishLength)}}}}
			h := newTestServer(t, r, spelled{}, func(o *Options, _ *Model, _ *stages.Options) { o.CORS.Origins = nil })
			req := httptest.NewRequest(g.Request.Method, g.Request.Path, strings.NewReader(string(g.body())))
			for k, v := range g.Request.Headers {
				req.Header.Set(k, v)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			if why := otherwise(&g); why != "" {
				require.GreaterOrEqual(t, w.Code, 400, w.Body.String())
				require.Less(t, w.Code, 500, w.Body.String())
				t.Skip(why)
			}
			require.Equal(t, g.Response.Status, w.Code, w.Body.String())
			if g.Response.BodyRaw == "" || g.Response.BodyRaw[0] != '{' {
				assert.Equal(t, g.Response.BodyRaw, w.Body.String())
				return
			}
			assert.JSONEq(t, g.Response.BodyRaw, w.Body.String())
		})
		checked++
	}
	require.Greater(t, checked, 90)
}
