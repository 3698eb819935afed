package template

import (
	"context"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzRender parses and renders anything: no panic, no hang, and the limits hold.
func FuzzRender(f *testing.F) {
	r, _ := loadRecorded(f)
	for i, c := range r.Cases {
		if i%7 == 0 {
			f.Add(c.Src, `{"l":[3,1,2],"d":{"a":{"b":1}},"s":"Hé","n":5,"t":true}`)
		}
	}
	limits := Limits{Steps: 200_000, Output: 1 << 16, Memory: 8 << 20, Depth: 60}
	f.Fuzz(func(t *testing.T, src, vars string) {
		if len(src) > 1<<14 {
			return
		}
		tmpl, err := Parse(src, WithClock(corpusClock))
		if err != nil {
			return
		}
		tmpl.ContentFormat()
		tmpl.Variables()
		v, err := FromJSON([]byte(vars))
		d, ok := v.(*Dict)
		if err != nil || !ok {
			d = NewDict()
		}
		before := dump(t, d)
		began := time.Now()
		out, err := tmpl.Render(context.Background(), d, limits)
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("took %v", took)
		}
		if len(out) > limits.Output {
			t.Fatalf("output of %d bytes", len(out))
		}
		if err == nil && utf8.ValidString(src) && !utf8.ValidString(out) {
			t.Fatalf("output is not UTF-8: %q", out)
		}
		if after := dump(t, d); before != after {
			t.Fatalf("the variables changed from %s to %s", before, after)
		}
	})
}

// FuzzParse feeds the lexer and parser alone, which see the most hostile text.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"{{ 1 }}", "{% if x %}{% endif %}", "{#- c -#}", "{% raw -%}x{%- endraw %}", "{{ 'a\\u00e9' }}", "{{ 0x1F + 1_0.5e3 }}",
		"{% macro m(a, b=1) %}{{ caller() }}{% endmacro %}{% call(x) m(*a, **b) %}{% endcall %}", "{{ x[1:2, ::3] }}", "{{ {'a': (1,)} }}"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, src string) {
		if tmpl, err := Parse(src); err == nil {
			tmpl.Variables()
		}
	})
}
