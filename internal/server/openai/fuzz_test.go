package openai

import (
	"encoding/json"
	"testing"

	"omni-engine/engine/request"
	"omni-engine/stages"
)

// FuzzBodies sends arbitrary bytes to both endpoints: every answer is an error object or a success, and nothing panics.
func FuzzBodies(f *testing.F) {
	for _, g := range goldens(f, "*/*.json") {
		if g.Request.Method == "POST" && len(g.body()) > 0 {
			f.Add(g.body())
		}
	}
	for _, s := range []string{"", "null", "[]", `"x"`, "{", `{"prompt":[1,"a"]}`, `{"prompt":[[]],"n":2}`, `{"messages":[null]}`, `{"messages":[{"role":"user","content":[null]}]}`,
		`{"prompt":"a","stop":[1]}`, `{"messages":[{"role":"assistant","tool_calls":[{"function":{"arguments":"{"}}]}]}`, `{"prompt":"\ud800"}`, `{"prompt":1e400}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"} {
			end := script{updates: []stages.Update{last(said("x", 1), request.FinishLength)}}
			r := &scripted{}
			for range 64 {
				r.scripts = append(r.scripts, end)
			}
			w := post(t, newTestServer(t, r, spelled{}, nil), path, string(body))
			if w.Code == 500 && len(r.requests()) < 64 {
				t.Fatalf("%s %q: %s", path, body, w.Body)
			}
			if w.Code != 200 && !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s %q: %d %s", path, body, w.Code, w.Body)
			}
		}
	})
}
