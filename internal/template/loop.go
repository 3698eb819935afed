package template

// loopContext is the variable "loop".
type loopContext struct {
	it      iterator
	seq     Value // what is looped over, where its length is known without walking it; else nil
	index0  int
	depth0  int
	n       int // length, -1 while unknown
	before  Value
	current Value
	after   Value // read ahead; nil if not
	done    bool  // reading ahead found the end
	last    []Value
	called  bool // changed() was called before
	stmt    *forStmt
	outer   *scope
}

func (*loopContext) typeName() string { return "LoopContext" }

func (s *forStmt) exec(st *state, sc *scope) (flow, error) {
	st.line = s.line
	over, err := s.iter.eval(st, sc)
	if err != nil {
		return flowNext, err
	}
	if !s.recursive {
		return s.loop(st, sc, over, 0)
	}
	// A recursive loop is a function in jinja2: nothing breaks out of it.
	t, _, err := st.capture(func() (flow, error) { return s.loop(st, sc, over, 0) })
	if err != nil {
		return flowNext, err
	}
	return flowNext, st.write(t)
}

// loop runs the body for each item of over, or the else part when there is none.
func (s *forStmt) loop(st *state, sc *scope, over Value, depth int) (flow, error) {
	it, err := st.iter(over)
	if err != nil {
		return flowNext, err
	}
	lc := &loopContext{it: it, seq: over, index0: -1, n: -1, depth0: depth, stmt: s, outer: sc}
	if s.test != nil {
		lc.it, lc.seq = &loopFilter{s, sc, it, &scope{parent: sc}}, nil
	}
	inner := &scope{parent: sc}
	completed := false // jinja2 runs the else part unless some round came to its end: one that breaks or continues does not count
	for {
		item, ok, err := lc.advance(st)
		if err != nil {
			return flowNext, err
		}
		if !ok {
			break
		}
		if err := st.step(1); err != nil {
			return flowNext, err
		}
		inner.reset()
		inner.clear(s.unset)
		if err := s.to.assign(st, inner, item); err != nil {
			return flowNext, err
		}
		if s.usesLoop {
			inner.set(st, s.loopID, lc)
		}
		fl, err := st.run(s.body, inner)
		if err != nil {
			return flowNext, err
		}
		if fl == flowBreak {
			break
		}
		completed = completed || fl == flowNext
	}
	if !completed && s.other != nil {
		return st.run(s.other, enter(sc, s.otherUnset))
	}
	return flowNext, nil
}

// loopFilter gives the items that pass "for ... if test".
type loopFilter struct {
	s  *forStmt
	sc *scope
	it iterator
	in *scope
}

func (f *loopFilter) next(st *state) (Value, bool, error) {
	for {
		v, ok, err := f.it.next(st)
		if err != nil || !ok {
			return nil, false, err
		}
		f.in.reset()
		if err := f.s.to.assign(st, f.in, v); err != nil {
			return nil, false, err
		}
		t, err := f.s.test.eval(st, f.in)
		if err != nil {
			return nil, false, err
		}
		if ok, err := st.truth(t); err != nil {
			return nil, false, err
		} else if ok {
			return v, true, nil
		}
	}
}

func (l *loopContext) advance(st *state) (Value, bool, error) {
	v, ok, err := l.peek(st)
	if err != nil || !ok {
		return nil, false, err
	}
	l.after = nil
	l.index0++
	l.before, l.current = l.current, v
	return v, true, nil
}

// peek reads one item ahead.
func (l *loopContext) peek(st *state) (Value, bool, error) {
	if l.after != nil {
		return l.after, true, nil
	}
	if l.done {
		return nil, false, nil
	}
	v, ok, err := l.it.next(st)
	if err != nil {
		return nil, false, err
	}
	if !ok {
		l.done = true
		return nil, false, nil
	}
	l.after = v
	return v, true, nil
}

func (l *loopContext) length(st *state) (int, error) {
	if l.n >= 0 {
		return l.n, nil
	}
	if l.seq != nil {
		if n, ok := st.length(l.seq); ok {
			l.n = n
			return n, nil
		}
	}
	rest, err := st.drain(l.it)
	if err != nil {
		return 0, err
	}
	l.it = &sliceIter{items: rest}
	l.n = len(rest) + l.index0 + 1
	if l.after != nil {
		l.n++
	}
	return l.n, nil
}

// attr gives loop.name, nil if there is no such attribute.
func (l *loopContext) attr(st *state, name string) (Value, error) {
	switch name {
	case "index":
		return Int(l.index0 + 1), nil
	case "index0":
		return Int(l.index0), nil
	case "first":
		return Bool(l.index0 == 0), nil
	case "last":
		_, more, err := l.peek(st)
		return Bool(!more), err
	case "length":
		n, err := l.length(st)
		return Int(n), err
	case "revindex":
		n, err := l.length(st)
		return Int(n - l.index0), err
	case "revindex0":
		n, err := l.length(st)
		return Int(n - l.index0 - 1), err
	case "depth":
		return Int(l.depth0 + 1), nil
	case "depth0":
		return Int(l.depth0), nil
	case "previtem":
		if l.index0 == 0 {
			return undefinedHint("there is no previous item"), nil
		}
		return l.before, nil
	case "nextitem":
		v, more, err := l.peek(st)
		if err == nil && !more {
			return undefinedHint("there is no next item"), nil
		}
		return v, err
	case "cycle":
		return &function{"cycle", l.cycle}, nil
	case "changed":
		return &function{"changed", l.changed}, nil
	}
	return nil, nil
}

func (l *loopContext) cycle(_ *state, a *arguments) (Value, error) {
	if len(a.kw) > 0 {
		return nil, typeErrorf("cycle() takes no keyword arguments")
	}
	if len(a.pos) == 0 {
		return nil, typeErrorf("no items for cycling given")
	}
	return a.pos[l.index0%len(a.pos)], nil
}

func (l *loopContext) changed(st *state, a *arguments) (Value, error) {
	if len(a.kw) > 0 {
		return nil, typeErrorf("changed() takes no keyword arguments")
	}
	if l.called {
		same, err := st.equal(&tuple{items: l.last}, &tuple{items: a.pos})
		if err != nil || same {
			return Bool(false), err
		}
	}
	l.called, l.last = true, a.pos
	return Bool(true), nil
}

// recurse is loop(items) in a recursive loop.
func (l *loopContext) recurse(st *state, a *arguments) (Value, error) {
	if !l.stmt.recursive {
		return nil, typeErrorf("The loop must have the 'recursive' marker to be called recursively.")
	}
	p, err := a.bind("loop", 1, "iterable")
	if err != nil {
		return nil, err
	}
	if err := st.enter(); err != nil {
		return nil, err
	}
	defer st.leave()
	t, _, err := st.capture(func() (flow, error) { return l.stmt.loop(st, l.outer, p[0], l.depth0+1) })
	return String(t), err
}
