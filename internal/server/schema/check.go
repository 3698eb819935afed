package schema

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Error is one finding, as pydantic lists it.
type Error struct {
	Type, Loc, Msg string
	Input          any
	Ctx            string // Python source of the ctx dict's inside, empty for none
}

// Errors are all findings about a document.
type Errors []Error

// shown is how many findings a message lists.
const shown = 10

// Error is the message that vLLM's front end makes of them.
func (e Errors) Error() string {
	var b strings.Builder
	plural := "s"
	if len(e) == 1 {
		plural = ""
	}
	fmt.Fprintf(&b, "%d validation error%s:", len(e), plural)
	for i, f := range e {
		if i == shown {
			fmt.Fprintf(&b, "\n  ...and %d more errors", len(e)-shown)
			break
		}
		fmt.Fprintf(&b, "\n  {'type': %s, 'loc': %s, 'msg': %s, 'input': %s", reprString(f.Type), reprString(f.Loc), reprString(f.Msg), reprString(summary(f.Input)))
		if f.Ctx != "" {
			b.WriteString(", 'ctx': {" + f.Ctx + "}")
		}
		b.WriteByte('}')
	}
	return b.String()
}

// Param is the location of the first finding, what the error body calls param.
func (e Errors) Param() string {
	if len(e) == 0 {
		return ""
	}
	return e[0].Loc
}

// summary shows an input without repeating a large one.
func summary(v any) string {
	switch v := v.(type) {
	case []any:
		return fmt.Sprintf("<list of %d items>", len(v))
	case *Dict:
		return fmt.Sprintf("<dict of %d items>", v.Len())
	}
	return Text(v)
}

// Type checks a value at a location and returns it coerced.
type Type interface {
	check(loc string, v any, strict bool) (any, Errors)
}

// Check checks a request body against a model.
func Check(t Type, body any) (any, error) {
	if body == nil {
		return nil, Errors{{Type: "missing", Loc: "body", Msg: "Field required"}}
	}
	v, errs := t.check("body", body, false)
	if len(errs) > 0 {
		return nil, errs
	}
	return v, nil
}

func one(kind, loc, msg string, v any) Errors {
	return Errors{{Type: kind, Loc: loc, Msg: msg, Input: v}}
}

// Choose is a type that is picked by looking at the raw value first.
type Choose func(v any) Type

func (c Choose) check(loc string, v any, strict bool) (any, Errors) {
	return c(v).check(loc, v, strict)
}

type anyType struct{}

// Any accepts everything.
func Any() Type { return anyType{} }

func (anyType) check(_ string, v any, _ bool) (any, Errors) { return v, nil }

type strType struct{}

// Str is a string.
func Str() Type { return strType{} }

func (strType) check(loc string, v any, _ bool) (any, Errors) {
	if _, ok := v.(string); ok {
		return v, nil
	}
	return nil, one("string_type", loc, "Input should be a valid string", v)
}

type intType struct{ ge, le *big.Int }

// Int is a whole number that fits 64 bits.
func Int() Type { return intType{big.NewInt(math.MinInt64), big.NewInt(math.MaxInt64)} }

// IntGE is a whole number of at least n.
func IntGE(n int64) Type { return intType{big.NewInt(n), big.NewInt(math.MaxInt64)} }

func (t intType) check(loc string, v any, strict bool) (any, Errors) {
	n, errs := toInt(loc, v, strict)
	switch {
	case errs != nil:
		return nil, errs
	case n.Cmp(t.ge) < 0:
		return nil, Errors{{"greater_than_equal", loc, "Input should be greater than or equal to " + t.ge.String(), v, "'ge': " + t.ge.String()}}
	case n.Cmp(t.le) > 0:
		return nil, Errors{{"less_than_equal", loc, "Input should be less than or equal to " + t.le.String(), v, "'le': " + t.le.String()}}
	}
	return n.Int64(), nil
}

func toInt(loc string, v any, strict bool) (*big.Int, Errors) {
	switch x := v.(type) {
	case int64:
		return big.NewInt(x), nil
	case *big.Int:
		return x, nil
	case bool:
		if !strict {
			return big.NewInt(map[bool]int64{true: 1}[x]), nil
		}
	case float64:
		switch {
		case strict:
		case math.IsNaN(x) || math.IsInf(x, 0):
			return nil, one("finite_number", loc, "Input should be a finite number", v)
		case x != math.Trunc(x):
			return nil, one("int_from_float", loc, "Input should be a valid integer, got a number with a fractional part", v)
		default:
			n, _ := big.NewFloat(x).Int(nil)
			return n, nil
		}
	case string:
		if !strict {
			t := strings.TrimSpace(x)
			if i := strings.Index(t, "."); i > 0 && strings.Trim(t[i+1:], "0") == "" {
				t = t[:i]
			}
			if n, ok := new(big.Int).SetString(t, 10); ok && len(t) < 4300 {
				return n, nil
			}
			return nil, one("int_parsing", loc, "Input should be a valid integer, unable to parse string as an integer", v)
		}
	}
	return nil, one("int_type", loc, "Input should be a valid integer", v)
}

type floatType struct{}

// Float is a number.
func Float() Type { return floatType{} }

func (floatType) check(loc string, v any, strict bool) (any, Errors) {
	switch x := v.(type) {
	case float64:
		return x, nil
	case int64:
		return float64(x), nil
	case *big.Int:
		f, _ := new(big.Float).SetInt(x).Float64()
		return f, nil
	case bool:
		if !strict {
			return map[bool]float64{true: 1}[x], nil
		}
	case string:
		if !strict {
			if f, err := strconv.ParseFloat(strings.TrimSpace(x), 64); err == nil {
				return f, nil
			}
			return nil, one("float_parsing", loc, "Input should be a valid number, unable to parse string as a number", v)
		}
	}
	return nil, one("float_type", loc, "Input should be a valid number", v)
}

type boolType struct{}

// Bool is a boolean, or what pydantic takes for one.
func Bool() Type { return boolType{} }

func (boolType) check(loc string, v any, strict bool) (any, Errors) {
	unclear := one("bool_parsing", loc, "Input should be a valid boolean, unable to interpret input", v)
	switch x := v.(type) {
	case bool:
		return x, nil
	case int64:
		if !strict {
			if x == 0 || x == 1 {
				return x == 1, nil
			}
			return nil, unclear
		}
	case float64:
		if !strict {
			if x == 0 || x == 1 {
				return x == 1, nil
			}
			return nil, unclear
		}
	case string:
		if !strict {
			switch strings.ToLower(x) {
			case "1", "on", "t", "true", "y", "yes":
				return true, nil
			case "0", "off", "f", "false", "n", "no":
				return false, nil
			}
			return nil, unclear
		}
	}
	return nil, one("bool_type", loc, "Input should be a valid boolean", v)
}

type literal []string

// Literal is one of some strings.
func Literal(words ...string) Type { return literal(words) }

func (l literal) check(loc string, v any, _ bool) (any, Errors) {
	for _, w := range l {
		if v == any(w) {
			return v, nil
		}
	}
	quoted := make([]string, len(l))
	for i, w := range l {
		quoted[i] = reprString(w)
	}
	expected := quoted[len(l)-1]
	if len(l) > 1 {
		expected = strings.Join(quoted[:len(l)-1], ", ") + " or " + expected
	}
	return nil, Errors{{"literal_error", loc, "Input should be " + expected, v, "'expected': " + reprString(expected)}}
}
