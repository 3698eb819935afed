package models

import (
	"fmt"

	"omni-engine/kernels"
)

// Metadata is GGUF's key-value part.
type Metadata interface {
	String(key string) (string, bool)
	Int(key string) (int64, bool)
	Float(key string) (float64, bool)
	Ints(key string) ([]int64, bool)
	Bool(key string) (value, ok bool)
}

// Source is a checkpoint: Config and perhaps Generation of a Hugging Face folder, or the Metadata of a GGUF file; and its weights.
type Source struct {
	Config     []byte // config.json
	Generation []byte // generation_config.json, may be nil
	Metadata   Metadata
	Weights    Weights

	MaxModelLen int    // that the engine will serve; 0: what the model was made for
	Part        string // of a model of several stages: Thinker, Talker, Code2Wav; empty: the first
	BuildOptions
}

// Model is a module and the facts that the engine needs.
type Model struct {
	Module       *kernels.Module
	Architecture string
	Config       DecoderConfig
	Vocab        int
	Hidden       int
	MaxModelLen  int     // positions that the model was made for
	EOS          []int32 // that end a sequence; generation_config.json before config.json
	BOS          []int32
	DType        string // as the checkpoint names it
	Groups       []kernels.GroupSpec
	Recurrent    bool // has slot states: a prefix cannot be taken from the cache, nor a request resumed from it
	Rate, Delay  int  // Code2Wav: samples a frame; samples before the signal's start
}

// Load builds the module of a checkpoint. An unknown architecture is refused with the list of known ones.
func Load(src Source) (*Model, error) {
	if src.Metadata != nil {
		return loadGGUF(src)
	}
	c, err := parseObject(src.Config)
	if err != nil {
		return nil, err
	}
	if class := c.str("_class_name", ""); class != "" {
		return loadDiffusers(class, c, src)
	}
	archs := c.strings("architectures")
	if len(archs) == 0 {
		return nil, fmt.Errorf("config.json: no architectures")
	}
	if c.has("quantization_config") {
		return nil, fmt.Errorf("config.json: quantization_config is not supported; quantised models are read from GGUF")
	}
	var m *Model
	if archs[0] == "Qwen3OmniMoeForConditionalGeneration" {
		m, err = loadQwen3Omni(c, src)
	} else {
		f, ok := families()[archs[0]]
		if !ok {
			return nil, fmt.Errorf("config.json: architecture %s is not supported; supported are %v", archs[0], Architectures())
		}
		if src.Part != "" {
			return nil, fmt.Errorf("config.json: %s has no part %q", archs[0], src.Part)
		}
		m, err = loadDecoder(c, archs[0], f, src)
	}
	if err != nil {
		return nil, err
	}
	if len(src.Generation) > 0 && src.Part != Talker {
		g, err := parseObject(src.Generation)
		if err != nil {
			return nil, fmt.Errorf("generation_config.json: %w", err)
		}
		if ids := g.ids("eos_token_id"); len(ids) > 0 {
			m.EOS = ids
		}
	}
	return m, nil
}

// loadDecoder builds a decoder from its config.
func loadDecoder(c object, arch string, f family, src Source) (*Model, error) {
	h := &hf{object: c, family: f, arch: arch, maxModelLen: src.MaxModelLen}
	cfg, err := h.decoder()
	if err != nil {
		return nil, err
	}
	m, err := finish(cfg, f.names(), src)
	if err != nil {
		return nil, err
	}
	m.BOS = c.ids("bos_token_id")
	return m, nil
}

func finish(cfg *DecoderConfig, names Names, src Source) (*Model, error) {
	module, err := Build(cfg, names, src.Weights, src.BuildOptions)
	if err != nil {
		return nil, err
	}
	return facts(cfg, module), nil
}

func facts(cfg *DecoderConfig, module *kernels.Module) *Model {
	m := &Model{Module: module, Architecture: cfg.Architecture, Config: *cfg, Vocab: cfg.Vocab, Hidden: cfg.Hidden,
		MaxModelLen: cfg.MaxModelLen, EOS: cfg.EOS, DType: cfg.DType, Groups: module.Groups}
	for _, s := range module.States {
		m.Recurrent = m.Recurrent || s.Kind == kernels.Slot
	}
	return m
}

// loadDiffusers builds a component of a diffusers pipeline.
func loadDiffusers(class string, c object, src Source) (*Model, error) {
	var m *Model
	var err error
	switch class {
	case "ZImageTransformer2DModel":
		m, err = loadZImage(c, src)
	case "AutoencoderKL":
		m, err = loadVAE(c, src)
	default:
		return nil, fmt.Errorf("config.json: class %s is not supported; supported are AutoencoderKL, ZImageTransformer2DModel", class)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", class, err)
	}
	return m, nil
}
