package record

import (
	"encoding/hex"
	"strings"
)

// TraceContext names a place in a distributed trace (W3C Trace Context). Its zero value is no context.
type TraceContext struct {
	TraceID [16]byte
	SpanID  [8]byte // the span under which further spans belong
	Sampled bool
	State   string // tracestate, as it came
}

// IsValid reports whether it names a span at all.
func (t TraceContext) IsValid() bool { return t.TraceID != [16]byte{} && t.SpanID != [8]byte{} }

// ID returns the trace id in hex, empty without a context.
func (t TraceContext) ID() string {
	if !t.IsValid() {
		return ""
	}
	return hex.EncodeToString(t.TraceID[:])
}

// Exemplar returns the trace id when the trace is recorded somewhere: an exemplar that leads nowhere helps nobody.
func (t TraceContext) Exemplar() string {
	if !t.Sampled {
		return ""
	}
	return t.ID()
}

// TraceParent writes the traceparent header, empty without a context.
func (t TraceContext) TraceParent() string {
	if !t.IsValid() {
		return ""
	}
	flags := "-00"
	if t.Sampled {
		flags = "-01"
	}
	return "00-" + hex.EncodeToString(t.TraceID[:]) + "-" + hex.EncodeToString(t.SpanID[:]) + flags
}

// ParseTraceParent reads a traceparent header (https://www.w3.org/TR/trace-context/); anything that is not one is no context.
// A later version than 00 may hold more fields, which are passed over.
func ParseTraceParent(header string) TraceContext {
	h := strings.Trim(header, " \t")
	if len(h) < 55 || h[2] != '-' || h[35] != '-' || h[52] != '-' || len(h) > 55 && h[55] != '-' {
		return TraceContext{}
	}
	var version, flags [1]byte
	var t TraceContext
	if !lowerHex(version[:], h[:2]) || version[0] == 0xff || version[0] == 0 && len(h) != 55 ||
		!lowerHex(t.TraceID[:], h[3:35]) || !lowerHex(t.SpanID[:], h[36:52]) || !lowerHex(flags[:], h[53:55]) || !t.IsValid() {
		return TraceContext{}
	}
	t.Sampled = flags[0]&1 != 0
	return t
}

// TraceFrom reads the headers traceparent and tracestate of a request. Several traceparents are none, and without one the
// tracestate says nothing.
func TraceFrom(parents, states []string) TraceContext {
	if len(parents) != 1 {
		return TraceContext{}
	}
	t := ParseTraceParent(parents[0])
	if t.IsValid() {
		t.State = strings.Join(states, ",")
	}
	return t
}

func lowerHex(dst []byte, s string) bool {
	if strings.ToLower(s) != s {
		return false
	}
	_, err := hex.Decode(dst, []byte(s))
	return err == nil
}
