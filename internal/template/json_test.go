package template

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func dump(t testing.TB, v Value) string {
	out, err := filterToJSON(&state{lim: DefaultLimits()}, v, &arguments{})
	require.NoError(t, err)
	return string(out.(String))
}

func TestJSONKeepsOrderAndKindsOfNumbers(t *testing.T) {
	for in, want := range map[string]string{
		`{"b":1,"a":2,"b":3}`:             `{"b": 3, "a": 2}`,
		`[1,1.0,1e2,-0,-0.0,1E+2,1.5e-7]`: `[1, 1.0, 100.0, 0, -0.0, 100.0, 1.5e-07]`,
		`12345678901234567890123`:         `12345678901234567890123`,
		`[1e999,-1e999]`:                  `[Infinity, -Infinity]`,
		` [ ] `:                           `[]`,
		`"\u00e9\ud83c\udf06\n\/\ud83cx"`: `"é🌆\n/` + "\uFFFD" + `x"`,
		"\"\xff\"":                        "\"\uFFFD\"",
		`[true,false,null]`:               `[true, false, null]`,
		`{"":{"x":[{}]}}`:                 `{"": {"x": [{}]}}`,
		`"\u2028\u007f\u0001\b\f"`:        "\"\u2028\u007f\\u0001\\b\\f\"",
		`{"1":1,"2":2,"3":3,"4":4,"5":5,"6":6,"7":7,"8":8,"9":9,"a":10,"1":0}`: `{"1": 0, "2": 2, "3": 3, "4": 4, "5": 5, "6": 6, "7": 7, "8": 8, "9": 9, "a": 10}`,
	} {
		v, err := FromJSON([]byte(in))
		require.NoError(t, err, in)
		assert.Equal(t, want, dump(t, v), in)
	}
}

func TestMalformedJSONIsRefused(t *testing.T) {
	for _, in := range []string{"", " ", "{", "[", `"`, `"\`, `"\u12"`, `"\x"`, "[1,]", "[1 2]", `{"a"}`, `{"a":}`, `{a:1}`, `{"a":1,}`, "01", "-", "1.", ".5", "1e", "+1",
		"NaN", "nul", "1 2", "\"\n\"", "[" + string(make([]byte, 3))} {
		_, err := FromJSON([]byte(in))
		assert.Error(t, err, "%q", in)
	}
	deep := make([]byte, 10000)
	for i := range deep {
		deep[i] = '['
	}
	_, err := FromJSON(deep)
	assert.ErrorContains(t, err, "deep")
}

func TestJSONRoundTripsThroughTojson(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		leaves := []*rapid.Generator[any]{rapid.String().AsAny(), rapid.Int64().AsAny(), rapid.Float64().AsAny(), rapid.Bool().AsAny(), rapid.Just[any](nil)}
		if depth > 0 {
			leaves = append(leaves, rapid.SliceOfN(value(depth-1), 0, 12).AsAny(), rapid.MapOfN(rapid.String(), value(depth-1), 0, 12).AsAny())
		}
		return rapid.OneOf(leaves...)
	}
	rapid.Check(t, func(rt *rapid.T) {
		raw, err := json.Marshal(value(3).Draw(rt, "value"))
		require.NoError(rt, err)
		v, err := FromJSON(raw)
		require.NoError(rt, err)
		again, err := FromJSON([]byte(dump(t, v)))
		require.NoError(rt, err)
		st := &state{lim: DefaultLimits()}
		same, err := st.equal(v, again)
		require.NoError(rt, err)
		require.True(rt, same, "%s", raw)
		require.JSONEq(rt, string(raw), dump(t, v))
	})
}

func FuzzFromJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5,"x",null,true]}`, `"\ud83c\udf06"`, `[[[]]]`, `-1e5`, `{"a":1,"a":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := FromJSON(data)
		if (err == nil) && !json.Valid(data) {
			t.Fatalf("accepted %q, which is not JSON", data)
		}
		if err == nil {
			dump(t, v)
		}
	})
}
