package record

import (
	"math"
	"strconv"

	"omni-engine/internal/clock"
)

// Kind is the kind of a [Value].
type Kind uint8

// The kinds. Absent is the zero value: JSON null.
const (
	Absent Kind = iota
	Int
	Float
	Text
	List
)

// Value is one cell of a row: maybe a number, a text or a list of numbers. Its zero value is absent.
type Value struct {
	Kind Kind
	num  float64
	text string
	list []float64
}

// IntValue returns a count.
func IntValue(n int) Value { return Value{Kind: Int, num: float64(n)} }

// FloatValue returns a number.
func FloatValue(f float64) Value { return Value{Kind: Float, num: f} }

// TextValue returns a text; the empty text is absent.
func TextValue(s string) Value {
	if s == "" {
		return Value{}
	}
	return Value{Kind: Text, text: s}
}

// ListValue returns a list of numbers, present when empty.
func ListValue(l []float64) Value { return Value{Kind: List, list: l} }

// Millis returns a span in milliseconds, absent when the span is.
func Millis(s clock.Span) Value {
	if ms, ok := s.Milliseconds(); ok {
		return FloatValue(ms)
	}
	return Value{}
}

// IsSet reports whether the value is present; a 0 is.
func (v Value) IsSet() bool { return v.Kind != Absent }

// Number returns a count or number, 0 for anything else.
func (v Value) Number() float64 { return v.num }

// Int returns a count, or the number cut to one.
func (v Value) Int() int { return int(v.num) }

// Text returns the text, "" for anything else.
func (v Value) Text() string { return v.text }

// List returns the list; it is the value's own.
func (v Value) List() []float64 { return v.list }

// Mean returns the mean of a list, 0 for an empty one.
func (v Value) Mean() float64 {
	if len(v.list) == 0 {
		return 0
	}
	sum := 0.0
	for _, f := range v.list {
		sum += f
	}
	return sum / float64(len(v.list))
}

// orZero gives an absent number the 0 that vLLM-Omni's existing keys have.
func (v Value) orZero() Value {
	if v.Kind == Absent {
		return FloatValue(0)
	}
	return v
}

// AppendJSON appends the value; absent and not finite numbers are null.
func (v Value) AppendJSON(dst []byte) []byte {
	switch v.Kind {
	case Int:
		return strconv.AppendInt(dst, int64(v.num), 10)
	case Float:
		return appendNumber(dst, v.num)
	case Text:
		return appendString(dst, v.text)
	case List:
		dst = append(dst, '[')
		for i, f := range v.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendNumber(dst, f)
		}
		return append(dst, ']')
	}
	return append(dst, "null"...)
}

func appendNumber(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}
