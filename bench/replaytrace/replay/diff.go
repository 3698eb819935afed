package replay

import (
	"encoding/json"
	"fmt"
	"slices"
)

// diff returns the first difference between two decoded JSON values, "" when there is none.
func diff(path string, want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return differs(path, want, got)
		}
		keys := make([]string, 0, len(w)+len(g))
		for k := range w {
			keys = append(keys, k)
		}
		for k := range g {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			wv, inW := w[k]
			gv, inG := g[k]
			if !inW || !inG {
				return differs(path+"."+k, present(wv, inW), present(gv, inG))
			}
			if d := diff(path+"."+k, wv, gv); d != "" {
				return d
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok {
			return differs(path, want, got)
		}
		for i := range min(len(w), len(g)) {
			if d := diff(fmt.Sprintf("%s[%d]", path, i), w[i], g[i]); d != "" {
				return d + context(w, g)
			}
		}
		if len(w) != len(g) {
			return differs(path, want, got)
		}
		return ""
	}
	if want != got {
		return differs(path, want, got)
	}
	return ""
}

// context shows short lists whole, since one differing element says little about an order.
func context(w, g []any) string {
	a, b := text(w), text(g)
	if len(a)+len(b) > 400 {
		return ""
	}
	return fmt.Sprintf("\n    of vLLM %s\n    of ours %s", a, b)
}

type absent struct{}

func present(v any, ok bool) any {
	if !ok {
		return absent{}
	}
	return v
}

func text(v any) string {
	if _, ok := v.(absent); ok {
		return "(absent)"
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

func differs(path string, want, got any) string {
	return fmt.Sprintf("%s\n    vLLM %s\n    ours %s", path, text(want), text(got))
}

// plain turns a value into decoded JSON.
func plain(v any) (any, error) {
	b, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if b, err = json.Marshal(v); err != nil {
			return nil, fmt.Errorf("encoding for comparison: %w", err)
		}
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		return nil, fmt.Errorf("decoding for comparison: %w", err)
	}
	return out, nil
}
