// Package tracefile writes what a core does as a Chrome trace, the JSON form that ui.perfetto.dev and chrome://tracing open: one track a
// request with its ledger states as slices, counters for the step's budget and the KV cache, instants for preemptions.
package tracefile

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
)

// The processes (groups of tracks) of a trace.
const (
	pidRequests = 1
	pidSteps    = 2
)

// Step is one executed step.
type Step struct {
	Seq              uint64
	Start, End       clock.Time
	Rows, Tokens     int
	MaxTokens        int // the budget
	Running, Waiting int
	KVUsage          float64 // 0 to 1
	Preempted        []request.ID
	Explain          string // the decision in one line; empty leaves it out
}

// Writer writes one trace file. It keeps only the open slice of each live request; past its limit it writes nothing more but the end. It is
// not safe for concurrent use: the core goroutine owns it.
type Writer struct {
	w       *bufio.Writer
	closer  io.Closer
	pair    clock.Pair
	left    int64 // bytes until the limit
	first   bool
	dropped uint64
	err     error
	buf     []byte
	open    map[request.ID]*track
	tracks  int
}

// track is a request's open slice.
type track struct {
	tid   int
	state request.State
	since clock.Time
}

// DefaultLimit bounds a trace file: viewers load about this much.
const DefaultLimit = 1 << 30

// New starts a trace. pair maps the core's clock to wall time; limit is the size in bytes, 0 for DefaultLimit. If w is an io.Closer, Close
// closes it.
func New(w io.Writer, name string, pair clock.Pair, limit int64) *Writer {
	if limit <= 0 {
		limit = DefaultLimit
	}
	t := &Writer{w: bufio.NewWriterSize(w, 1<<16), pair: pair, left: limit, first: true, open: make(map[request.ID]*track)}
	t.closer, _ = w.(io.Closer)
	t.raw([]byte(`{"displayTimeUnit":"ms","traceEvents":[`))
	t.meta("process_name", pidRequests, 0, name+" requests")
	t.meta("process_name", pidSteps, 0, name+" steps")
	t.meta("thread_name", pidSteps, 1, "steps")
	return t
}

// Output takes the ledger changes and events of an output in.
func (t *Writer) Output(o *request.Output) {
	for _, c := range o.Changes {
		t.Change(o.ID, c)
	}
	for _, e := range o.Events {
		if e.Type == request.Preempted {
			t.instant(o.ID, "PREEMPTED", e.At)
		}
	}
	if o.Finish != request.NotFinished && !o.Segment {
		delete(t.open, o.ID)
	}
}

// Change ends a request's open slice and begins the next one.
func (t *Writer) Change(id request.ID, c request.StateChange) {
	tr := t.track(id)
	if tr.state != request.StateNone {
		t.slice(pidRequests, tr.tid, tr.state.String(), tr.since, c.At, nil)
	}
	tr.state, tr.since = c.To, c.At
	if c.To == request.StateNone {
		delete(t.open, id)
	}
}

func (t *Writer) track(id request.ID) *track {
	tr := t.open[id]
	if tr == nil {
		t.tracks++
		tr = &track{tid: t.tracks}
		t.open[id] = tr
		t.meta("thread_name", pidRequests, tr.tid, string(id))
	}
	return tr
}

// Step writes a step's slice and counters.
func (t *Writer) Step(s *Step) {
	t.slice(pidSteps, 1, "step "+strconv.FormatUint(s.Seq, 10), s.Start, s.End, func(b []byte) []byte {
		b = append(b, `,"args":{"rows":`...)
		b = strconv.AppendInt(b, int64(s.Rows), 10)
		b = append(b, `,"tokens":`...)
		b = strconv.AppendInt(b, int64(s.Tokens), 10)
		if s.Explain != "" {
			b = append(b, `,"decision":`...)
			b = appendString(b, s.Explain)
		}
		return append(b, '}')
	})
	t.counter("scheduled tokens", s.Start, "used", float64(s.Tokens), "left", float64(max(0, s.MaxTokens-s.Tokens)))
	t.counter("KV cache usage %", s.Start, "used", 100*s.KVUsage, "", 0)
	t.counter("requests", s.Start, "running", float64(s.Running), "waiting", float64(s.Waiting))
}

func (t *Writer) slice(pid, tid int, name string, from, to clock.Time, args func([]byte) []byte) {
	d, ok := to.Sub(from).Get()
	if !ok || d < 0 {
		return
	}
	b := t.begin('X', pid, tid, from)
	b = append(b, `,"dur":`...)
	b = appendMicros(b, int64(d))
	b = append(b, `,"name":`...)
	b = appendString(b, name)
	if args != nil {
		b = args(b)
	}
	t.event(append(b, '}'))
}

func (t *Writer) instant(id request.ID, name string, at clock.Time) {
	if !at.IsSet() {
		return
	}
	b := t.begin('i', pidRequests, t.track(id).tid, at)
	b = append(b, `,"s":"t","name":`...)
	t.event(append(appendString(b, name), '}'))
}

func (t *Writer) counter(name string, at clock.Time, k1 string, v1 float64, k2 string, v2 float64) {
	if !at.IsSet() {
		return
	}
	b := t.begin('C', pidSteps, 0, at)
	b = append(b, `,"name":`...)
	b = appendString(b, name)
	b = append(b, `,"args":{`...)
	b = appendString(b, k1)
	b = append(b, ':')
	b = strconv.AppendFloat(b, v1, 'g', 6, 64)
	if k2 != "" {
		b = append(b, ',')
		b = appendString(b, k2)
		b = append(b, ':')
		b = strconv.AppendFloat(b, v2, 'g', 6, 64)
	}
	t.event(append(b, "}}"...))
}

func (t *Writer) meta(kind string, pid, tid int, name string) {
	b := append(t.buf[:0], `{"ph":"M","pid":`...)
	b = strconv.AppendInt(b, int64(pid), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendInt(b, int64(tid), 10)
	b = append(b, `,"name":"`...)
	b = append(b, kind...)
	b = append(b, `","args":{"name":`...)
	t.event(append(appendString(b, name), "}}"...))
}

// begin starts an event at a core time, written as wall-clock microseconds.
func (t *Writer) begin(phase byte, pid, tid int, at clock.Time) []byte {
	b := append(t.buf[:0], `{"ph":"`...)
	b = append(b, phase)
	b = append(b, `","pid":`...)
	b = strconv.AppendInt(b, int64(pid), 10)
	b = append(b, `,"tid":`...)
	b = strconv.AppendInt(b, int64(tid), 10)
	b = append(b, `,"ts":`...)
	ns := at.Nanos()
	if w := t.pair.Map(at); w.IsSet() {
		ns = w.Time().UnixNano()
	}
	return appendMicros(b, ns)
}

// event writes one event, or counts it as dropped when the file is full.
func (t *Writer) event(b []byte) {
	t.buf = b
	if t.left < int64(len(b))+2 {
		t.dropped++
		t.left = 0
		return
	}
	t.left -= int64(len(b)) + 2
	if !t.first {
		t.raw([]byte(",\n"))
	}
	t.first = false
	t.raw(b)
}

func (t *Writer) raw(b []byte) {
	if t.err == nil {
		_, t.err = t.w.Write(b)
	}
}

// Dropped counts the events left out because the file reached its limit.
func (t *Writer) Dropped() uint64 { return t.dropped }

// Flush writes what is buffered.
func (t *Writer) Flush() error {
	if t.err == nil {
		t.err = t.w.Flush()
	}
	if t.err != nil {
		return fmt.Errorf("writing trace file: %w", t.err)
	}
	return nil
}

// Close ends open slices at now, completes the JSON and closes the file. A trace that was not closed is still opened by the viewers.
func (t *Writer) Close(now clock.Time) error {
	for _, tr := range t.open {
		if tr.state != request.StateNone {
			t.slice(pidRequests, tr.tid, tr.state.String(), tr.since, now, nil)
		}
	}
	clear(t.open)
	t.raw([]byte(`],"otherData":{"dropped_events":"` + strconv.FormatUint(t.dropped, 10) + `"}}` + "\n"))
	err := t.Flush()
	if t.closer != nil {
		if cerr := t.closer.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("closing trace file: %w", cerr)
		}
	}
	return err
}

// appendMicros writes nanoseconds as microseconds with three decimals.
func appendMicros(b []byte, ns int64) []byte {
	if ns < 0 {
		b = append(b, '-')
		ns = -ns
	}
	b = strconv.AppendInt(b, ns/1000, 10)
	r := ns % 1000
	return append(b, '.', byte('0'+r/100), byte('0'+r/10%10), byte('0'+r%10))
}

const hexDigits = "0123456789abcdef"

// appendString writes a JSON string. Ids come from users: what is not printable ASCII is escaped, what is no UTF-8 replaced.
func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r >= 0x20 && r < 0x7f:
			b = append(b, byte(r))
		case r > 0xffff:
			r -= 0x10000
			b = appendEscape(appendEscape(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = appendEscape(b, r)
		}
	}
	return append(b, '"')
}

func appendEscape(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
