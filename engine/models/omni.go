package models

import (
	"fmt"

	"omni-engine/kernels"
)

// The parts of Qwen3-Omni, one a stage.
const (
	Thinker  = "thinker"  // text to text, and hidden states
	Talker   = "talker"   // codec frames: codes by Sample, the others by entry "code_predictor"
	Code2Wav = "code2wav" // frames to samples: entry "vocode"
)

// loadQwen3Omni builds one part of Qwen3OmniMoeForConditionalGeneration.
func loadQwen3Omni(c object, src Source) (*Model, error) {
	part := src.Part
	if part == "" {
		part = Thinker
	}
	var m *Model
	var err error
	switch part {
	case Thinker:
		f := families()["Qwen3MoeForCausalLM"]
		f.names = func() Names { return under("thinker.", qwenMoENames()) }
		m, err = loadDecoder(c.object("thinker_config").object("text_config"), "Qwen3OmniMoeThinker", f, src)
	case Talker:
		m, err = loadTalker(c.object("talker_config"), src)
	case Code2Wav:
		m, err = loadVocoder(c.object("code2wav_config"), src)
	default:
		return nil, fmt.Errorf("Qwen3-Omni has no part %q; its parts are thinker, talker and code2wav", part)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", part, err)
	}
	return m, nil
}

// under puts a prefix before a checkpoint's names.
func under(prefix string, n Names) Names {
	n.Embed, n.FinalNorm, n.Head, n.Layer = prefix+n.Embed, prefix+n.FinalNorm, prefix+n.Head, prefix+n.Layer
	return n
}

// mlp2 emits Linear, Act, Linear.
func (b *builder) mlp2(dst string, x kernels.BufferID, first, second string, act kernels.Act) kernels.BufferID {
	h := b.linear(dst+"_inner", x, b.proj(first), 0)
	b.op(&kernels.Unary{Out: h, In: h, Act: act})
	return b.linear(dst, h, b.proj(second), 0)
}
