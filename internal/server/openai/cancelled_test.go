package openai

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCancelledRequestsTellWhoEndedThem(t *testing.T) {
	for _, c := range []struct {
		cause  error
		status int
		text   string
	}{{ErrShutdown, http.StatusServiceUnavailable, "the server is shutting down"}, {nil, statusClientGone, "the client closed the request"}} {
		for path, body := range map[string]string{"/v1/completions": completion, "/v1/chat/completions": chatting,
			"/v1/completions ": `{"prompt":["a","b"],"max_tokens":4}`} {
			h := newTestServer(t, &scripted{scripts: []script{{open: true}, {open: true}}}, spelled{}, nil)
			ctx, end := context.WithCancelCause(t.Context())
			end(c.cause)
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSpace(path), strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			assert.Equal(t, c.status, w.Code, path)
			assert.Contains(t, w.Body.String(), c.text)
		}
	}
}
