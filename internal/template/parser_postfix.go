package template

// postfix parses subscripts and calls after e.
func (p *parser) postfix(e expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if err = p.chain(n); err != nil {
			break
		}
		switch {
		case p.isOp("."):
			e, err = p.attribute(e)
		case p.isOp("["):
			e, err = p.subscript(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

// filtersAndTests parses |filter, "is test" and calls after e.
func (p *parser) filtersAndTests(e expr) (expr, error) {
	var err error
	for n := 0; err == nil; n++ {
		if err = p.chain(n); err != nil {
			break
		}
		switch {
		case p.isOp("|"):
			p.next()
			e, err = p.filter(e)
		case p.isName("is"):
			e, err = p.test(e)
		case p.isOp("("):
			e, err = p.call(e)
		default:
			return e, nil
		}
	}
	return nil, err
}

func (p *parser) call(fn expr) (expr, error) {
	args, err := p.arguments()
	return &callExpr{fn, args}, err
}

func (p *parser) attribute(e expr) (expr, error) {
	p.next()
	t := p.next()
	switch t.kind {
	case tokName:
		return &attrExpr{e, t.text}, nil
	case tokNumber:
		if _, isInt := t.num.(Int); isInt {
			return &itemExpr{e, &constExpr{t.num}}, nil
		}
	}
	return nil, p.fail(t.line, "expected name or number")
}

func (p *parser) subscript(e expr) (expr, error) {
	open := p.next()
	var keys []expr
	slices := 0
	for !p.isOp("]") {
		if len(keys) > 0 {
			if err := p.expectOp(","); err != nil {
				return nil, err
			}
		}
		key, isSlice, err := p.subscribed(e)
		if err != nil {
			return nil, err
		}
		if isSlice {
			slices++
		}
		keys = append(keys, key)
	}
	p.next()
	switch {
	case len(keys) == 1 && slices == 1:
		return keys[0], nil
	case slices > 0:
		return nil, p.fail(open.line, "a slice cannot be part of a tuple")
	case len(keys) == 1:
		return &itemExpr{e, keys[0]}, nil
	}
	return &itemExpr{e, &tupleExpr{keys}}, nil
}

// subscribed parses what stands in brackets: a key, or a slice of obj.
func (p *parser) subscribed(obj expr) (e expr, isSlice bool, err error) {
	var start expr
	if !p.isOp(":") {
		if start, err = p.expression(); err != nil {
			return nil, false, err
		}
		if !p.isOp(":") {
			return start, false, nil
		}
	}
	p.next()
	s := &sliceExpr{obj: obj, start: start}
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		if s.stop, err = p.expression(); err != nil {
			return nil, false, err
		}
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		if s.step, err = p.expression(); err != nil {
			return nil, false, err
		}
	}
	return s, true, nil
}

func (p *parser) arguments() (callArgs, error) {
	var a callArgs
	open := p.cur().line
	if err := p.expectOp("("); err != nil {
		return a, err
	}
	for first := true; !p.isOp(")"); first = false {
		if !first {
			if err := p.expectOp(","); err != nil {
				return a, err
			}
			if p.isOp(")") {
				break
			}
		}
		if err := p.argument(&a, open); err != nil {
			return a, err
		}
	}
	return a, p.expectOp(")")
}

func (p *parser) argument(a *callArgs, line int) error {
	var err error
	bad := p.fail(line, "invalid syntax for function call expression")
	switch {
	case p.skipOp("*"):
		if a.star != nil || a.dstr != nil {
			return bad
		}
		a.star, err = p.expression()
	case p.skipOp("**"):
		if a.dstr != nil {
			return bad
		}
		a.dstr, err = p.expression()
	case p.cur().kind == tokName && p.peek().kind == tokOp && p.peek().text == "=":
		if a.dstr != nil {
			return bad
		}
		name := p.next().text
		p.next()
		for _, n := range a.names {
			if n == name {
				return p.fail(line, "keyword argument repeated: %s", name)
			}
		}
		var e expr
		e, err = p.expression()
		a.names, a.kw = append(a.names, name), append(a.kw, e)
	default:
		if a.star != nil || a.dstr != nil || len(a.kw) > 0 {
			return bad
		}
		var e expr
		e, err = p.expression()
		a.pos = append(a.pos, e)
	}
	return err
}

// dottedName parses the name of a filter or test.
func (p *parser) dottedName() (string, error) {
	t, err := p.expectName()
	if err != nil {
		return "", err
	}
	name := t.text
	for p.skipOp(".") {
		if t, err = p.expectName(); err != nil {
			return "", err
		}
		name += "." + t.text
	}
	return name, nil
}

// filter parses a filter's name and arguments, the bar being read.
func (p *parser) filter(in expr) (*filterExpr, error) {
	line := p.cur().line
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	f := &filterExpr{in: in, name: name, fn: filterByName(name)}
	if p.isOp("(") {
		if f.args, err = p.arguments(); err != nil {
			return nil, err
		}
	}
	if f.fn == nil && p.soft == 0 {
		p.unknown = append(p.unknown, p.fail(line, "No filter named '%s'.", name))
	}
	return f, nil
}

func (p *parser) test(in expr) (expr, error) {
	line := p.next().line
	negated := p.skipName("not")
	name, err := p.dottedName()
	if err != nil {
		return nil, err
	}
	t := &testExpr{in: in, name: name, fn: testByName(name)}
	switch {
	case p.isOp("("):
		t.args, err = p.arguments()
	case p.isName("is"):
		err = p.fail(line, "You cannot chain multiple tests with is")
	case p.startsTestArgument():
		var arg expr
		if arg, err = p.primary(); err == nil {
			if arg, err = p.postfix(arg); err == nil {
				t.args.pos = []expr{arg}
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if t.fn == nil && p.soft == 0 {
		p.unknown = append(p.unknown, p.fail(line, "No test named '%s'.", name))
	}
	if negated {
		return &unaryExpr{opNot, t}, nil
	}
	return t, nil
}

func (p *parser) startsTestArgument() bool {
	switch t := p.cur(); t.kind {
	case tokName:
		return t.text != "else" && t.text != "or" && t.text != "and"
	case tokString, tokNumber:
		return true
	case tokOp:
		return t.text == "[" || t.text == "{"
	}
	return false
}
