package template

import (
	"math"
	"math/big"
	"strings"
)

type binaryOp uint8

const (
	opAdd binaryOp = iota
	opSub
	opMul
	opDiv
	opFloorDiv
	opMod
	opPow
)

func (op binaryOp) String() string {
	return [...]string{"+", "-", "*", "/", "//", "%", "** or pow()"}[op]
}

type unaryOp uint8

const (
	opNot unaryOp = iota
	opNeg
	opPos
)

// maxIntBits bounds integers: larger ones have no use in a prompt and cost time.
const maxIntBits = 1 << 16

func asInt(v Value) (int64, bool) {
	switch x := v.(type) {
	case Int:
		return int64(x), true
	case Bool:
		if x {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func asBig(v Value) (*big.Int, bool) {
	if b, ok := v.(bigInt); ok {
		return b.v, true
	}
	n, ok := asInt(v)
	return big.NewInt(n), ok
}

func asFloat(v Value) (float64, error) {
	switch x := v.(type) {
	case Float:
		return float64(x), nil
	case bigInt:
		f, _ := new(big.Float).SetInt(x.v).Float64()
		if math.IsInf(f, 0) {
			return 0, errorf(OverflowError, "int too large to convert to float")
		}
		return f, nil
	}
	n, _ := asInt(v)
	return float64(n), nil
}

// normalInt gives the value of an integer of any size.
func normalInt(n *big.Int) Value {
	if n.IsInt64() {
		return Int(n.Int64())
	}
	return bigInt{n}
}

func (st *state) unary(op unaryOp, x Value) (Value, error) {
	if op == opNot {
		t, err := st.truth(x)
		return Bool(!t), err
	}
	if u, ok := x.(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok := x.(Float); ok {
		if op == opNeg {
			f = -f
		}
		return f, nil
	}
	n, ok := asBig(x)
	if !ok {
		return nil, typeErrorf("bad operand type for unary %s: '%s'", map[unaryOp]string{opNeg: "-", opPos: "+"}[op], x.typeName())
	}
	if op == opNeg {
		n = new(big.Int).Neg(n)
	}
	return normalInt(n), nil
}

func (st *state) binary(op binaryOp, l, r Value) (Value, error) {
	if a, ok := l.(Int); ok {
		if b, ok := r.(Int); ok {
			if v := smallInts(op, int64(a), int64(b)); v != nil {
				return v, nil
			}
		}
	}
	if _, ok := text(l); ok && op == opMod {
		return st.percent(l, r)
	}
	if u, ok := l.(*undefined); ok {
		return nil, u.fail()
	}
	if u, ok := r.(*undefined); ok {
		return nil, u.fail()
	}
	if isNumber(l) && isNumber(r) {
		return st.arithmetic(op, l, r)
	}
	switch op {
	case opAdd:
		return st.add(l, r)
	case opMul:
		return st.multiply(l, r)
	}
	return nil, operandError(op, l, r)
}

func operandError(op binaryOp, l, r Value) error {
	return typeErrorf("unsupported operand type(s) for %s: '%s' and '%s'", op, l.typeName(), r.typeName())
}

// smallInts is the common case without overflow; nil when it is not.
func smallInts(op binaryOp, a, b int64) Value {
	const half = 1 << 31
	if a <= -half || a >= half || b <= -half || b >= half {
		return nil
	}
	switch op {
	case opAdd:
		return Int(a + b)
	case opSub:
		return Int(a - b)
	case opMul:
		return Int(a * b)
	case opMod:
		if b > 0 && a >= 0 {
			return Int(a % b)
		}
	}
	return nil
}

func (st *state) add(l, r Value) (Value, error) {
	if a, ok := text(l); ok {
		b, ok := text(r)
		if _, marked := l.(markup); marked && !ok {
			return nil, operandError(opAdd, l, r)
		}
		if !ok {
			return nil, typeErrorf("can only concatenate str (not \"%s\") to str", r.typeName())
		}
		_, lm := l.(markup)
		_, rm := r.(markup)
		if lm && !rm {
			b = escapeHTML(b)
		} else if rm && !lm {
			a = escapeHTML(a)
		}
		if err := st.grow(len(a) + len(b)); err != nil {
			return nil, err
		}
		return likeString(lm || rm, a+b), nil
	}
	switch a := l.(type) {
	case *List:
		b, ok := r.(*List)
		if !ok {
			return nil, typeErrorf("can only concatenate list (not \"%s\") to list", r.typeName())
		}
		items, err := st.joinItems(a.items, b.items)
		return &List{items}, err
	case *tuple:
		b, ok := r.(*tuple)
		if !ok {
			return nil, typeErrorf("can only concatenate tuple (not \"%s\") to tuple", r.typeName())
		}
		items, err := st.joinItems(a.items, b.items)
		return &tuple{items: items}, err
	}
	return nil, operandError(opAdd, l, r)
}

func (st *state) joinItems(a, b []Value) ([]Value, error) {
	if err := st.growItems(len(a) + len(b)); err != nil {
		return nil, err
	}
	return append(append(make([]Value, 0, len(a)+len(b)), a...), b...), nil
}

func likeString(marked bool, s string) Value {
	if marked {
		return markup(s)
	}
	return String(s)
}

func repeats(v Value) bool {
	switch v.(type) {
	case String, markup, *List, *tuple:
		return true
	}
	return false
}

// multiply repeats a sequence.
func (st *state) multiply(l, r Value) (Value, error) {
	seq, times := l, r
	if !repeats(l) {
		if seq, times = r, l; !repeats(r) {
			return nil, operandError(opMul, l, r)
		}
	}
	if _, huge := times.(bigInt); huge {
		return nil, errorf(OverflowError, "cannot fit 'int' into an index-sized integer")
	}
	n, ok := asInt(times)
	if !ok {
		return nil, typeErrorf("can't multiply sequence by non-int of type '%s'", times.typeName())
	}
	n = max(n, 0)
	switch s := seq.(type) {
	case String, markup:
		t, _ := text(seq)
		if t != "" && n > st.lim.Memory/int64(len(t)) {
			return nil, &LimitError{What: "memory"}
		}
		if t == "" {
			n = 0
		}
		_, marked := seq.(markup)
		return likeString(marked, strings.Repeat(t, int(n))), st.grow(int(n) * len(t))
	case *List:
		items, err := st.repeatItems(s.items, n)
		return &List{items}, err
	case *tuple:
		items, err := st.repeatItems(s.items, n)
		return &tuple{items: items}, err
	}
	return nil, operandError(opMul, l, r)
}

func (st *state) repeatItems(items []Value, n int64) ([]Value, error) {
	if len(items) == 0 || n == 0 {
		return nil, nil
	}
	if n > st.lim.Memory/int64(len(items)*slotBytes) {
		return nil, &LimitError{What: "memory"}
	}
	if err := st.growItems(len(items) * int(n)); err != nil {
		return nil, err
	}
	out := make([]Value, 0, len(items)*int(n))
	for range n {
		out = append(out, items...)
	}
	return out, nil
}

func (st *state) arithmetic(op binaryOp, l, r Value) (Value, error) {
	a, aInt := asBig(l)
	b, bInt := asBig(r)
	if aInt && bInt && op != opDiv {
		return st.bigArithmetic(op, a, b)
	}
	x, err := asFloat(l)
	if err != nil {
		return nil, err
	}
	y, err := asFloat(r)
	if err != nil {
		return nil, err
	}
	switch op {
	case opAdd:
		return Float(x + y), nil
	case opSub:
		return Float(x - y), nil
	case opMul:
		return Float(x * y), nil
	case opPow:
		return floatPow(x, y)
	}
	if y == 0 {
		switch {
		case op == opDiv && aInt && bInt:
			return nil, errorf(ZeroDivision, "division by zero")
		case op == opDiv:
			return nil, errorf(ZeroDivision, "float division by zero")
		case op == opMod:
			return nil, errorf(ZeroDivision, "float modulo")
		}
		return nil, errorf(ZeroDivision, "float floor division by zero")
	}
	if op == opDiv {
		if aInt && bInt && (a.BitLen() > 53 || b.BitLen() > 53) {
			q, _ := new(big.Rat).SetFrac(a, b).Float64()
			return Float(q), nil
		}
		return Float(x / y), nil
	}
	m := math.Mod(x, y)
	q := (x - m) / y
	if m != 0 && (m < 0) != (y < 0) {
		m += y
		q--
	} else if m == 0 {
		m = math.Copysign(0, y)
	}
	if op == opMod {
		return Float(m), nil
	}
	if q == 0 {
		return Float(math.Copysign(0, x/y)), nil
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return Float(f), nil
}

func floatPow(x, y float64) (Value, error) {
	if x == 0 && y < 0 {
		return nil, errorf(ZeroDivision, "0.0 cannot be raised to a negative power")
	}
	p := math.Pow(x, y)
	switch {
	case math.IsNaN(p) && !math.IsNaN(x) && !math.IsNaN(y):
		return nil, errorf(UnsupportedKind, "complex numbers are not supported")
	case math.IsInf(p, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0):
		return nil, errorf(OverflowError, "(34, 'Numerical result out of range')")
	}
	return Float(p), nil
}

func (st *state) bigArithmetic(op binaryOp, a, b *big.Int) (Value, error) {
	z := new(big.Int)
	switch op {
	case opAdd:
		z.Add(a, b)
	case opSub:
		z.Sub(a, b)
	case opMul:
		z.Mul(a, b)
	case opPow:
		if b.Sign() < 0 {
			x, err := asFloat(normalInt(a))
			if err != nil {
				return nil, err
			}
			y, err := asFloat(normalInt(b))
			if err != nil {
				return nil, err
			}
			return floatPow(x, y)
		}
		if a.BitLen() > 1 && (!b.IsInt64() || b.Int64() > maxIntBits || int64(a.BitLen())*b.Int64() > maxIntBits) {
			return nil, &LimitError{What: "integer size"}
		}
		if a.BitLen() <= 1 && b.BitLen() > 1 { // 0, 1 and -1: only the parity matters
			b = new(big.Int).Add(big.NewInt(2), new(big.Int).And(b, big.NewInt(1)))
		}
		z.Exp(a, b, nil)
	default:
		if b.Sign() == 0 {
			if op == opMod {
				return nil, errorf(ZeroDivision, "integer modulo by zero")
			}
			return nil, errorf(ZeroDivision, "integer division or modulo by zero")
		}
		m := new(big.Int)
		z.QuoRem(a, b, m)
		if m.Sign() != 0 && (m.Sign() < 0) != (b.Sign() < 0) {
			m.Add(m, b)
			z.Sub(z, big.NewInt(1))
		}
		if op == opMod {
			z = m
		}
	}
	if z.BitLen() > maxIntBits {
		return nil, &LimitError{What: "integer size"}
	}
	return normalInt(z), nil
}
