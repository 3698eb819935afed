package engine

import (
	"sync"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// kind says what a message asks.
type kind uint8

const (
	submit kind = iota
	extend
	deliver
	abort
	drain
	control
	quit
)

// message is what reaches the core goroutine.
type message struct {
	kind    kind
	at      clock.Time // when it was put in
	id      request.ID
	req     *request.Request
	segment request.Segment
	payload request.Payload
	why     request.FinishReason
	ids     []request.ID
	empty   chan struct{}
	do      func() // control: runs on the core goroutine
}

// inbox holds messages until the core goroutine takes them all, between two steps. Senders never wait.
type inbox struct {
	mu      sync.Mutex
	full    []message
	spare   []message
	waiting int // requests among full
	closed  bool
	wake    chan struct{}
}

// put adds a message; false after close.
func (b *inbox) put(m message) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	b.full = append(b.full, m)
	if m.kind == submit {
		b.waiting++
	}
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns all messages; they are valid until the next take.
func (b *inbox) take() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	got := b.full
	clear(b.spare[:cap(b.spare)])
	b.full, b.spare = b.spare[:0], got
	b.waiting = 0
	return got
}

// aborts adds the waiting abort messages to dst.
func (b *inbox) aborts(dst []message) []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.full {
		if b.full[i].kind == abort {
			dst = append(dst, b.full[i])
		}
	}
	return dst
}

// close refuses further messages and returns those that nobody took.
func (b *inbox) close() []message {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	got := b.full
	b.full = nil
	return got
}

func (b *inbox) submits() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}
