// Package template renders chat templates: Jinja2 as transformers configures it (immutable sandbox, trim_blocks, lstrip_blocks, loop
// controls, {% generation %}, its own tojson, raise_exception and strftime_now), with Python's ideas of text, numbers and errors.
// Templates are not trusted: they see only the values they are given, cannot change them, and run under Limits.
//
// Refused, with an error that says so: include, import and extends (there are no other templates), autoescape, the filters pprint,
// random, urlize and wordwrap, lipsum, and str's encode, maketrans and translate.
package template

import (
	"context"
	"errors"
	"time"
)

// Template is a parsed template. It holds no rendering state: many renderings may run at once.
type Template struct {
	body   []stmt
	names  []string // variable names by id
	unset  []int    // variables that the template assigns before it reads them
	ids    map[string]int
	blocks map[string]*blockStmt
	source string
	now    func() time.Time
}

// Option changes how a template is set up.
type Option func(*Template)

// WithClock sets the clock that strftime_now reads; without it, the wall clock in local time.
func WithClock(now func() time.Time) Option { return func(t *Template) { t.now = now } }

// Parse reads a template. Errors are *SyntaxError.
func Parse(src string, opts ...Option) (*Template, error) {
	if len(src) > maxSource {
		return nil, &SyntaxError{Message: "template too large", Line: 1}
	}
	toks, err := tokenize(src)
	if err != nil {
		return nil, err
	}
	p := &parser{toks: toks, ids: map[string]int{}, blocks: map[string]*blockStmt{}}
	body, err := p.body()
	if err != nil {
		return nil, err
	}
	if len(p.unknown) > 0 {
		return nil, p.unknown[0]
	}
	t := &Template{body: body, names: p.names, ids: p.ids, blocks: p.blocks, source: src, now: time.Now}
	t.unset = newSymbols(nil).body(body)
	for _, o := range opts {
		o(t)
	}
	return t, nil
}

// Source gives the text that the template was parsed from.
func (t *Template) Source() string { return t.source }

// Render runs the template over vars; nothing in vars is changed. Errors are *RaisedError (the template refused its input),
// *Error (an operation failed), *LimitError, or wrap the cause of ctx's end.
func (t *Template) Render(ctx context.Context, vars *Dict, limits Limits) (string, error) {
	st := &state{ctx: ctx, tmpl: t, lim: limits.withDefaults(), root: make([]Value, len(t.names))}
	for id, name := range t.names {
		if v, ok := vars.Get(name); ok {
			st.root[id] = v
		} else if g := t.global(name); g != nil {
			st.root[id] = g
		}
	}
	for _, id := range t.unset {
		st.root[id] = nil
	}
	if err := context.Cause(ctx); err != nil {
		return "", err
	}
	if _, err := st.run(t.body, nil); err != nil {
		return "", st.locate(err)
	}
	return string(st.buf), nil
}

// locate puts the line of the running statement into err.
func (st *state) locate(err error) error {
	var e *Error
	var r *RaisedError
	var l *LimitError
	switch {
	case errors.As(err, &e) && e.Line == 0:
		e.Line = st.line
	case errors.As(err, &r) && r.Line == 0:
		r.Line = st.line
	case errors.As(err, &l) && l.Line == 0:
		l.Line = st.line
	}
	return err
}
