package template

// symbols finds the variables that a scope starts without: jinja2 decides when it compiles whether a name that a scope assigns is first
// taken from outside. A name that the scope assigns unconditionally before it reads it, and that no enclosing scope mentions, is
// undefined until then, even for macros and loops inside the scope and even if the caller gave a variable of that name.
type symbols struct {
	parent *symbols
	refs   map[string]bool // names that the scope reads or assigns
	stores map[string]bool
	unset  map[string]int // names to start without, with their ids
}

func newSymbols(parent *symbols) *symbols {
	return &symbols{parent, map[string]bool{}, map[string]bool{}, map[string]int{}}
}

func (s *symbols) known(name string) bool {
	for ; s != nil; s = s.parent {
		if s.refs[name] {
			return true
		}
	}
	return false
}

func (s *symbols) load(name string) {
	if !s.known(name) {
		s.refs[name] = true
	}
}

func (s *symbols) store(name string, id int) {
	s.stores[name] = true
	if s.refs[name] {
		return
	}
	if !s.known(name) {
		s.unset[name] = id
	}
	s.refs[name] = true
}

// parameter declares a name that the scope is entered with.
func (s *symbols) parameter(name string) {
	s.stores[name], s.refs[name] = true, true
	delete(s.unset, name)
}

func (s *symbols) parameters(t target) {
	switch t := t.(type) {
	case *nameTarget:
		s.parameter(t.name)
	case *tupleTarget:
		for _, it := range t.items {
			s.parameters(it)
		}
	}
}

// ids lists the names to start without.
func (s *symbols) ids() []int {
	var out []int
	for _, id := range s.unset {
		out = append(out, id)
	}
	return out
}

// visit goes over what belongs to the scope itself, in the order in which jinja2 does.
func (s *symbols) visit(n node) {
	switch n := n.(type) {
	case *nameExpr:
		s.load(n.name)
	case *nameTarget:
		s.store(n.name, n.id)
	case *attrTarget:
		s.load(n.name)
	case *setStmt:
		s.visit(n.val)
		s.visit(n.to)
	case *setBlockStmt:
		s.visit(n.to)
	case *ifStmt:
		s.branches(n)
	case *forStmt:
		s.visit(n.iter)
	case *macroStmt:
		s.visit(&n.to)
	case *callStmt:
		s.visit(n.call)
	case *filterStmt:
		s.visit(n.filter)
	case *withStmt:
		s.all(exprNodes(n.vals...))
	case *blockStmt, *generationStmt:
	default:
		s.all(n.children())
	}
}

func (s *symbols) all(ns []node) {
	for _, n := range ns {
		s.visit(n)
	}
}

// branches goes over an if: each branch starts from what was known before it, and a name that only branches assign is taken from
// outside until then.
func (s *symbols) branches(n *ifStmt) {
	s.visit(n.test)
	parts := []*symbols{s.branch(func(b *symbols) { b.all(stmtNodes(nil, n.body)) })}
	parts = append(parts, s.branch(func(b *symbols) {
		for _, e := range n.elifs {
			b.branches(&ifStmt{test: e.test, body: e.body})
		}
	}), s.branch(func(b *symbols) { b.all(stmtNodes(nil, n.other)) }))
	before := s.stores
	s.stores = map[string]bool{}
	for _, b := range append(parts, &symbols{stores: before}) {
		for name := range b.refs {
			s.refs[name] = true
		}
		for name := range b.stores {
			s.stores[name] = true
		}
	}
	for name := range s.stores {
		if !before[name] {
			delete(s.unset, name)
		}
	}
}

func (s *symbols) branch(f func(*symbols)) *symbols {
	b := newSymbols(s.parent)
	for name := range s.refs {
		b.refs[name] = true
	}
	for name := range s.stores {
		b.stores[name] = true
	}
	f(b)
	return b
}

// scopes resolves the scopes inside a body whose own symbols are s.
func (s *symbols) scopes(body []stmt) {
	for _, n := range body {
		switch n := n.(type) {
		case *ifStmt:
			s.scopes(n.body)
			for _, e := range n.elifs {
				s.scopes(e.body)
			}
			s.scopes(n.other)
		case *forStmt:
			inner := newSymbols(s)
			inner.parameters(n.to)
			if n.usesLoop {
				inner.parameter("loop")
			}
			n.unset = inner.body(n.body)
			n.otherUnset = newSymbols(s).body(n.other)
		case *macroStmt:
			n.def.unset = newSymbols(s).macro(n.def)
		case *callStmt:
			n.def.unset = newSymbols(s).macro(n.def)
		case *setBlockStmt:
			n.unset = newSymbols(s).body(n.body)
		case *filterStmt:
			n.unset = newSymbols(s).body(n.body)
		case *generationStmt:
			n.unset = newSymbols(s).body(n.body)
		case *blockStmt:
			n.unset = newSymbols(nil).body(n.body)
		case *withStmt:
			inner := newSymbols(s)
			for _, t := range n.to {
				inner.parameters(t)
			}
			n.unset = inner.body(n.body)
		}
	}
}

// body resolves a scope with its inner ones.
func (s *symbols) body(body []stmt) []int {
	s.all(stmtNodes(nil, body))
	s.scopes(body)
	return s.ids()
}

func (s *symbols) macro(d *macroDef) []int {
	for _, p := range d.params {
		s.parameter(p.name)
	}
	s.all(exprNodes(d.defaults...))
	s.all(stmtNodes(nil, d.body))
	for name, used := range map[string]bool{"caller": d.usesCaller, "kwargs": d.usesKw, "varargs": d.usesVar} {
		if used {
			s.parameter(name)
		}
	}
	s.scopes(d.body)
	return s.ids()
}
