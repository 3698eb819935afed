package template

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestDeveloperMessagesBecomeOneSystemMessage(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"alone", `[{"role":"developer","content":"d","tools":[1]},{"role":"user","content":"u"}]`,
			`[{"role": "system", "content": "d"}, {"role": "user", "content": "u"}]`},
		{"after a system message", `[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"developer","content":[{"type":"text","text":"a"},"b",{"type":"image"}]}]`,
			`[{"role": "system", "content": "s\n\na\nb"}, {"role": "user", "content": "u"}]`},
		{"empty", `[{"role":"user","content":"u"},{"role":"developer","content":""}]`,
			`[{"role": "system", "content": ""}, {"role": "user", "content": "u"}]`},
		{"none there", `[{"role":"user","content":"u"},{"role":"system","content":"s"}]`,
			`[{"role": "user", "content": "u"}, {"role": "system", "content": "s"}]`},
	} {
		in := mustJSON(t, []byte(c.in)).(*List)
		before := dump(t, in)
		plain, err := Parse("{{ messages }}")
		require.NoError(t, err)
		assert.Equal(t, c.want, dump(t, plain.AdaptDeveloperRole(in)), c.name)
		assert.Equal(t, before, dump(t, in), c.name)
		knows, err := Parse("{{ 'developer' }}")
		require.NoError(t, err)
		assert.Same(t, in, knows.AdaptDeveloperRole(in), c.name)
	}
}
