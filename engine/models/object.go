package models

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// object is a JSON object with typed access; null counts as absent.
type object map[string]any

func parseObject(raw []byte) (object, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if err := o.checkNumbers(); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return o, nil
}

// checkNumbers refuses what stands where a number belongs: read as absent, it would give another model than the file describes.
// Lists and objects are some families' own spelling, and left to them.
func (o object) checkNumbers() error {
	for key, v := range o {
		switch v := v.(type) {
		case map[string]any:
			if err := object(v).checkNumbers(); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		case string, bool:
			if slices.Contains(counts(), key) || slices.Contains(factors(), key) {
				return fmt.Errorf("%s is %#v, not a number", key, v)
			}
		case float64:
			if slices.Contains(counts(), key) && (v != math.Trunc(v) || math.Abs(v) > math.MaxInt32) {
				return fmt.Errorf("%s is %v, not a whole number within 31 bits", key, v)
			}
		}
	}
	return nil
}

func counts() []string {
	return []string{"num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
		"vocab_size", "num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"}
}

func factors() []string {
	return []string{"rms_norm_eps", "layer_norm_eps", "rope_theta", "partial_rotary_factor", "factor"}
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
