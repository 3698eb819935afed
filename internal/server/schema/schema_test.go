package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSyntaxErrorsAreThoseOfPython(t *testing.T) {
	for in, want := range map[string]SyntaxError{
		``:            {"Expecting value", 0},
		`{bad`:        {"Expecting property name enclosed in double quotes", 1},
		`{"a" 1}`:     {"Expecting ':' delimiter", 5},
		`{"a":1 "b"}`: {"Expecting ',' delimiter", 7},
		`{"é": }`:     {"Expecting value", 6},
		`[1,2`:        {"Expecting ',' delimiter", 4},
		`"abc`:        {"Unterminated string starting at", 0},
		"\"a\nb\"":    {"Invalid control character at", 2},
		`"\x"`:        {`Invalid \escape`, 1},
		`"\u12"`:      {`Invalid \uXXXX escape`, 2},
		`1 2`:         {"Extra data", 2},
		`-`:           {"Expecting value", 0},
	} {
		_, err := Parse([]byte(in))
		require.Equal(t, &want, err, in)
	}
}

func TestValuesKeepOrderAndKind(t *testing.T) {
	v, err := Parse([]byte(` {"b": [1, 1.0, -0, 1e2, true, null], "a": "\ud83d\ude00\n", "b": 123456789012345678901234567890} `))
	require.NoError(t, err)
	require.Equal(t, `{'b': 123456789012345678901234567890, 'a': '😀\n'}`, Repr(v))
	v, err = Parse([]byte(`[1, 1.0, 1e2, true, null, NaN, -Infinity, 1e22, 0.00001]`))
	require.NoError(t, err)
	require.Equal(t, `[1, 1.0, 100.0, True, None, nan, -inf, 1e+22, 1e-05]`, Repr(v))
}

func TestCoercionIsLax(t *testing.T) {
	m := Model(NonNull("i", Int()), NonNull("f", Float()), NonNull("b", Bool()), F("s", Str()))
	v, err := Parse([]byte(`{"i": "42", "f": "0.5", "b": "yes", "s": null, "extra": 1}`))
	require.NoError(t, err)
	out, err := Check(m, v)
	require.NoError(t, err)
	d := out.(*Dict)
	require.Equal(t, []any{int64(42), 0.5, true, "x"}, []any{d.Int("i", 0), d.Float("f", 0), d.Bool("b", false), d.Str("s", "x")})
	require.False(t, d.Has("s"))
	require.True(t, d.Has("extra"))
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x\u00e9"]}`, `[[[[`, `"\ud800"`, `1e999`, `{"a":}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data)
		if err == nil {
			_ = Repr(v)
			_, _ = Check(Model(F("a", OneOf(Str(), List(Int()), DictOf(Float())))), v)
		}
	})
}
