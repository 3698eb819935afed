package openai

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/stages"
)

// loggedBy is what the server logs while it answers one request.
func loggedBy(t *testing.T, path, body string, change func(*Options)) string {
	t.Helper()
	var b bytes.Buffer
	log := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	opt := Options{ResponseRole: "assistant", MaxLogLen: -1}
	change(&opt)
	chat, err := NewRenderer(chatML, nil, "auto")
	require.NoError(t, err)
	o, err := stages.New(stages.Options{}, hello())
	require.NoError(t, err)
	m := &Model{Names: []string{"m"}, Tokenizer: spelled{}, Chat: chat, Limits: Limits{MaxModelLen: 2048, VocabSize: 49152, MaxLogprobs: 20}}
	h := New(opt, m, o, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "") }), nil, log).Handler()
	require.Equal(t, http.StatusOK, post(t, h, path, body).Code)
	return b.String()
}

func TestAnswersAreLoggedWhenAsked(t *testing.T) {
	for path, body := range map[string]string{"/v1/completions": completion, "/v1/chat/completions": chatting} {
		for _, b := range []string{body, strings.TrimSuffix(body, "}") + `,"stream":true}`} {
			text := loggedBy(t, path, b, func(o *Options) { o.LogRequests, o.LogOutputs = true, true })
			assert.Regexp(t, `msg="generated response" id=\S+ index=0 output=Hello tokens=2 finish_reason=stop`, text)
			assert.Contains(t, text, "received request")
			assert.NotContains(t, loggedBy(t, path, b, func(*Options) {}), "generated response")
		}
	}
}

func TestLoggedTextsAreBounded(t *testing.T) {
	text := loggedBy(t, "/v1/completions", `{"prompt":"éáíó","max_tokens":4}`, func(o *Options) { o.LogRequests, o.LogOutputs, o.MaxLogLen = true, true, 2 })
	assert.Contains(t, text, "output=He ")
	assert.Contains(t, text, "text=éá ")
	assert.Contains(t, text, `token_ids="[233 225]"`)
	text = loggedBy(t, "/v1/completions", completion, func(o *Options) { o.LogRequests, o.LogOutputs, o.MaxLogLen = true, true, 0 })
	assert.Contains(t, text, `output="" `)
}

func TestErrorBodiesShowTextsAsTheyAre(t *testing.T) {
	h := newTestServer(t, &scripted{}, spelled{}, nil)
	w := post(t, h, "/v1/completions", `{"prompt":{"a":1}}`)
	assert.Equal(t, http.StatusBadRequest, w.Code)
	assert.Contains(t, w.Body.String(), "<dict of 1 items>")
}
