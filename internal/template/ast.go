package template

// An expr is evaluated to a value.
type expr interface {
	eval(st *state, sc *scope) (Value, error)
	// children gives the nodes directly beneath, for the analyses of a whole template.
	children() []node
}

// A stmt writes to the output, or changes a scope.
type stmt interface {
	exec(st *state, sc *scope) (flow, error)
	children() []node
}

// node is an expr, a stmt or a target.
type node interface{ children() []node }

// A target is what an assignment or a loop binds: a name, a namespace's attribute, or a tuple of targets.
type target interface {
	assign(st *state, sc *scope, v Value) error
	children() []node
}

// flow says how a statement ended.
type flow uint8

const (
	flowNext flow = iota
	flowBreak
	flowContinue
)

type (
	nameExpr struct {
		name string
		id   int
	}
	constExpr struct{ v Value }
	tupleExpr struct{ items []expr }
	listExpr  struct{ items []expr }
	dictExpr  struct{ keys, vals []expr }
	attrExpr  struct {
		obj  expr
		name string
	}
	itemExpr  struct{ obj, key expr }
	sliceExpr struct{ obj, start, stop, step expr } // nil where left out
	callArgs  struct {
		pos        []expr
		names      []string
		kw         []expr
		star, dstr expr // *args, **kwargs
	}
	callExpr struct {
		fn   expr
		args callArgs
	}
	filterExpr struct {
		in   expr // nil in {% filter %} and {% set x | f %}: the captured text comes as a constExpr
		name string
		fn   filterFunc // nil: no such filter, found out when it runs
		args callArgs
	}
	testExpr struct {
		in   expr
		name string
		fn   testFunc
		args callArgs
	}
	unaryExpr struct {
		op unaryOp
		x  expr
	}
	binaryExpr struct {
		op   binaryOp
		l, r expr
	}
	andExpr     struct{ l, r expr }
	orExpr      struct{ l, r expr }
	concatExpr  struct{ parts []expr }
	compareExpr struct {
		first expr
		ops   []compareOp
		rest  []expr
	}
	condExpr struct {
		test, then, other expr // other may be nil
		line              int
	}
)

type (
	nameTarget struct {
		name string
		id   int
	}
	attrTarget struct {
		name string
		id   int
		attr string
	}
	tupleTarget struct{ items []target }
)

type (
	dataStmt   struct{ text string }
	outputStmt struct {
		exprs []expr
		line  int
	}
	setStmt struct {
		to   target
		val  expr
		line int
	}
	setBlockStmt struct {
		to     target
		filter *filterExpr // outermost; nil without filters
		body   []stmt
		unset  []int // the variables that the body starts without; see symbols
		line   int
	}
	ifStmt struct {
		test  expr
		body  []stmt
		elifs []ifBranch
		other []stmt
		line  int
	}
	ifBranch struct {
		test expr
		body []stmt
		line int
	}
	forStmt struct {
		to                target
		iter              expr
		test              expr // nil without "if"
		body              []stmt
		other             []stmt
		recursive         bool
		usesLoop          bool
		unset, otherUnset []int
		loopID            int
		line              int
	}
	macroStmt struct {
		def  *macroDef
		to   nameTarget
		line int
	}
	callStmt struct {
		def  *macroDef // the body, as an anonymous macro
		call *callExpr
		line int
	}
	filterStmt struct {
		filter *filterExpr
		body   []stmt
		unset  []int
		line   int
	}
	withStmt struct {
		to    []target
		vals  []expr
		body  []stmt
		unset []int
		line  int
	}
	blockStmt struct {
		name   string
		scoped bool
		body   []stmt
		unset  []int
		line   int
	}
	// generationStmt is transformers' {% generation %}: its body is a scope of its own.
	generationStmt struct {
		body  []stmt
		unset []int
	}
	jumpStmt struct{ how flow }
	// refusedStmt stands for a tag that needs other templates; it fails where it runs, as jinja2 without a loader does.
	refusedStmt struct {
		what string
		line int
	}
)

// macroDef is what a macro, or the body of a call block, was written as.
type macroDef struct {
	name                          string
	params                        []nameTarget
	defaults                      []expr // of the last len(defaults) params
	body                          []stmt
	usesCaller, usesKw, usesVar   bool  // the body reads caller, kwargs, varargs
	callerParam                   bool  // caller is written as a parameter
	unset                         []int // the variables that the body starts without; see symbols
	callerID, kwargsID, varargsID int
}

func exprNodes(es ...expr) []node {
	ns := make([]node, 0, len(es))
	for _, e := range es {
		if e != nil {
			ns = append(ns, e)
		}
	}
	return ns
}

func stmtNodes(ns []node, lists ...[]stmt) []node {
	for _, l := range lists {
		for _, s := range l {
			ns = append(ns, s)
		}
	}
	return ns
}

func (a *callArgs) nodes() []node {
	ns := append(exprNodes(a.pos...), exprNodes(a.kw...)...)
	return append(ns, exprNodes(a.star, a.dstr)...)
}

func (*nameExpr) children() []node    { return nil }
func (*constExpr) children() []node   { return nil }
func (e *tupleExpr) children() []node { return exprNodes(e.items...) }
func (e *listExpr) children() []node  { return exprNodes(e.items...) }
func (e *dictExpr) children() []node {
	return append(exprNodes(e.keys...), exprNodes(e.vals...)...)
}
func (e *attrExpr) children() []node    { return exprNodes(e.obj) }
func (e *itemExpr) children() []node    { return exprNodes(e.obj, e.key) }
func (e *sliceExpr) children() []node   { return exprNodes(e.obj, e.start, e.stop, e.step) }
func (e *callExpr) children() []node    { return append(exprNodes(e.fn), e.args.nodes()...) }
func (e *filterExpr) children() []node  { return append(exprNodes(e.in), e.args.nodes()...) }
func (e *testExpr) children() []node    { return append(exprNodes(e.in), e.args.nodes()...) }
func (e *unaryExpr) children() []node   { return exprNodes(e.x) }
func (e *binaryExpr) children() []node  { return exprNodes(e.l, e.r) }
func (e *andExpr) children() []node     { return exprNodes(e.l, e.r) }
func (e *orExpr) children() []node      { return exprNodes(e.l, e.r) }
func (e *concatExpr) children() []node  { return exprNodes(e.parts...) }
func (e *compareExpr) children() []node { return append(exprNodes(e.first), exprNodes(e.rest...)...) }
func (e *condExpr) children() []node    { return exprNodes(e.test, e.then, e.other) }

func (*nameTarget) children() []node { return nil }
func (*attrTarget) children() []node { return nil }
func (t *tupleTarget) children() []node {
	ns := make([]node, len(t.items))
	for i, it := range t.items {
		ns[i] = it
	}
	return ns
}

func (*dataStmt) children() []node     { return nil }
func (s *outputStmt) children() []node { return exprNodes(s.exprs...) }
func (s *setStmt) children() []node    { return []node{s.to, s.val} }
func (s *setBlockStmt) children() []node {
	ns := []node{s.to}
	if s.filter != nil {
		ns = append(ns, s.filter)
	}
	return stmtNodes(ns, s.body)
}
func (s *ifStmt) children() []node {
	ns := stmtNodes([]node{s.test}, s.body)
	for _, b := range s.elifs {
		ns = stmtNodes(append(ns, b.test), b.body)
	}
	return stmtNodes(ns, s.other)
}
func (s *forStmt) children() []node {
	return stmtNodes(append([]node{s.to}, exprNodes(s.iter, s.test)...), s.body, s.other)
}
func (s *macroStmt) children() []node { return append([]node{&s.to}, s.def.nodes()...) }
func (s *callStmt) children() []node  { return append([]node{s.call}, s.def.nodes()...) }
func (s *filterStmt) children() []node {
	return stmtNodes([]node{s.filter}, s.body)
}
func (s *withStmt) children() []node {
	ns := make([]node, 0, len(s.to)+len(s.vals)+len(s.body))
	for _, t := range s.to {
		ns = append(ns, t)
	}
	return stmtNodes(append(ns, exprNodes(s.vals...)...), s.body)
}
func (s *blockStmt) children() []node      { return stmtNodes(nil, s.body) }
func (s *generationStmt) children() []node { return stmtNodes(nil, s.body) }
func (*jumpStmt) children() []node         { return nil }
func (*refusedStmt) children() []node      { return nil }

func (d *macroDef) nodes() []node {
	ns := make([]node, 0, len(d.params)+len(d.defaults)+len(d.body))
	for i := range d.params {
		ns = append(ns, &d.params[i])
	}
	return stmtNodes(append(ns, exprNodes(d.defaults...)...), d.body)
}

// visit calls f for every node beneath ns, in the order of the source, outer before inner.
func visit(ns []node, f func(node)) {
	for _, n := range ns {
		f(n)
		visit(n.children(), f)
	}
}

// reads tells whether a body loads the variable.
func reads(body []stmt, name string) bool {
	found := false
	visit(stmtNodes(nil, body), func(n node) {
		if v, ok := n.(*nameExpr); ok && v.name == name {
			found = true
		}
	})
	return found
}
