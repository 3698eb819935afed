package template

import (
	"fmt"
	"strings"
)

const (
	maxSource = 1 << 20 // bytes of a template
	maxNest   = 150     // nested statements and expressions
	maxChain  = 2000    // operators, filters or subscripts in a row: each is a level when it is evaluated
)

type parser struct {
	toks    []token
	i       int
	depth   int
	soft    int // inside the branches of an if: an unknown filter is an error only when it runs
	loops   int // enclosing loops that break and continue may leave
	ids     map[string]int
	names   []string
	blocks  map[string]*blockStmt
	unknown []error // filters and tests that do not exist, where jinja2 refuses to compile them
}

func (p *parser) cur() *token { return &p.toks[p.i] }

func (p *parser) next() *token {
	t := &p.toks[p.i]
	if p.i < len(p.toks)-1 {
		p.i++
	}
	return t
}

func (p *parser) fail(line int, format string, args ...any) error {
	return &SyntaxError{Message: fmt.Sprintf(format, args...), Line: line}
}

func (p *parser) id(name string) int {
	if id, ok := p.ids[name]; ok {
		return id
	}
	id := len(p.names)
	p.ids[name] = id
	p.names = append(p.names, name)
	return id
}

func (p *parser) isOp(op string) bool { t := p.cur(); return t.kind == tokOp && t.text == op }

func (p *parser) isName(name string) bool { t := p.cur(); return t.kind == tokName && t.text == name }

func (p *parser) peek() *token {
	if p.i+1 < len(p.toks) {
		return &p.toks[p.i+1]
	}
	return p.cur()
}

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expectOp(op string) error {
	if !p.skipOp(op) {
		return p.fail(p.cur().line, "expected token '%s', got '%s'", op, p.cur().describe())
	}
	return nil
}

func (p *parser) expectName() (*token, error) {
	if p.cur().kind != tokName {
		return nil, p.fail(p.cur().line, "expected token 'name', got '%s'", p.cur().describe())
	}
	return p.next(), nil
}

func (p *parser) expectWord(word string) error {
	if !p.skipName(word) {
		return p.fail(p.cur().line, "expected token '%s', got '%s'", word, p.cur().describe())
	}
	return nil
}

// nest counts a level of nesting; the returned function undoes it.
func (p *parser) nest() (func(), error) {
	if p.depth >= maxNest {
		return nil, p.fail(p.cur().line, "nested more than %d levels deep", maxNest)
	}
	p.depth++
	return func() { p.depth-- }, nil
}

func (p *parser) chain(n int) error {
	if n > maxChain {
		return p.fail(p.cur().line, "more than %d operations in a row", maxChain)
	}
	return nil
}

// expression parses a full expression, with "a if b else c".
func (p *parser) expression() (expr, error) {
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	line, unknown := p.cur().line, len(p.unknown)
	e, err := p.or()
	for n := 0; err == nil && p.isName("if"); n++ {
		if err = p.chain(n); err != nil {
			break
		}
		p.next()
		p.unknown = p.unknown[:unknown]
		c := &condExpr{then: e, line: line}
		p.soft++
		if c.test, err = p.or(); err == nil && p.skipName("else") {
			c.other, err = p.expression()
		}
		p.soft--
		e = c
		line = p.cur().line
	}
	return e, err
}

// binaryChain parses operands joined by operators that bind to the left.
func (p *parser) binaryChain(operand func() (expr, error), join func() func(l, r expr) expr) (expr, error) {
	l, err := operand()
	for n := 0; err == nil; n++ {
		mk := join()
		if mk == nil {
			return l, nil
		}
		if err = p.chain(n); err != nil {
			return nil, err
		}
		var r expr
		if r, err = operand(); err == nil {
			l = mk(l, r)
		}
	}
	return nil, err
}

func (p *parser) or() (expr, error) {
	return p.binaryChain(p.and, func() func(l, r expr) expr {
		if !p.skipName("or") {
			return nil
		}
		return func(l, r expr) expr { return &orExpr{l, r} }
	})
}

func (p *parser) and() (expr, error) {
	return p.binaryChain(p.not, func() func(l, r expr) expr {
		if !p.skipName("and") {
			return nil
		}
		return func(l, r expr) expr { return &andExpr{l, r} }
	})
}

func (p *parser) not() (expr, error) {
	if !p.isName("not") {
		return p.compare()
	}
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	p.next()
	x, err := p.not()
	return &unaryExpr{opNot, x}, err
}

func (p *parser) compareOp() (compareOp, bool) {
	t := p.cur()
	if t.kind == tokOp {
		switch t.text {
		case "==":
			return opEQ, true
		case "!=":
			return opNE, true
		case "<":
			return opLT, true
		case "<=":
			return opLE, true
		case ">":
			return opGT, true
		case ">=":
			return opGE, true
		}
	}
	if p.isName("in") {
		return opIn, true
	}
	if p.isName("not") && p.peek().kind == tokName && p.peek().text == "in" {
		p.next()
		return opNotIn, true
	}
	return 0, false
}

func (p *parser) compare() (expr, error) {
	first, err := p.sum()
	if err != nil {
		return nil, err
	}
	c := &compareExpr{first: first}
	for {
		op, ok := p.compareOp()
		if !ok {
			break
		}
		p.next()
		r, err := p.sum()
		if err != nil {
			return nil, err
		}
		c.ops, c.rest = append(c.ops, op), append(c.rest, r)
	}
	if len(c.ops) == 0 {
		return first, nil
	}
	return c, nil
}

// mathOp gives a maker of the operator under the cursor if it is among ops.
func (p *parser) mathOp(ops string) func(l, r expr) expr {
	t := p.cur()
	if t.kind != tokOp || !strings.Contains(ops, " "+t.text+" ") {
		return nil
	}
	p.next()
	op := map[string]binaryOp{"+": opAdd, "-": opSub, "*": opMul, "/": opDiv, "//": opFloorDiv, "%": opMod, "**": opPow}[t.text]
	return func(l, r expr) expr { return &binaryExpr{op, l, r} }
}

func (p *parser) sum() (expr, error) {
	return p.binaryChain(p.concat, func() func(l, r expr) expr { return p.mathOp(" + - ") })
}

func (p *parser) concat() (expr, error) {
	e, err := p.product()
	if err != nil || !p.isOp("~") {
		return e, err
	}
	c := &concatExpr{parts: []expr{e}}
	for p.skipOp("~") {
		if e, err = p.product(); err != nil {
			return nil, err
		}
		c.parts = append(c.parts, e)
	}
	return c, nil
}

func (p *parser) product() (expr, error) {
	return p.binaryChain(p.pow, func() func(l, r expr) expr { return p.mathOp(" * / // % ") })
}

func (p *parser) pow() (expr, error) {
	return p.binaryChain(func() (expr, error) { return p.unary(true) }, func() func(l, r expr) expr { return p.mathOp(" ** ") })
}

func (p *parser) unary(filters bool) (expr, error) {
	done, err := p.nest()
	if err != nil {
		return nil, err
	}
	defer done()
	var e expr
	switch {
	case p.skipOp("-"):
		if e, err = p.unary(false); err == nil {
			e = &unaryExpr{opNeg, e}
		}
	case p.skipOp("+"):
		if e, err = p.unary(false); err == nil {
			e = &unaryExpr{opPos, e}
		}
	default:
		e, err = p.primary()
	}
	if err == nil {
		e, err = p.postfix(e)
	}
	if err == nil && filters {
		e, err = p.filtersAndTests(e)
	}
	return e, err
}

func (p *parser) primary() (expr, error) {
	t := p.cur()
	switch t.kind {
	case tokName:
		p.next()
		switch t.text {
		case "true", "True":
			return &constExpr{Bool(true)}, nil
		case "false", "False":
			return &constExpr{Bool(false)}, nil
		case "none", "None":
			return &constExpr{None{}}, nil
		}
		return &nameExpr{t.text, p.id(t.text)}, nil
	case tokString:
		p.next()
		s := t.text
		if p.cur().kind == tokString {
			var b strings.Builder
			b.WriteString(s)
			for p.cur().kind == tokString {
				b.WriteString(p.next().text)
			}
			s = b.String()
		}
		return &constExpr{String(s)}, nil
	case tokNumber:
		p.next()
		return &constExpr{t.num}, nil
	case tokOp:
		switch t.text {
		case "(":
			p.next()
			e, err := p.tupleOr(p.expression, true, "")
			if err == nil {
				err = p.expectOp(")")
			}
			return e, err
		case "[":
			return p.list()
		case "{":
			return p.dict()
		}
	}
	return nil, p.fail(t.line, "unexpected '%s'", t.describe())
}

// tupleOr parses one expression, or several with commas as a tuple. end is a name that ends it, besides the end of the tag.
func (p *parser) tupleOr(item func() (expr, error), parens bool, end string) (expr, error) {
	var items []expr
	isTuple := false
	for {
		if t := p.cur(); t.kind == tokVarEnd || t.kind == tokBlockEnd || p.isOp(")") || end != "" && p.isName(end) {
			break
		}
		e, err := item()
		if err != nil {
			return nil, err
		}
		items = append(items, e)
		if !p.skipOp(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) == 1 {
			return items[0], nil
		}
		if !parens {
			return nil, p.fail(p.cur().line, "Expected an expression, got '%s'", p.cur().describe())
		}
	}
	return &tupleExpr{items}, nil
}

func (p *parser) list() (expr, error) {
	p.next()
	l := &listExpr{}
	for !p.isOp("]") {
		if len(l.items) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp("]") {
				break
			}
		}
		e, err := p.expression()
		if err != nil {
			return nil, err
		}
		l.items = append(l.items, e)
	}
	return l, p.expectOp("]")
}

func (p *parser) dict() (expr, error) {
	p.next()
	d := &dictExpr{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
			if p.isOp("}") {
				break
			}
		}
		k, err := p.expression()
		if err != nil {
			return nil, err
		}
		if err := p.expectOp(":"); err != nil {
			return nil, err
		}
		v, err := p.expression()
		if err != nil {
			return nil, err
		}
		d.keys, d.vals = append(d.keys, k), append(d.vals, v)
	}
	return d, p.expectOp("}")
}
