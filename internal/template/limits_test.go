package template

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func renderText(ctx context.Context, src string, vars *Dict, limits Limits) (string, error) {
	tmpl, err := Parse(src, WithClock(corpusClock))
	if err != nil {
		return "", err
	}
	return tmpl.Render(ctx, vars, limits)
}

func TestHostileTemplatesRunIntoALimit(t *testing.T) {
	double := func(op, show string) string {
		return "{% set ns = namespace(x=" + op + ") %}{% for i in range(60) %}{% set ns.x = " + show + " %}{% endfor %}"
	}
	small := Limits{Steps: 400_000, Output: 1 << 20, Memory: 16 << 20}
	for name, src := range map[string]string{
		"nested loops":           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
		"lazy filters":           "{% for a in range(100000) %}{{ range(100000)|select('gt', 100000)|list }}{% endfor %}",
		"doubled text":           double("'x'", "ns.x + ns.x"),
		"doubled by ~":           double("'x'", "ns.x ~ ns.x"),
		"doubled by format":      double("'x'", "'%s%s' % (ns.x, ns.x)"),
		"doubled by str.format":  double("'x'", "'{0}{0}'.format(ns.x)"),
		"doubled by replace":     double("'x'", "ns.x.replace('x', 'xx')"),
		"doubled by join":        double("'x'", "[ns.x, ns.x]|join"),
		"doubled list":           double("[1]", "ns.x + ns.x"),
		"doubled by escapes":     double("'&'", "(ns.x ~ ns.x)|forceescape"),
		"repeated text":          "{{ 'a' * 10**12 }}",
		"repeated list":          "{{ [1] * 10**12 }}",
		"huge power":             "{{ 2 ** (10 ** 9) }}",
		"powers of powers":       "{% set ns = namespace(x=3) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
		"wide field":             "{{ '%2000000000d' % 1 }}",
		"wide format":            "{{ '{:2000000000}'.format(1) }}",
		"wide star":              "{{ '%*d' % (2000000000, 1) }}",
		"wide center":            "{{ 'a'.center(10**12) }}",
		"wide zfill":             "{{ 'a'.zfill(10**12) }}",
		"wide tabs":              "{{ '\\t'.expandtabs(10**12) }}",
		"wide indent":            "{{ 'a'|indent(10**12) }}",
		"wide json indent":       "{{ [1]|tojson(indent=10**12) }}",
		"wide batch":             "{{ [1]|batch(10**12, 'x')|list }}",
		"wide slice":             "{{ [1]|slice(10**12)|list }}",
		"much output":            "{% for a in range(100000) %}0123456789012345678901234567890123456789{% endfor %}",
		"output of a macro":      "{% macro m() %}{% for a in range(100000) %}0123456789012345678901234567890{% endfor %}{% endmacro %}{{ m() }}",
		"repr of a shared graph": double("[1]", "[ns.x, ns.x]") + "{{ ns.x }}",
		"json of a shared graph": double("[1]", "[ns.x, ns.x]") + "{{ ns.x|tojson }}",
		"equality of graphs": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}" +
			"{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
		"order of graphs": "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}" +
			"{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x < ns.y }}",
		"a macro that calls itself":     "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"callers without end":           "{% macro m() %}{% call m() %}{% endcall %}{{ caller() }}{% endmacro %}{% call m() %}{% endcall %}",
		"a loop that calls itself":      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
		"a block that renders itself":   "{% block b %}{{ self.b() }}{% endblock %}",
		"a namespace that holds itself": "{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}",
		"a deep value":                  double("[]", "[ns.x]") + strings.Repeat("{% set ns.x = [ns.x] %}", 300) + "{{ ns.x }}",
		"tuples as keys":                "{% set ns = namespace(x=(1,)) %}{% for i in range(60) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{{ {ns.x: 1} }}",
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			_, err := renderText(context.Background(), src, NewDict(), small)
			var limit *LimitError
			var failed *Error
			switch {
			case errors.As(err, &limit):
				assert.NotEmpty(t, limit.What)
			case assert.ErrorAs(t, err, &failed):
				assert.Equal(t, RecursionError, failed.Kind)
			}
			assert.Less(t, time.Since(began), 5*time.Second)
		})
	}
}

func TestLimitsLeaveRoomForLongConversations(t *testing.T) {
	messages := NewList()
	for range 2000 {
		messages.items = append(messages.items, NewDict().Set("role", String("user")).Set("content", String(strings.Repeat("word ", 200))))
	}
	out, err := renderText(context.Background(), "{% for m in messages %}{{ m.role ~ ': ' + m.content|trim }}\n{% endfor %}",
		NewDict().Set("messages", messages), Limits{})
	require.NoError(t, err)
	assert.Greater(t, len(out), 2_000_000)
}

func TestNestingOfSourceIsBounded(t *testing.T) {
	for name, src := range map[string]string{
		"parentheses": "{{ " + strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000) + " }}",
		"lists":       "{{ " + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + " }}",
		"not":         "{{ " + strings.Repeat("not ", 100000) + "1 }}",
		"minus":       "{{ " + strings.Repeat("-", 100000) + "1 }}",
		"sums":        "{{ 1" + strings.Repeat("+1", 100000) + " }}",
		"filters":     "{{ 1" + strings.Repeat("|abs", 100000) + " }}",
		"attributes":  "{{ x" + strings.Repeat(".x", 100000) + " }}",
		"ifs":         strings.Repeat("{% if 1 %}", 100000) + strings.Repeat("{% endif %}", 100000),
		"elses":       "{{ " + strings.Repeat("1 if 0 else ", 100000) + "1 }}",
		"targets":     "{% set " + strings.Repeat("(", 100000) + "a" + strings.Repeat(")", 100000) + " = 1 %}",
	} {
		_, err := Parse(src)
		var syntax *SyntaxError
		assert.ErrorAs(t, err, &syntax, name)
	}
}

func TestRenderingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := renderText(ctx, "x", NewDict(), Limits{})
	require.ErrorIs(t, err, context.Canceled)

	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err = renderText(ctx, "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", NewDict(),
		Limits{Steps: 1 << 60})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(began), 5*time.Second)
}

func TestTemplatesCannotChangeTheirInput(t *testing.T) {
	vars := mustJSON(t, []byte(`{"l":[1,[2]],"d":{"a":{"b":1}}}`)).(*Dict)
	for _, src := range []string{"{{ l.append(1) }}", "{{ l[1].extend([3]) }}", "{{ d.a.update(b=2) }}", "{{ d.pop('a') }}", "{{ d.clear() }}",
		"{% set d.a = 1 %}", "{{ d['setdefault']('x', 1) }}", "{{ (l|attr('insert'))(0, 1) }}"} {
		_, err := renderText(context.Background(), src, vars, Limits{})
		var failed *Error
		require.ErrorAs(t, err, &failed, src)
		assert.Contains(t, []ErrorKind{SecurityError, RuntimeError}, failed.Kind, src)
	}
	_, err := renderText(context.Background(), "{% set l = l + [9] %}{% set d = dict(d, x=1) %}{{ l|reverse|list }}{{ l[:1]|sort }}", vars, Limits{})
	require.NoError(t, err)
	out, err := renderText(context.Background(), "{{ l }}{{ d }}", vars, Limits{})
	require.NoError(t, err)
	assert.Equal(t, "[1, [2]]{'a': {'b': 1}}", out)
}

func TestErrorsNameTheirLine(t *testing.T) {
	_, err := renderText(context.Background(), "a\n{% if 1 %}\n{{ x.y }}\n{% endif %}", NewDict(), Limits{})
	var failed *Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, Error{UndefinedError, "'x' is undefined", 3}, *failed)
	_, err = renderText(context.Background(), "\n\n{{ raise_exception('no') }}", NewDict(), Limits{})
	assert.Equal(t, &RaisedError{Message: "no", Line: 3}, err)
	_, err = Parse("a\n\n{{ 1 + }}")
	var syntax *SyntaxError
	require.ErrorAs(t, err, &syntax)
	assert.Equal(t, 3, syntax.Line)
}

func TestContentFormatOfAHostileTemplateTakesBoundedTime(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		b.WriteString("{% set a" + itoa(i+1) + " = a" + itoa(i) + " %}{% macro m" + itoa(i) + "() %}{% endmacro %}")
	}
	tmpl, err := Parse("{% set a0 = messages %}" + b.String())
	require.NoError(t, err)
	began := time.Now()
	assert.Equal(t, ContentString, tmpl.ContentFormat())
	assert.Less(t, time.Since(began), 10*time.Second)
}
