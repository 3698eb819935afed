package models

import (
	"fmt"
	"math"

	"omni-engine/kernels"
)

// ropeParams are one layer type's rope_parameters.
type ropeParams struct {
	object
	maxModelLen int // that the engine serves: chooses longrope's frequencies, as in vLLM
	maxPosition int // max_position_embeddings
}

// rope works out frequencies as transformers' modeling_rope_utils does, in float64.
func (p ropeParams) rope(dim int, pairing kernels.RopePairing) (*RopeConfig, error) {
	theta := p.float("rope_theta", 10000)
	kind := p.str("rope_type", p.str("type", "default"))
	if dim <= 0 || dim%2 != 0 || theta <= 0 {
		return nil, fmt.Errorf("rope: %d rotating columns, theta %g", dim, theta)
	}
	r := &RopeConfig{Dim: dim, Pairing: pairing, InvFreq: inverse(theta, dim), Factor: 1}
	var err error
	switch kind {
	case "default", "mrope":
	case "proportional": // dim is the whole head: the angles beyond the partial factor stay still
		r.scale(p.float("factor", 1))
		still := max(int(p.float("partial_rotary_factor", 1)*float64(dim)/2), 0)
		clear(r.InvFreq[min(still, len(r.InvFreq)):])
	case "linear":
		r.scale(p.float("factor", 1))
	case "dynamic":
		// A fixed alpha is Hunyuan's; without one the frequencies grow with the context, which no cache survives.
		if alpha := p.float("alpha", 0); alpha > 0 {
			r.InvFreq = inverse(theta*math.Pow(alpha, float64(dim)/float64(dim-2)), dim)
		} else if p.maxModelLen > p.maxPosition {
			err = fmt.Errorf("rope: dynamic scaling beyond %d positions is not supported", p.maxPosition)
		}
	case "llama3":
		err = p.llama3(r)
	case "yarn":
		err = p.yarn(r, theta)
	case "longrope", "su":
		err = p.longrope(r)
	default:
		err = fmt.Errorf("rope type %q is not supported", kind)
	}
	if err != nil {
		return nil, err
	}
	r.Axis, err = p.axes(dim / 2)
	return r, err
}

func inverse(theta float64, dim int) []float64 {
	f := make([]float64, dim/2)
	for i := range f {
		// As the reference does, in float32: long contexts amplify the difference.
		f[i] = float64(float32(1 / float64(float32(math.Pow(theta, float64(2*i)/float64(dim))))))
	}
	return f
}

func (r *RopeConfig) scale(factor float64) {
	for i := range r.InvFreq {
		r.InvFreq[i] /= factor
	}
}

func (p ropeParams) llama3(r *RopeConfig) error {
	factor, orig := p.float("factor", 0), p.float("original_max_position_embeddings", 0)
	low, high := p.float("low_freq_factor", 1), p.float("high_freq_factor", 4)
	if factor <= 0 || orig <= 0 || high <= low {
		return fmt.Errorf("rope: llama3 scaling with factor %g, %g original positions, frequency factors %g and %g", factor, orig, low, high)
	}
	for i, f := range r.InvFreq {
		wavelength := 2 * math.Pi / f
		switch {
		case wavelength > orig/low:
			r.InvFreq[i] = f / factor
		case wavelength >= orig/high:
			s := (orig/wavelength - low) / (high - low)
			r.InvFreq[i] = (1-s)*f/factor + s*f
		}
	}
	return nil
}

func (p ropeParams) yarn(r *RopeConfig, theta float64) error {
	factor, orig := p.float("factor", 1), p.float("original_max_position_embeddings", float64(p.maxPosition))
	if factor <= 0 || orig <= 0 {
		return fmt.Errorf("rope: yarn with factor %g and %g original positions", factor, orig)
	}
	dim := float64(r.Dim)
	turn := func(rotations float64) float64 {
		return dim * math.Log(orig/(rotations*2*math.Pi)) / (2 * math.Log(theta))
	}
	low, high := turn(p.float("beta_fast", 32)), turn(p.float("beta_slow", 1))
	if p.boolean("truncate", true) {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, dim-1)
	if low == high {
		high += 0.001
	}
	for i, f := range r.InvFreq {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		r.InvFreq[i] = f/factor*ramp + f*(1-ramp)
	}
	r.Factor = float32(p.yarnFactor(factor))
	return nil
}

func (p ropeParams) yarnFactor(factor float64) float64 {
	if p.has("attention_factor") {
		return p.float("attention_factor", 1)
	}
	all, m := p.float("mscale_all_dim", 0), p.float("mscale", 0)
	if m != 0 && all != 0 {
		return yarnMscale(m, factor) / yarnMscale(all, factor)
	}
	return yarnMscale(1, factor)
}

func yarnMscale(m, factor float64) float64 {
	if factor <= 1 {
		return 1
	}
	return 0.1*m*math.Log(factor) + 1
}

func (p ropeParams) longrope(r *RopeConfig) error {
	orig := p.float("original_max_position_embeddings", 0)
	if orig <= 0 {
		return fmt.Errorf("rope: longrope without original_max_position_embeddings")
	}
	key := "short_factor"
	if float64(p.maxModelLen) > orig {
		key = "long_factor"
	}
	factors := p.floats(key)
	if len(factors) != len(r.InvFreq) {
		return fmt.Errorf("rope: %s has %d entries, not %d", key, len(factors), len(r.InvFreq))
	}
	for i, f := range factors {
		r.InvFreq[i] /= f
	}
	if p.has("attention_factor") {
		r.Factor = float32(p.float("attention_factor", 1))
	} else if k := float64(p.maxPosition) / orig; k > 1 {
		r.Factor = float32(math.Sqrt(1 + math.Log(k)/math.Log(orig)))
	}
	return nil
}

// axes assigns pairs to mrope's three axes: by sections in a row, or interleaved (T, H, W, T, H, W, ..., T) as in Qwen3-VL.
func (p ropeParams) axes(pairs int) ([]uint8, error) {
	sections := p.floats("mrope_section")
	if len(sections) == 0 {
		return nil, nil
	}
	if len(sections) != 3 {
		return nil, fmt.Errorf("rope: mrope_section has %d entries, not 3", len(sections))
	}
	axis := make([]uint8, pairs)
	if p.boolean("mrope_interleaved", p.boolean("interleaved", false)) {
		for a := 1; a < 3; a++ {
			for i := a; i < min(3*int(sections[a]), pairs); i += 3 {
				axis[i] = uint8(a)
			}
		}
		return axis, nil
	}
	at := 0
	for a, n := range sections {
		for range int(n) {
			if at == pairs {
				return nil, fmt.Errorf("rope: mrope_section %v exceeds %d pairs", sections, pairs)
			}
			axis[at] = uint8(a)
			at++
		}
	}
	return axis, nil
}
