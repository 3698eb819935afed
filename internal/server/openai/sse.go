package openai

import (
	"net/http"
	"sync"
	"time"
)

// events writes server-sent events, each flushed when it is written. Keep-alive comments go between them.
type events struct {
	w    http.ResponseWriter
	ctl  *http.ResponseController
	mu   sync.Mutex // keep-alive comments come from another goroutine
	buf  []byte
	stop func()
}

func newEvents(w http.ResponseWriter, keepAlive time.Duration) *events {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &events{w: w, ctl: http.NewResponseController(w), stop: func() {}}
	if keepAlive > 0 {
		e.stop = every(keepAlive, e.comment)
	}
	return e
}

// every calls f regularly until stop, or until f fails.
func every(interval time.Duration, f func() error) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				if f() != nil {
					return
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

// send writes one data event.
func (e *events) send(v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	return e.raw(b)
}

func (e *events) raw(data []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buf = append(e.buf[:0], "data: "...)
	e.buf = append(e.buf, data...)
	e.buf = append(e.buf, "\n\n"...)
	return e.flush()
}

func (e *events) flush() error {
	if _, err := e.w.Write(e.buf); err != nil {
		return err
	}
	return e.ctl.Flush()
}

// comment keeps an idle connection open.
func (e *events) comment() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buf = append(e.buf[:0], ": keep-alive\n\n"...)
	return e.flush()
}

// end closes the stream, after an error event when there was one.
func (e *events) end(err error) {
	e.stop()
	if err != nil {
		if e.raw(asAPI(err).body()) != nil {
			return
		}
	}
	_ = e.raw([]byte("[DONE]"))
}
