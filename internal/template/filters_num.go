package template

import (
	"fmt"
	"html"
	"math"
	"math/big"
	"strconv"
	"strings"
)

func unescapeHTML(s string) string { return html.UnescapeString(s) }

func filterAbs(st *state, in Value, a *arguments) (Value, error) {
	if _, err := a.bind("abs", 0); err != nil {
		return nil, err
	}
	if u, ok := in.(*undefined); ok {
		return nil, typeErrorf("bad operand type for abs(): '%s'", u.typeName())
	}
	if f, ok := in.(Float); ok {
		return Float(math.Abs(float64(f))), nil
	}
	n, ok := asBig(in)
	if !ok {
		return nil, typeErrorf("bad operand type for abs(): '%s'", in.typeName())
	}
	return normalInt(new(big.Int).Abs(n)), st.step(1)
}

// parseInt is int(s, base).
func parseInt(s string, base int) (Value, bool) {
	s = strings.TrimFunc(s, isSpace)
	t := strings.TrimPrefix(s, "-")
	if t == s {
		t = strings.TrimPrefix(s, "+")
	}
	if t == "" || len(t) > maxIntDigits || strings.ContainsAny(t, "+-") || strings.HasPrefix(t, "_") || strings.HasSuffix(t, "_") ||
		strings.Contains(t, "__") {
		return nil, false
	}
	prefix := ""
	if len(t) > 2 {
		prefix = strings.ToLower(t[:2])
	}
	switch bases := map[string]int{"0x": 16, "0o": 8, "0b": 2}; {
	case bases[prefix] != 0 && (base == bases[prefix] || base == 0):
		base, t = bases[prefix], t[2:]
	case base == 0:
		base = 10
	}
	if base < 2 || base > 36 {
		return nil, false
	}
	n, ok := new(big.Int).SetString(strings.ReplaceAll(t, "_", ""), base)
	if !ok {
		return nil, false
	}
	if s[0] == '-' {
		n.Neg(n)
	}
	return normalInt(n), true
}

// parseFloat is float(s).
func parseFloat(s string) (float64, bool) {
	s = strings.TrimFunc(s, isSpace)
	low := strings.ToLower(strings.TrimLeft(s, "+-"))
	if low == "" || strings.ContainsAny(low, "xp") || strings.Contains(low, "__") || strings.HasPrefix(low, "_") || strings.HasSuffix(low, "_") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func floatToInt(f float64) (Value, bool) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	n, _ := new(big.Float).SetFloat64(math.Trunc(f)).Int(nil)
	return normalInt(n), true
}

func filterInt(_ *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("int", 0, "default", "base")
	if err != nil {
		return nil, err
	}
	def := p[0]
	if def == nil {
		def = Int(0)
	}
	base := int64(10)
	if p[1] != nil {
		var ok bool
		if base, ok = asInt(p[1]); !ok {
			return nil, notAnInteger(p[1])
		}
	}
	switch x := in.(type) {
	case *undefined:
		return nil, x.fail()
	case Float:
		if math.IsInf(float64(x), 0) {
			return nil, errorf(OverflowError, "cannot convert float infinity to integer")
		}
		if v, ok := floatToInt(float64(x)); ok {
			return v, nil
		}
		return def, nil
	}
	if n, ok := asBig(in); ok {
		return normalInt(n), nil
	}
	s, ok := text(in)
	if !ok {
		return def, nil
	}
	if v, ok := parseInt(s, int(base)); ok {
		return v, nil
	}
	if f, ok := parseFloat(s); ok {
		if v, ok := floatToInt(f); ok {
			return v, nil
		}
	}
	return def, nil
}

func filterFloat(_ *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("float", 0, "default")
	if err != nil {
		return nil, err
	}
	if u, ok := in.(*undefined); ok {
		return nil, u.fail()
	}
	if isNumber(in) {
		f, err := asFloat(in)
		return Float(f), err
	}
	if s, ok := text(in); ok {
		if f, ok := parseFloat(s); ok {
			return Float(f), nil
		}
	}
	if p[0] != nil {
		return p[0], nil
	}
	return Float(0), nil
}

func filterRound(_ *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("round", 0, "precision", "method")
	if err != nil {
		return nil, err
	}
	if !isNumber(in) {
		return nil, typeErrorf("type %s doesn't define __round__ method", in.typeName())
	}
	digits := int64(0)
	if p[0] != nil {
		var ok bool
		if digits, ok = asInt(p[0]); !ok {
			return nil, notAnInteger(p[0])
		}
	}
	digits = min(max(digits, -400), 400)
	method := "common"
	if p[1] != nil {
		method, _ = text(p[1])
	}
	f, err := asFloat(in)
	if err != nil {
		return nil, err
	}
	switch method {
	case "common":
		if n, ok := asBig(in); ok {
			if digits >= 0 {
				return normalInt(n), nil
			}
			return roundInt(n, -digits), nil
		}
		return Float(roundFloat(f, int(digits))), nil
	case "ceil", "floor":
		scale := math.Pow(10, float64(digits))
		g := f * scale
		if method == "ceil" {
			g = math.Ceil(g)
		} else {
			g = math.Floor(g)
		}
		return Float(g / scale), nil
	}
	return nil, errorf(ArgumentError, "method must be common, ceil or floor")
}

// roundFloat is Python's round(f, digits): to the nearest decimal of the exact value, ties to even.
func roundFloat(f float64, digits int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) || digits > 322 {
		return f
	}
	if digits >= 0 {
		g, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return g
	}
	if digits < -308 {
		return math.Copysign(0, f)
	}
	scale := math.Pow(10, float64(-digits))
	return math.RoundToEven(f/scale) * scale
}

func roundInt(n *big.Int, digits int64) Value {
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(digits), nil)
	q, m := new(big.Int).DivMod(n, scale, new(big.Int))
	switch c := new(big.Int).Lsh(m, 1).Cmp(scale); {
	case c > 0, c == 0 && q.Bit(0) == 1:
		q.Add(q, big.NewInt(1))
	}
	return normalInt(q.Mul(q, scale))
}

func filterFileSize(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("filesizeformat", 0, "binary")
	if err != nil {
		return nil, err
	}
	binary, err := truthOr(st, p[0], false)
	if err != nil {
		return nil, err
	}
	v, err := filterFloat(st, in, &arguments{pos: []Value{None{}}})
	if err != nil {
		return nil, err
	}
	size, ok := v.(Float)
	if !ok {
		return nil, errorf(ValueError, "could not convert the value to a size")
	}
	base, names := 1000.0, "kMGTPEZY"
	suffix := "B"
	if binary {
		base, names, suffix = 1024, "KMGTPEZY", "iB"
	}
	f := float64(size)
	switch {
	case f == 1:
		return String("1 Byte"), nil
	case f < base:
		return String(fmt.Sprintf("%d Bytes", int64(f))), nil
	}
	unit := base
	for i := range names {
		unit *= base
		if f < unit || i == len(names)-1 {
			return String(fmt.Sprintf("%.1f %c%s", base*f/unit, names[i], suffix)), nil
		}
	}
	return nil, nil
}

func filterSum(st *state, in Value, a *arguments) (Value, error) {
	p, err := a.bind("sum", 0, "attribute", "start")
	if err != nil {
		return nil, err
	}
	total := p[1]
	if total == nil {
		total = Int(0)
	}
	if _, ok := text(total); ok {
		return nil, typeErrorf("sum() can't sum strings [use ''.join(seq) instead]")
	}
	get, err := st.attrGetter(orNone(p[0]), nil, false)
	if err != nil {
		return nil, err
	}
	items, err := st.collect(in)
	if err != nil {
		return nil, err
	}
	for _, it := range items {
		v, err := get(it)
		if err != nil {
			return nil, err
		}
		if total, err = st.binary(opAdd, total, v); err != nil {
			return nil, err
		}
	}
	return total, nil
}
