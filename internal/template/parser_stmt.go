package template

import (
	"fmt"
	"slices"
	"strings"
)

// body parses up to a tag among ends, whose name is left under the cursor; at the top, ends is empty.
func (p *parser) body(ends ...string) ([]stmt, error) {
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	var out []stmt
	for {
		t := p.cur()
		switch t.kind {
		case tokEOF:
			if len(ends) > 0 {
				return nil, p.fail(t.line, "Unexpected end of template. Jinja was looking for the following tags: '%s'.",
					strings.Join(ends, "' or '"))
			}
			return out, nil
		case tokData:
			p.next()
			out = append(out, &dataStmt{t.text})
		case tokVarBegin:
			p.next()
			e, err := p.tupleOr(p.expression, false, "")
			if err != nil {
				return nil, err
			}
			if p.cur().kind != tokVarEnd {
				return nil, p.fail(p.cur().line, "expected token 'end of print statement', got '%s'", p.cur().describe())
			}
			p.next()
			out = append(out, &outputStmt{[]expr{e}, t.line})
		case tokBlockBegin:
			p.next()
			if p.cur().kind == tokName && slices.Contains(ends, p.cur().text) {
				return out, nil
			}
			s, err := p.statement(ends)
			if err != nil {
				return nil, err
			}
			if err := p.endTag(); err != nil {
				return nil, err
			}
			out = append(out, s)
		default:
			return nil, p.fail(t.line, "unexpected '%s'", t.describe())
		}
	}
}

func (p *parser) endTag() error {
	if p.cur().kind != tokBlockEnd {
		return p.fail(p.cur().line, "expected token 'end of statement block', got '%s'", p.cur().describe())
	}
	p.next()
	return nil
}

// block parses the rest of an opening tag and the body up to a tag among ends, which is read too.
func (p *parser) block(ends ...string) ([]stmt, string, error) {
	p.skipOp(":")
	if err := p.endTag(); err != nil {
		return nil, "", err
	}
	b, err := p.body(ends...)
	if err != nil {
		return nil, "", err
	}
	return b, p.next().text, nil
}

// inner parses a body that is a scope of its own: jinja2 compiles it strictly even inside an if.
func (p *parser) inner(end string) ([]stmt, error) {
	soft := p.soft
	p.soft = 0
	b, _, err := p.block(end)
	p.soft = soft
	return b, err
}

// function parses a body that break and continue cannot leave.
func (p *parser) function(end string) ([]stmt, error) {
	loops, soft := p.loops, p.soft
	p.loops, p.soft = 0, 0
	b, _, err := p.block(end)
	p.loops, p.soft = loops, soft
	return b, err
}

func (p *parser) statement(ends []string) (stmt, error) {
	t := p.cur()
	if t.kind != tokName {
		return nil, p.fail(t.line, "tag name expected")
	}
	switch t.text {
	case "for":
		return p.forTag()
	case "if":
		return p.ifTag()
	case "set":
		return p.setTag()
	case "print":
		return p.printTag()
	case "macro":
		return p.macroTag()
	case "call":
		return p.callTag()
	case "filter":
		return p.filterTag()
	case "with":
		return p.withTag()
	case "block":
		return p.blockTag()
	case "generation":
		p.next()
		b, err := p.function("endgeneration")
		return &generationStmt{body: b}, err
	case "break", "continue":
		p.next()
		if p.loops == 0 {
			return nil, p.fail(t.line, "'%s' outside loop", t.text)
		}
		if t.text == "break" {
			return &jumpStmt{flowBreak}, nil
		}
		return &jumpStmt{flowContinue}, nil
	case "include", "import", "from", "extends":
		for p.cur().kind != tokBlockEnd && p.cur().kind != tokEOF {
			p.next()
		}
		return &refusedStmt{fmt.Sprintf("{%% %s %%}: no loader for this environment specified", t.text), t.line}, nil
	case "autoescape":
		return nil, p.fail(t.line, "{%% autoescape %%} is not supported")
	}
	msg := fmt.Sprintf("Encountered unknown tag '%s'.", t.text)
	if len(ends) > 0 {
		msg += fmt.Sprintf(" Jinja was looking for the following tags: '%s'.", strings.Join(ends, "' or '"))
	}
	return nil, p.fail(t.line, "%s", msg)
}

func (p *parser) forTag() (stmt, error) {
	f := &forStmt{line: p.next().line, loopID: p.id("loop")}
	var err error
	if f.to, err = p.target("in", false); err != nil {
		return nil, err
	}
	if err = p.expectWord("in"); err != nil {
		return nil, err
	}
	if f.iter, err = p.tupleOr(p.or, false, "recursive"); err != nil {
		return nil, err
	}
	soft := p.soft
	p.soft = 0
	defer func() { p.soft = soft }()
	if p.skipName("if") {
		if f.test, err = p.expression(); err != nil {
			return nil, err
		}
	}
	f.recursive = p.skipName("recursive")
	p.loops++
	var end string
	f.body, end, err = p.block("endfor", "else")
	p.loops--
	if err == nil && end == "else" {
		f.other, _, err = p.block("endfor")
	}
	if err != nil {
		return nil, err
	}
	f.usesLoop = f.recursive || reads(f.body, "loop")
	bad := false
	visit(f.children(), func(n node) {
		if t, ok := n.(*nameTarget); ok && t.name == "loop" {
			bad = true
		}
	})
	if bad {
		return nil, p.fail(f.line, "Can't assign to special loop variable in for-loop target")
	}
	return f, nil
}

func (p *parser) ifTag() (stmt, error) {
	p.soft++
	defer func() { p.soft-- }()
	s := &ifStmt{line: p.next().line}
	var err error
	if s.test, err = p.tupleOr(p.or, false, ""); err != nil {
		return nil, err
	}
	body, end, err := p.block("elif", "else", "endif")
	s.body = body
	for err == nil && end == "elif" {
		b := ifBranch{line: p.cur().line}
		if b.test, err = p.tupleOr(p.or, false, ""); err != nil {
			break
		}
		b.body, end, err = p.block("elif", "else", "endif")
		s.elifs = append(s.elifs, b)
	}
	if err == nil && end == "else" {
		s.other, _, err = p.block("endif")
	}
	return s, err
}

func (p *parser) setTag() (stmt, error) {
	line := p.next().line
	to, err := p.target("", true)
	if err != nil {
		return nil, err
	}
	if p.skipOp("=") {
		v, err := p.tupleOr(p.expression, false, "")
		return &setStmt{to, v, line}, err
	}
	s := &setBlockStmt{to: to, line: line}
	for p.skipOp("|") {
		var in expr
		if s.filter != nil {
			in = s.filter
		}
		if s.filter, err = p.filter(in); err != nil {
			return nil, err
		}
	}
	s.body, err = p.inner("endset")
	return s, err
}

func (p *parser) printTag() (stmt, error) {
	s := &outputStmt{line: p.next().line}
	for p.cur().kind != tokBlockEnd {
		if len(s.exprs) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.exprs = append(s.exprs, e)
	}
	return s, nil
}

func (p *parser) macroTag() (stmt, error) {
	line := p.next().line
	to, err := p.nameTarget()
	if err != nil {
		return nil, err
	}
	def, err := p.signature(to.name)
	if err != nil {
		return nil, err
	}
	if def.body, err = p.function("endmacro"); err != nil {
		return nil, err
	}
	if err := p.finishMacro(def, line); err != nil {
		return nil, err
	}
	return &macroStmt{def, *to, line}, nil
}

func (p *parser) callTag() (stmt, error) {
	line := p.next().line
	def := &macroDef{}
	var err error
	if p.isOp("(") {
		if def, err = p.signature(""); err != nil {
			return nil, err
		}
	}
	e, err := p.expression()
	if err != nil {
		return nil, err
	}
	c, ok := e.(*callExpr)
	if !ok {
		return nil, p.fail(line, "expected call")
	}
	if def.body, err = p.function("endcall"); err != nil {
		return nil, err
	}
	return &callStmt{def, c, line}, p.finishMacro(def, line)
}

// signature parses the parameters of a macro.
func (p *parser) signature(name string) (*macroDef, error) {
	def := &macroDef{name: name}
	if err := p.expectOp("("); err != nil {
		return nil, err
	}
	for !p.isOp(")") {
		if len(def.params) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		t, err := p.nameTarget()
		if err != nil {
			return nil, err
		}
		def.params = append(def.params, *t)
		if p.skipOp("=") {
			d, err := p.expression()
			if err != nil {
				return nil, err
			}
			def.defaults = append(def.defaults, d)
		} else if len(def.defaults) > 0 {
			return nil, p.fail(p.cur().line, "non-default argument follows default argument")
		}
	}
	return def, p.expectOp(")")
}

// finishMacro finds out which of the implicit variables the body reads.
func (p *parser) finishMacro(def *macroDef, line int) error {
	def.callerID, def.kwargsID, def.varargsID = p.id("caller"), p.id("kwargs"), p.id("varargs")
	def.usesCaller, def.usesKw, def.usesVar = reads(def.body, "caller"), reads(def.body, "kwargs"), reads(def.body, "varargs")
	required := len(def.params) - len(def.defaults)
	for i, t := range def.params {
		switch t.name {
		case "caller":
			def.callerParam, def.usesCaller = true, true
			if i < required {
				return p.fail(line, "When defining macros or call blocks the special \"caller\" argument must be omitted or be given a default.")
			}
		case "kwargs":
			def.usesKw = false
		case "varargs":
			def.usesVar = false
		}
	}
	return nil
}

func (p *parser) filterTag() (stmt, error) {
	s := &filterStmt{line: p.next().line}
	f, err := p.filter(nil)
	for err == nil && p.skipOp("|") {
		f, err = p.filter(f)
	}
	if err != nil {
		return nil, err
	}
	s.filter = f
	s.body, err = p.inner("endfilter")
	return s, err
}

func (p *parser) withTag() (stmt, error) {
	s := &withStmt{line: p.next().line}
	for p.cur().kind != tokBlockEnd {
		if len(s.to) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		t, err := p.target("", false)
		if err != nil {
			return nil, err
		}
		if err := p.expectOp("="); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		s.to, s.vals = append(s.to, t), append(s.vals, v)
	}
	var err error
	s.body, err = p.inner("endwith")
	return s, err
}

func (p *parser) blockTag() (stmt, error) {
	line := p.next().line
	t, err := p.expectName()
	if err != nil {
		return nil, err
	}
	s := &blockStmt{name: t.text, line: line}
	if _, twice := p.blocks[s.name]; twice {
		return nil, p.fail(line, "block '%s' defined twice", s.name)
	}
	s.scoped = p.skipName("scoped")
	p.skipName("required")
	p.blocks[s.name] = s
	if s.body, err = p.function("endblock"); err != nil {
		return nil, err
	}
	p.skipName(s.name)
	return s, nil
}

func (p *parser) nameTarget() (*nameTarget, error) {
	t, err := p.expectName()
	if err != nil {
		return nil, err
	}
	switch t.text {
	case "true", "false", "none", "True", "False", "None":
		return nil, p.fail(t.line, "can't assign to 'const'")
	}
	return &nameTarget{t.text, p.id(t.text)}, nil
}

// target parses what is assigned to; end is a name that ends it.
func (p *parser) target(end string, namespaces bool) (target, error) {
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	var items []target
	isTuple := false
	for {
		if p.cur().kind == tokBlockEnd || p.isOp(")") || end != "" && p.isName(end) {
			break
		}
		t, err := p.oneTarget(namespaces)
		if err != nil {
			return nil, err
		}
		items = append(items, t)
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if len(items) == 0 {
		return nil, p.fail(p.cur().line, "Expected an expression, got '%s'", p.cur().describe())
	}
	if !isTuple {
		return items[0], nil
	}
	return &tupleTarget{items}, nil
}

func (p *parser) oneTarget(namespaces bool) (target, error) {
	if p.skipOp("(") {
		t, err := p.target("", false)
		if err == nil {
			err = p.expectOp(")")
		}
		return t, err
	}
	if p.cur().kind != tokName {
		return nil, p.fail(p.cur().line, "can't assign to '%s'", p.cur().describe())
	}
	n, err := p.nameTarget()
	if err != nil {
		return nil, err
	}
	if namespaces && p.skipOp(".") {
		a, err := p.expectName()
		if err != nil {
			return nil, err
		}
		return &attrTarget{n.name, n.id, a.text}, nil
	}
	return n, nil
}
