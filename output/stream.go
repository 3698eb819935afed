package output

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"omni-engine/engine/request"
)

// Stream carries one request's updates to its reader. The writer never waits: what the reader has not taken yet grows into
// one [Update] (a segment's end and a payload keep their own), and a step wakes the reader at most once.
type Stream struct {
	interval int // tokens that must have gathered before the reader is woken (--stream-interval)

	mu      sync.Mutex
	pending []gathering
	ready   bool // something in pending may be read
	sent    bool // the first tokens were made readable
	closed  bool // the last update was put
	onEnd   func()
	wake    chan struct{}
}

// gathering is an Update that still grows.
type gathering struct {
	u    Update
	text strings.Builder
}

func newStream(interval int) *Stream {
	return &Stream{interval: max(interval, 1), wake: make(chan struct{}, 1)}
}

// Next blocks for the next update. After the last one it returns io.EOF; when ctx ends first, ctx's error.
func (s *Stream) Next(ctx context.Context) (Update, error) {
	for {
		if u, ok, end := s.take(); ok {
			return u, nil
		} else if end {
			return Update{}, io.EOF
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Update{}, ctx.Err()
		}
	}
}

// OnEnd sets what runs once the last update was put, at once if it was already. It must not call the stream.
func (s *Stream) OnEnd(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		f()
		return
	}
	s.onEnd = f
}

func (s *Stream) take() (u Update, ok, end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == 0 || !s.ready {
		return Update{}, false, s.closed && len(s.pending) == 0
	}
	g := &s.pending[0]
	u = g.u
	u.Text = g.text.String()
	s.pending = slices.Delete(s.pending, 0, 1)
	s.ready = len(s.pending) > 0
	return u, true, false
}

// put adds one step's update. Its slices may be reused by the caller afterwards; Logprobs' inner slices may not.
func (s *Stream) put(u *Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	n := len(s.pending)
	if n == 0 || s.pending[n-1].u.Output.Finish != request.NotFinished || s.pending[n-1].u.Output.Payload != nil {
		s.pending = append(s.pending, gathering{})
		n++
	}
	g := &s.pending[n-1]
	g.add(u)
	if s.closed = u.Done(); s.closed && s.onEnd != nil {
		s.onEnd()
	}
	ended := u.Output.Finish != request.NotFinished
	if ended || !s.sent || u.Output.Payload != nil || len(g.u.Output.NewTokens) >= s.interval {
		s.ready, s.sent = true, true
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

func (g *gathering) add(u *Update) {
	g.text.WriteString(u.Text)
	tokens, logprobs := g.u.Output.NewTokens, g.u.Logprobs
	prompt, prefill := g.u.PromptLogprobs, g.u.Output.Prefill
	cached := max(g.u.Output.NumCached, u.Output.NumCached)
	g.u = *u
	g.u.Output.NewTokens = append(tokens, u.Output.NewTokens...)
	g.u.Logprobs = append(logprobs, u.Logprobs...)
	g.u.PromptLogprobs = append(prompt, u.PromptLogprobs...)
	g.u.Output.NumCached = cached
	if g.u.Output.Prefill == nil {
		g.u.Output.Prefill = prefill
	} else {
		p := *g.u.Output.Prefill
		g.u.Output.Prefill = &p
	}
}
