package models

import (
	"encoding/json"
	"fmt"
)

// object is a JSON object with typed access; null counts as absent.
type object map[string]any

func parseObject(raw []byte) (object, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return o, nil
}

func (o object) has(key string) bool { return o[key] != nil }

func (o object) float(key string, def float64) float64 {
	if v, ok := o[key].(float64); ok {
		return v
	}
	return def
}

func (o object) integer(key string, def int) int {
	v, ok := o[key].(float64)
	if !ok || v < -1<<31 || v > 1<<31 {
		return def
	}
	return int(v)
}

// positive is integer, or def when the key's value is not above zero.
func (o object) positive(key string, def int) int {
	if n := o.integer(key, def); n > 0 {
		return n
	}
	return def
}

func (o object) boolean(key string, def bool) bool {
	if v, ok := o[key].(bool); ok {
		return v
	}
	return def
}

func (o object) str(key, def string) string {
	if v, ok := o[key].(string); ok {
		return v
	}
	return def
}

func (o object) object(key string) object {
	v, _ := o[key].(map[string]any)
	return v
}

func (o object) floats(key string) []float64 {
	var out []float64
	list, _ := o[key].([]any)
	for _, v := range list {
		f, ok := v.(float64)
		if !ok {
			return nil
		}
		out = append(out, f)
	}
	return out
}

func (o object) strings(key string) []string {
	var out []string
	list, _ := o[key].([]any)
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil
		}
		out = append(out, s)
	}
	return out
}

// ids reads a token id or a list of them.
func (o object) ids(key string) []int32 {
	if v, ok := o[key].(float64); ok && v >= 0 {
		return []int32{int32(v)}
	}
	var out []int32
	for _, f := range o.floats(key) {
		out = append(out, int32(f))
	}
	return out
}
