package template

import "fmt"

// ErrorKind names the Python exception that jinja2 would have raised.
type ErrorKind string

// The kinds of errors that rendering gives.
const (
	TypeError       ErrorKind = "TypeError"
	ValueError      ErrorKind = "ValueError"
	UndefinedError  ErrorKind = "UndefinedError"
	SecurityError   ErrorKind = "SecurityError"
	RuntimeError    ErrorKind = "TemplateRuntimeError"
	RecursionError  ErrorKind = "RecursionError"
	OverflowError   ErrorKind = "OverflowError"
	IndexError      ErrorKind = "IndexError"
	KeyError        ErrorKind = "KeyError"
	ZeroDivision    ErrorKind = "ZeroDivisionError"
	ArgumentError   ErrorKind = "FilterArgumentError"
	UnsupportedKind ErrorKind = "Unsupported"
)

// Error is a failure while rendering: an operation that Python or jinja2 refuses too (or, with kind Unsupported, one that only this
// interpreter refuses). Message is worded as Python words it; an API shows it to the client.
type Error struct {
	Kind    ErrorKind
	Message string
	Line    int // of the statement, from 1; 0 when unknown
}

func (e *Error) Error() string {
	if e.Line > 0 {
		return fmt.Sprintf("%s: %s (template line %d)", e.Kind, e.Message, e.Line)
	}
	return fmt.Sprintf("%s: %s", e.Kind, e.Message)
}

// RaisedError is the template's own refusal: it called raise_exception(Message). The API returns Message to the client, as vLLM does.
type RaisedError struct {
	Message string
	Line    int
}

func (e *RaisedError) Error() string { return e.Message }

// SyntaxError is a template that does not parse, or names a filter or test that does not exist.
type SyntaxError struct {
	Message string
	Line    int
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("template syntax error: %s (line %d)", e.Message, e.Line)
}

// LimitError says which of the Limits a rendering ran into.
type LimitError struct {
	What string
	Line int
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("rendering the template exceeded the limit on %s", e.What)
}

// ContinueFinalError says that continue_final_message cannot be honoured; Message is worded as transformers words it.
type ContinueFinalError struct{ Message string }

func (e *ContinueFinalError) Error() string { return e.Message }

func errorf(kind ErrorKind, format string, args ...any) error {
	return &Error{Kind: kind, Message: fmt.Sprintf(format, args...)}
}

func typeErrorf(format string, args ...any) error { return errorf(TypeError, format, args...) }
