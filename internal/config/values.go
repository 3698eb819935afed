package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// value is a pflag.Value that is made from functions; list values replace, not append, on a new source.
type value struct {
	set   func(string) error
	get   func() string
	kind  string
	multi bool // repeated and space-separated values add up
}

func (v value) Set(s string) error { return v.set(s) }
func (v value) String() string {
	if v.get == nil { // pflag makes a zero value to find defaults
		return ""
	}
	return v.get()
}
func (v value) Type() string { return v.kind }

var _ pflag.Value = value{}

func stringValue(p *string) value {
	return value{func(s string) error { *p = s; return nil }, func() string { return *p }, "string", false}
}

func number[T any](p *T, kind string, parse func(string) (T, error)) value {
	return value{func(s string) error {
		n, err := parse(s)
		if err == nil {
			*p = n
		}
		return err
	}, func() string { return fmt.Sprint(*p) }, kind, false}
}

func intValue(p *int) value {
	return number(p, "int", func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", s)
		}
		return n, nil
	})
}

func int64Value(p *int64) value {
	return number(p, "int", func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", s)
		}
		return n, nil
	})
}

func floatValue(p *float64) value {
	return number(p, "float", func(s string) (float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return 0, fmt.Errorf("%q is not a finite number", s)
		}
		return f, nil
	})
}

func boolValue(p *bool) value {
	return number(p, "bool", func(s string) (bool, error) {
		b, err := strconv.ParseBool(strings.ToLower(s))
		if err != nil {
			return false, fmt.Errorf("%q is neither true nor false", s)
		}
		return b, nil
	})
}

// autoValue is a bool that may stay undecided: auto, true or false.
func autoValue(p *string) value {
	return number(p, "bool", func(s string) (string, error) {
		if strings.EqualFold(s, "auto") {
			return "auto", nil
		}
		b, err := strconv.ParseBool(strings.ToLower(s))
		if err != nil {
			return "", fmt.Errorf("%q is neither true, false nor auto", s)
		}
		return strconv.FormatBool(b), nil
	})
}

func secondsValue(p *time.Duration) value {
	return value{func(s string) error {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f >= 0) || f > 1e9 {
			return fmt.Errorf("%q is not a number of seconds", s)
		}
		*p = time.Duration(f * float64(time.Second))
		return nil
	}, func() string { return strconv.FormatFloat(p.Seconds(), 'f', -1, 64) }, "seconds", false}
}

func choiceValue(p *string, allowed ...string) value {
	return value{func(s string) error {
		for _, a := range allowed {
			if strings.EqualFold(s, a) {
				*p = a
				return nil
			}
		}
		return fmt.Errorf("%q is not one of: %s", s, strings.TrimPrefix(strings.Join(allowed, ", "), ", "))
	}, func() string { return *p }, strings.TrimPrefix(strings.Join(allowed, "|"), "|"), false}
}

func listValue(p *[]string) value {
	return value{func(s string) error {
		for _, e := range strings.Split(s, ",") {
			if e = strings.TrimSpace(e); e != "" {
				*p = append(*p, e)
			}
		}
		return nil
	}, func() string { return strings.Join(*p, ",") }, "list", true}
}

func jsonListValue(p *[]string) value {
	return value{func(s string) error {
		var l []string
		if err := json.Unmarshal([]byte(s), &l); err != nil {
			return fmt.Errorf("%q is not a JSON list of strings", s)
		}
		*p = l
		return nil
	}, func() string { b, _ := json.Marshal(*p); return string(b) }, "json", false}
}

// humanValue reads vLLM's human-readable integers: 1k is 1000, 1K is 1024, 25.6k is 25600. auto (also -1) is 0.
func humanValue(p *int, auto bool) value {
	return number(p, "int", func(s string) (int, error) {
		if auto && (s == "auto" || s == "-1") {
			return 0, nil
		}
		n, err := parseHuman(s)
		return int(n), err
	})
}

// bytesValue is humanValue for sizes.
func bytesValue(p *int64) value { return number(p, "bytes", parseHuman) }

func parseHuman(s string) (int64, error) {
	bad := fmt.Errorf("%q is not a number such as 4096, 4k (4000), 4K (4096) or 25.6k", s)
	if s == "" {
		return 0, bad
	}
	scale, digits := int64(1), s
	if i := strings.IndexByte("kmgtKMGT", s[len(s)-1]); i >= 0 {
		digits = s[:len(s)-1]
		base := int64(1000)
		if i >= 4 {
			base = 1024
		}
		for range i%4 + 1 {
			scale *= base
		}
	}
	if n, err := strconv.ParseInt(digits, 10, 64); err == nil {
		if n < 0 || (n > 0 && n > math.MaxInt64/scale) {
			return 0, bad
		}
		return n * scale, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil || scale == 1 || scale%1024 == 0 || !(f >= 0) || f*float64(scale) > 1<<53 {
		return 0, bad
	}
	return int64(math.Round(f * float64(scale))), nil
}
