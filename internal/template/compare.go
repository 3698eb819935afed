package template

import (
	"math/big"
	"strings"
)

type compareOp uint8

const (
	opEQ compareOp = iota
	opNE
	opLT
	opLE
	opGT
	opGE
	opIn
	opNotIn
)

func (op compareOp) String() string {
	return [...]string{"==", "!=", "<", "<=", ">", ">=", "in", "not in"}[op]
}

// maxCompareDepth bounds the nesting that == and < go into.
const maxCompareDepth = 500

// compare is "l op r".
func (st *state) compare(op compareOp, l, r Value) (bool, error) {
	switch op {
	case opEQ:
		return st.equal(l, r)
	case opNE:
		eq, err := st.equal(l, r)
		return !eq, err
	case opIn:
		return st.contains(r, l)
	case opNotIn:
		in, err := st.contains(r, l)
		return !in, err
	}
	return st.order(op, l, r, 0)
}

// equal is l == r. Undefined values equal each other.
func (st *state) equal(l, r Value) (bool, error) { return st.equalDepth(l, r, 0) }

func (st *state) equalDepth(l, r Value, depth int) (bool, error) {
	if err := st.step(1); err != nil {
		return false, err
	}
	if depth > maxCompareDepth {
		return false, errorf(RecursionError, "maximum recursion depth exceeded in comparison")
	}
	if a, ok := l.(String); ok {
		if b, ok := r.(String); ok {
			return a == b, nil
		}
	}
	if a, ok := text(l); ok {
		b, ok := text(r)
		return ok && a == b, nil
	}
	if isNumber(l) && isNumber(r) {
		return numberOrder(opEQ, l, r), nil
	}
	switch a := l.(type) {
	case None:
		_, ok := r.(None)
		return ok, nil
	case *undefined:
		_, ok := r.(*undefined)
		return ok, nil
	case *List:
		if b, ok := r.(*List); ok {
			return st.equalItems(a.items, b.items, depth)
		}
	case *tuple:
		if b, ok := r.(*tuple); ok {
			return st.equalItems(a.items, b.items, depth)
		}
	case *Dict:
		if b, ok := r.(*Dict); ok {
			return st.equalDicts(a, b, depth)
		}
	case *rangeValue:
		if b, ok := r.(*rangeValue); ok {
			return a.n == b.n && (a.n == 0 || a.start == b.start && (a.n == 1 || a.step == b.step)), nil
		}
	case *boundMethod:
		if b, ok := r.(*boundMethod); ok {
			return a.name == b.name && sameObject(a.recv, b.recv), nil
		}
	case *dictView:
		if b, ok := r.(*dictView); ok && a.what == b.what && a.what != viewValues {
			if a.what == viewItems {
				return st.equalDicts(a.d, b.d, depth)
			}
			return st.sameKeys(a.d, b.d)
		}
	}
	return sameObject(l, r), nil
}

// sameObject is Python's "is", as far as it can be told.
func sameObject(l, r Value) bool {
	switch a := l.(type) {
	case bigInt:
		b, ok := r.(bigInt)
		return ok && a.v.Cmp(b.v) == 0
	case *undefined:
		return l == r
	}
	return l == r
}

func (st *state) equalItems(a, b []Value, depth int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if eq, err := st.equalDepth(a[i], b[i], depth+1); err != nil || !eq {
			return false, err
		}
	}
	return true, nil
}

func (st *state) equalDicts(a, b *Dict, depth int) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	for i, k := range a.keys {
		v, ok, err := b.getValue(k)
		if err != nil || !ok {
			return false, err
		}
		if eq, err := st.equalDepth(a.vals[i], v, depth+1); err != nil || !eq {
			return false, err
		}
	}
	return true, nil
}

func (st *state) sameKeys(a, b *Dict) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	for _, k := range a.keys {
		if _, ok, err := b.getValue(k); err != nil || !ok {
			return false, err
		}
	}
	return true, st.step(a.Len())
}

// order is <, <=, > or >=.
func (st *state) order(op compareOp, l, r Value, depth int) (bool, error) {
	if err := st.step(1); err != nil {
		return false, err
	}
	if depth > maxCompareDepth {
		return false, errorf(RecursionError, "maximum recursion depth exceeded in comparison")
	}
	if u, ok := l.(*undefined); ok {
		return false, u.fail()
	}
	if u, ok := r.(*undefined); ok {
		return false, u.fail()
	}
	if isNumber(l) && isNumber(r) {
		return numberOrder(op, l, r), nil
	}
	if a, ok := text(l); ok {
		if b, ok := text(r); ok {
			return ordered(op, strings.Compare(a, b)), nil
		}
	}
	switch a := l.(type) {
	case *List:
		if b, ok := r.(*List); ok {
			return st.orderItems(op, a.items, b.items, depth)
		}
	case *tuple:
		if b, ok := r.(*tuple); ok {
			return st.orderItems(op, a.items, b.items, depth)
		}
	}
	return false, typeErrorf("'%s' not supported between instances of '%s' and '%s'", op, l.typeName(), r.typeName())
}

func (st *state) orderItems(op compareOp, a, b []Value, depth int) (bool, error) {
	for i := range min(len(a), len(b)) {
		eq, err := st.equalDepth(a[i], b[i], depth+1)
		if err != nil {
			return false, err
		}
		if !eq {
			return st.order(op, a[i], b[i], depth+1)
		}
	}
	return ordered(op, len(a)-len(b)), nil
}

func ordered(op compareOp, c int) bool {
	switch op {
	case opEQ:
		return c == 0
	case opLT:
		return c < 0
	case opLE:
		return c <= 0
	case opGT:
		return c > 0
	}
	return c >= 0
}

func isNumber(v Value) bool {
	switch v.(type) {
	case Int, Bool, Float, bigInt:
		return true
	}
	return false
}

// numberOrder compares numbers exactly: an integer is never rounded to a float first.
func numberOrder(op compareOp, l, r Value) bool {
	if a, ok := asInt(l); ok {
		if b, ok := asInt(r); ok {
			switch {
			case a < b:
				return ordered(op, -1)
			case a > b:
				return ordered(op, 1)
			}
			return ordered(op, 0)
		}
	}
	lf, lIsF := l.(Float)
	rf, rIsF := r.(Float)
	if lIsF && lf != lf || rIsF && rf != rf {
		return false
	}
	if lIsF && rIsF {
		switch {
		case lf < rf:
			return ordered(op, -1)
		case lf > rf:
			return ordered(op, 1)
		}
		return ordered(op, 0)
	}
	return ordered(op, bigFloat(l).Cmp(bigFloat(r)))
}

// bigFloat gives a number that is not NaN without loss.
func bigFloat(v Value) *big.Float {
	if f, ok := v.(Float); ok {
		return big.NewFloat(float64(f))
	}
	n, _ := asBig(v)
	return new(big.Float).SetPrec(uint(max(n.BitLen(), 64))).SetInt(n)
}

// contains is "item in box".
func (st *state) contains(box, item Value) (bool, error) {
	switch b := box.(type) {
	case String, markup:
		hay, _ := text(box)
		needle, ok := text(item)
		if !ok {
			return false, typeErrorf("'in <string>' requires string as left operand, not %s", item.typeName())
		}
		return strings.Contains(hay, needle), st.walk(len(hay))
	case *Dict:
		_, ok, err := b.getValue(item)
		return ok, err
	case *dictView:
		if b.what == viewKeys {
			_, ok, err := b.d.getValue(item)
			return ok, err
		}
	case *namespace, *macro, *function, *boundMethod, None, Bool, Int, bigInt, Float:
		return false, typeErrorf("argument of type '%s' is not iterable", box.typeName())
	}
	it, err := st.iter(box)
	if err != nil {
		return false, err
	}
	for {
		v, ok, err := it.next(st)
		if err != nil || !ok {
			return false, err
		}
		if eq, err := st.equal(v, item); err != nil || eq {
			return eq, err
		}
	}
}
