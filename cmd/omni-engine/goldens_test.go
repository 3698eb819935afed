package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// recorded is one pair of vLLM 0.32's front end with SmolLM2-135M-Instruct.
type recorded struct {
	Name    string
	Request struct {
		Method, Path string
		Headers      map[string]string
		JSON         json.RawMessage
		Raw          *string
	}
	Response struct {
		Status  int
		BodyRaw string `json:"body_raw"`
		SSERaw  string `json:"sse_raw"`
	}
}

// skipped are the recorded cases that need what is not served yet, with the reason. They are refused, which TestRefusals checks.
func skipped(r recorded) string {
	body := string(r.Request.JSON)
	switch p := r.Request.Path; {
	case strings.HasPrefix(p, "/v1/responses"), strings.HasPrefix(p, "/v1/messages"), p == "/invocations", strings.HasSuffix(p, "/batch"),
		strings.HasSuffix(p, "/render"), p == "/server_info", p == "/tokenizer_info", p == "/kv_event_sources":
		return "endpoint of a later issue"
	case strings.Contains(body, "beam_search"), strings.Contains(body, "structured_outputs"), strings.Contains(body, `"json_schema"`),
		strings.Contains(body, `"json_object"`), strings.Contains(body, "logprob_token_ids"), strings.Contains(body, `"response_format": {"type": "xml`):
		return "refused until it is built"
	case r.Name == "bad_chat_content_part_unknown":
		return "the message is our own: vLLM's dumps every part type that other models read"
	}
	return ""
}

func recordings(t *testing.T, server string) []recorded {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "internal", "server", "openai", "testdata", "api", server, "*.json"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	sort.Strings(files)
	var all []recorded
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		var r recorded
		require.NoError(t, json.Unmarshal(data, &r), f)
		all = append(all, r)
	}
	return all
}

func replay(t *testing.T, h http.Handler, r recorded) *httptest.ResponseRecorder {
	t.Helper()
	body := []byte(r.Request.JSON)
	if r.Request.Raw != nil {
		body = []byte(*r.Request.Raw)
	}
	if string(body) == "null" {
		body = nil
	}
	req := httptest.NewRequest(r.Request.Method, r.Request.Path, bytes.NewReader(body))
	for k, v := range r.Request.Headers {
		req.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	return w
}

// same compares decoded JSON: equal keys and values, volatile ones only by kind, floats within tolerance.
func same(path string, want, got any, loose bool) error {
	last := path[strings.LastIndexByte(path, '.')+1:]
	switch last {
	case "id", "created", "system_fingerprint", "root", "metrics":
		return nil
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: want an object, got %v", path, got)
		}
		return sameObject(path, w, g, loose)
	case []any:
		g, ok := got.([]any)
		if ok && loose && last == "token_ids" {
			return nil
		}
		if !ok || len(g) != len(w) {
			return fmt.Errorf("%s: want %v, got %v", path, want, got)
		}
		for i := range w {
			if err := same(fmt.Sprintf("%s[%d]", path, i), w[i], g[i], loose); err != nil {
				return err
			}
		}
		return nil
	case float64:
		g, ok := got.(float64)
		if !ok {
			return fmt.Errorf("%s: want %v, got %v", path, want, got)
		}
		tolerance := 0.0
		if strings.Contains(path, "logprob") && !strings.HasSuffix(path, "rank") && !strings.Contains(path, "text_offset") {
			tolerance = 2e-3
		}
		if loose && (strings.Contains(path, "logprob") || strings.HasPrefix(path, ".usage")) {
			return nil
		}
		if math.Abs(w-g) > tolerance {
			return fmt.Errorf("%s: want %v, got %v", path, want, got)
		}
		return nil
	}
	if want != got {
		if _, text := want.(string); text && loose {
			if _, ok := got.(string); ok {
				return nil
			}
		}
		return fmt.Errorf("%s: want %v, got %v", path, want, got)
	}
	return nil
}

func sameObject(path string, w, g map[string]any, loose bool) error {
	free := loose && strings.Contains(path, "top_logprobs") // keyed by token text
	for k, v := range w {
		x, ok := g[k]
		if !ok && !free {
			return fmt.Errorf("%s.%s: missing", path, k)
		}
		if ok {
			if err := same(path+"."+k, v, x, loose); err != nil {
				return err
			}
		}
	}
	for k := range g {
		if _, ok := w[k]; !ok && !free {
			return fmt.Errorf("%s.%s: unexpected", path, k)
		}
	}
	return nil
}

// events are the decoded data events of a stream.
func events(raw string) (out []any) {
	for e := range strings.SplitSeq(raw, "\n\n") {
		data, ok := strings.CutPrefix(strings.TrimSpace(e), "data: ")
		if !ok {
			continue
		}
		var v any
		if json.Unmarshal([]byte(data), &v) != nil {
			v = data
		}
		out = append(out, v)
	}
	return out
}

func TestAnswersAreVLLMs(t *testing.T) {
	// The recorded server read the dequantised weights rounded to bfloat16.
	dir := folder(t, smollm2(t), "bf16")
	for _, c := range []struct {
		flags   []string
		servers []string
	}{
		{nil, []string{"f32", "bf16"}},
		{[]string{"--max-logprobs", "-1", "--disable-log-stats", "--allowed-origins", `["*"]`, "--fingerprint-mode", "none"}, []string{"nolog"}},
	} {
		h := serverOf(t, dir, append(c.flags, "--dtype", "float32", "--max-model-len", "2048")...).handler
		for _, server := range c.servers {
			for _, r := range recordings(t, server) {
				t.Run(server+"/"+r.Name, func(t *testing.T) { holdAnswer(t, h, r, server == "bf16") })
			}
		}
	}
}

// holdAnswer replays a request. A server of another arithmetic is compared in its errors only.
func holdAnswer(t *testing.T, h http.Handler, r recorded, errorsOnly bool) {
	if why := skipped(r); why != "" {
		t.Skip(why)
	}
	w := replay(t, h, r)
	require.Equal(t, r.Response.Status, w.Code, w.Body.String())
	if errorsOnly && r.Response.Status == http.StatusOK {
		return
	}
	if r.Response.SSERaw != "" {
		require.NoError(t, sameStream(events(r.Response.SSERaw), events(w.Body.String()), sampled(r)))
		return
	}
	var want, got any
	if json.Unmarshal([]byte(r.Response.BodyRaw), &want) != nil {
		require.Equal(t, r.Response.BodyRaw, w.Body.String())
		return
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got), w.Body.String())
	require.NoError(t, same("", want, got, sampled(r)))
}

// sampled cases draw with another generator: texts may differ, shapes may not.
func sampled(r recorded) bool {
	var p map[string]any
	_ = json.Unmarshal(r.Request.JSON, &p)
	temperature, set := p["temperature"].(float64)
	return !set || temperature > 0
}

// sameStream compares event by event; sampled streams may have other lengths and texts.
func sameStream(want, got []any, loose bool) error {
	if loose {
		want, got = slices.DeleteFunc(want, running), slices.DeleteFunc(got, running)
	}
	// How the choices of an answer interleave is chance.
	slices.SortStableFunc(want, byChoice)
	slices.SortStableFunc(got, byChoice)
	if len(want) != len(got) {
		return fmt.Errorf("want %d events, got %d: %v", len(want), len(got), got)
	}
	for i := range want {
		if err := same(fmt.Sprintf("event %d", i), want[i], got[i], loose); err != nil {
			return err
		}
	}
	return nil
}

// running events are those before a choice's last.
func running(event any) bool {
	d, _ := event.(map[string]any)
	l, _ := d["choices"].([]any)
	return len(l) > 0 && l[0].(map[string]any)["finish_reason"] == nil
}

func byChoice(a, b any) int { return choiceOf(a) - choiceOf(b) }

// choiceOf is an event's choice; those without one come last.
func choiceOf(event any) int {
	d, _ := event.(map[string]any)
	if l, _ := d["choices"].([]any); len(l) > 0 {
		index, _ := l[0].(map[string]any)["index"].(float64)
		return int(index)
	}
	return math.MaxInt
}
