package openai

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/metrics/record"
	"omni-engine/stages"
)

// script is what one sequence of one prompt gives, update by update; after them, when open, nothing until the context ends.
type script struct {
	updates []stages.Update
	open    bool
	pause   chan struct{} // closed before the second update
}

// scripted is a replica that plays scripts in the order of submission.
type scripted struct {
	mu      sync.Mutex
	scripts []script
	got     []*request.Request
	ended   []chan struct{} // closed when a request's context ended
	refuse  error           // of CheckAdmission
	submit  error
	health  error
	load    stages.Load
	panics  bool
}

func (s *scripted) Submit(ctx context.Context, r *request.Request) (stages.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panics {
		panic("scripted panic")
	}
	if s.submit != nil {
		return nil, s.submit
	}
	if len(s.got) >= len(s.scripts) {
		return nil, errors.New("no script for this request")
	}
	c := *r
	ended := make(chan struct{})
	context.AfterFunc(ctx, func() { close(ended) })
	s.got, s.ended = append(s.got, &c), append(s.ended, ended)
	return &played{script: s.scripts[len(s.got)-1]}, nil
}

func (s *scripted) Extend(request.ID, request.Segment) error        { return nil }
func (s *scripted) Abort(request.FinishReason, ...request.ID) error { return nil }
func (s *scripted) CheckAdmission(*request.Request) error           { return s.refuse }
func (s *scripted) Load() stages.Load                               { return s.load }
func (s *scripted) Snapshot() record.Snapshot                       { return record.Snapshot{} }
func (s *scripted) Health() error                                   { return s.health }
func (s *scripted) Close(context.Context) error                     { return nil }

// requests are what was submitted.
func (s *scripted) requests() []*request.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

type played struct {
	script
	at int
}

func (p *played) Next(ctx context.Context) (stages.Update, error) {
	if p.at == 1 && p.pause != nil {
		select {
		case <-p.pause:
		case <-ctx.Done():
			return stages.Update{}, ctx.Err()
		}
	}
	if p.at < len(p.updates) {
		p.at++
		return p.updates[p.at-1], nil
	}
	if p.open {
		<-ctx.Done()
		return stages.Update{}, ctx.Err()
	}
	return stages.Update{}, io.EOF
}

// spelled is a tokenizer of words that the test gives; other texts are one token a character.
type spelled struct {
	encode func(text string) []int32
	texts  map[int32]string
}

func (s spelled) Encode(text string, _ bool) ([]int32, error) {
	if s.encode != nil {
		if ids := s.encode(text); ids != nil {
			return ids, nil
		}
	}
	var ids []int32
	for _, r := range text {
		ids = append(ids, int32(r)%49152)
	}
	return ids, nil
}

func (s spelled) Decode(ids []int32, _ bool) string {
	var b strings.Builder
	for _, id := range ids {
		if text, ok := s.texts[id]; ok {
			b.WriteString(text)
		} else {
			b.WriteRune(id)
		}
	}
	return b.String()
}

func (s spelled) TokenText(id int32) string { return s.Decode([]int32{id}, false) }
func (s spelled) MaxTokenChars() int        { return 16 }

// chatML is a template in the manner of the recorded model's.
const chatML = `{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}` +
	`{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// newTestServer serves the replica; change may be nil.
func newTestServer(t testing.TB, r *scripted, tok spelled, change func(*Options, *Model, *stages.Options)) http.Handler {
	t.Helper()
	chat, err := NewRenderer(chatML, map[string]string{"eos_token": "<|im_end|>"}, "auto")
	require.NoError(t, err)
	opt := Options{Version: "0.32.0", ResponseRole: "assistant", CORS: CORS{Origins: []string{"*"}, Methods: []string{"*"}, Headers: []string{"*"}}}
	m := &Model{Names: []string{"smollm2"}, Root: "somewhere", Tokenizer: tok, Chat: chat, EOS: []int32{2},
		Limits: Limits{MaxModelLen: 2048, VocabSize: 49152, MaxLogprobs: 20}}
	var so stages.Options
	if change != nil {
		change(&opt, m, &so)
	}
	o, err := stages.New(so, r)
	require.NoError(t, err)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "# metrics\n") })
	return New(opt, m, o, metrics, nil, slog.New(slog.DiscardHandler)).Handler()
}

func post(t testing.TB, h http.Handler, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// said is an update with text and as many tokens as given.
func said(text string, tokens ...int32) stages.Update {
	return stages.Update{Text: text, Output: request.Output{NewTokens: tokens, StopToken: -1}}
}

// last marks an update as the end.
func last(u stages.Update, why request.FinishReason) stages.Update {
	u.Output.Finish = why
	return u
}
