package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"omni-engine/internal/config"
	"omni-engine/internal/hub"
	"omni-engine/internal/tensor"
	"omni-engine/internal/tokenizer"
	"omni-engine/internal/weights/gguf"
	"omni-engine/internal/weights/safetensors"
)

// weightFile is an open checkpoint, GGUF or safetensors.
type weightFile interface {
	Names() []string
	Tensor(name string) (tensor.View, error)
	DropPages() error
	Close() error
}

// source is a model on disk: weights, tokenizer and what its files say about serving it.
type source struct {
	path    string
	weights weightFile
	gguf    *gguf.File // nil for a directory
	config  []byte     // config.json, for a directory

	tokenizer  *tokenizer.Tokenizer
	template   string            // chat template, empty when there is none
	special    map[string]string // bos_token and the like, for the template
	generation map[string]any    // generation_config.json
	eos        []int32           // ends of sequence, the tokenizer's own first
}

// openSource finds and opens the configured model.
func openSource(ctx context.Context, cfg *config.Serve, progress func(hub.Progress)) (*source, error) {
	path, err := locate(ctx, cfg, progress)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open model: %w", err)
	}
	var s *source
	if info.IsDir() {
		s, err = openDirectory(path, cfg)
	} else {
		s, err = openGGUF(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open model %s: %w", path, err)
	}
	if err := s.overrides(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("open model %s: %w", path, err), s.Close())
	}
	return s, nil
}

// Close unmaps the weights.
func (s *source) Close() error { return s.weights.Close() }

// locate turns the model argument into a path: what exists on disk is taken as it is, org/name is looked up in the hub's cache
// or fetched.
func locate(ctx context.Context, cfg *config.Serve, progress func(hub.Progress)) (string, error) {
	name := cfg.Model
	if name == "" {
		if path := fetchedDefault(os.Getenv); path != "" {
			return path, nil
		}
		name = config.DefaultModel
	}
	if _, err := os.Stat(name); err == nil {
		return name, nil
	}
	if looksLikePath(name) {
		return "", fmt.Errorf("model %s: no such file or directory. Give a GGUF file, a Hugging Face directory, or a hub id (org/name)", name)
	}
	if cfg.Revision != "" {
		name += "@" + cfg.Revision
	}
	path, err := hub.Resolve(ctx, name, hub.Options{CacheDir: cfg.DownloadDir, Progress: progress, Retrying: retrying(os.Stderr)})
	if err != nil {
		return "", fmt.Errorf("model %s: %w", name, err)
	}
	return path, nil
}

// fetchedDefault is the default model where `make model` (scripts/model.sh) left it; empty when it is not there.
func fetchedDefault(getenv func(string) string) string {
	cache := getenv("OMNI_CACHE")
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return ""
		}
		cache = filepath.Join(base, "omni-engine")
	}
	path := filepath.Join(cache, "models", defaultModelFile)
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// defaultModelFile is scripts/model.sh's name for the default model.
const defaultModelFile = "smollm2-135m-instruct-q4_1.gguf"

func looksLikePath(name string) bool {
	return filepath.IsAbs(name) || strings.HasPrefix(name, ".") || strings.Count(name, "/") != 1 || strings.HasSuffix(name, ".gguf") && !strings.Contains(name, ":")
}

func openGGUF(path string) (*source, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	s := &source{path: path, weights: f, gguf: f, special: map[string]string{}}
	v, err := f.Vocab()
	if err == nil {
		err = s.fromVocab(v)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

func (s *source) fromVocab(v gguf.Vocab) error {
	is := func(b *bool, def bool) bool {
		if b == nil {
			return def
		}
		return *b
	}
	spm := v.Model == "llama" // SentencePiece models begin with bos and a space unless the file says otherwise
	t, err := tokenizer.FromVocab(tokenizer.Vocab{Model: v.Model, Pre: v.Pre, Tokens: v.Tokens, Scores: v.Scores, Types: v.Types, Merges: v.Merges,
		BOS: v.BOS, EOS: v.EOS, UNK: v.UNK, PAD: v.PAD, EOT: v.EOT,
		AddBOS: is(v.AddBOS, spm), AddEOS: is(v.AddEOS, false), AddSpacePrefix: is(v.AddSpacePrefix, spm)})
	if err != nil {
		return err
	}
	s.tokenizer, s.template = t, v.ChatTemplate
	for name, id := range map[string]int32{"bos_token": v.BOS, "eos_token": v.EOS, "unk_token": v.UNK, "pad_token": v.PAD} {
		if id >= 0 {
			s.special[name] = t.TokenText(id)
		}
	}
	for _, id := range []int32{v.EOS, v.EOT, v.EOM} {
		s.addEOS(id)
	}
	return nil
}

func (s *source) addEOS(id int32) {
	if id < 0 {
		return
	}
	for _, have := range s.eos {
		if have == id {
			return
		}
	}
	s.eos = append(s.eos, id)
}

func openDirectory(dir string, cfg *config.Serve) (*source, error) {
	s := &source{path: dir, special: map[string]string{}}
	var err error
	if s.config, err = os.ReadFile(filepath.Join(dir, "config.json")); err != nil {
		return nil, fmt.Errorf("a model directory needs config.json, tokenizer.json and *.safetensors: %w", err)
	}
	from := dir
	if cfg.Tokenizer != "" {
		from = cfg.Tokenizer
	}
	if err := s.readTokenizer(from); err != nil {
		return nil, err
	}
	if err := s.readGeneration(dir, cfg); err != nil {
		return nil, err
	}
	w, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	s.weights = w
	return s, nil
}

func (s *source) readTokenizer(dir string) error {
	data, err := os.ReadFile(filepath.Join(dir, "tokenizer.json"))
	if err != nil {
		return fmt.Errorf("a model directory needs tokenizer.json: %w", err)
	}
	facts, err := optional(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return err
	}
	var cfg tokenizer.Config
	if facts != nil {
		if cfg, err = tokenizer.ParseConfig(facts); err != nil {
			return err
		}
	}
	if s.tokenizer, err = tokenizer.FromJSON(data, cfg); err != nil {
		return err
	}
	for name, text := range map[string]string{"bos_token": cfg.BOSToken, "eos_token": cfg.EOSToken, "unk_token": cfg.UNKToken, "pad_token": cfg.PADToken} {
		if text != "" {
			s.special[name] = text
		}
	}
	s.addEOS(s.tokenizer.EOS())
	return s.readTemplate(dir, facts)
}

// readTemplate finds the chat template: chat_template.jinja, else tokenizer_config.json's (a text, or a list of named ones).
func (s *source) readTemplate(dir string, facts []byte) error {
	file, err := optional(filepath.Join(dir, "chat_template.jinja"))
	if err != nil || file != nil {
		s.template = string(file)
		return err
	}
	var holder struct {
		Template json.RawMessage `json:"chat_template"`
	}
	if facts == nil || json.Unmarshal(facts, &holder) != nil || len(holder.Template) == 0 {
		return nil
	}
	if json.Unmarshal(holder.Template, &s.template) == nil {
		return nil
	}
	var named []struct{ Name, Template string }
	if err := json.Unmarshal(holder.Template, &named); err != nil {
		return fmt.Errorf("tokenizer_config.json: chat_template is neither a text nor a list of named ones")
	}
	for _, n := range named {
		if n.Name == "default" || s.template == "" {
			s.template = n.Template
		}
	}
	return nil
}

// readGeneration reads generation_config.json as --generation-config says.
func (s *source) readGeneration(dir string, cfg *config.Serve) error {
	switch cfg.GenerationConfig {
	case "vllm":
		return nil
	case "auto":
	default:
		dir = cfg.GenerationConfig
	}
	data, err := optional(filepath.Join(dir, "generation_config.json"))
	if err != nil {
		return err
	}
	if data == nil {
		if cfg.GenerationConfig != "auto" {
			return fmt.Errorf("--generation-config: %s has no generation_config.json", dir)
		}
		return nil
	}
	if err := json.Unmarshal(data, &s.generation); err != nil {
		return fmt.Errorf("generation_config.json: %w", err)
	}
	switch ids := s.generation["eos_token_id"].(type) {
	case float64:
		s.addEOS(int32(ids))
	case []any:
		for _, id := range ids {
			if n, ok := id.(float64); ok {
				s.addEOS(int32(n))
			}
		}
	}
	return nil
}

// overrides applies --override-generation-config and --chat-template.
func (s *source) overrides(cfg *config.Serve) error {
	if cfg.OverrideGenerationConfig != "" {
		var over map[string]any
		if err := json.Unmarshal([]byte(cfg.OverrideGenerationConfig), &over); err != nil {
			return fmt.Errorf("--override-generation-config: %w", err)
		}
		if s.generation == nil {
			s.generation = map[string]any{}
		}
		for k, v := range over {
			s.generation[k] = v
		}
	}
	if cfg.ChatTemplate == "" {
		return nil
	}
	data, err := os.ReadFile(cfg.ChatTemplate)
	switch {
	case err == nil:
		s.template = string(data)
	case strings.ContainsAny(cfg.ChatTemplate, "{}\n"):
		s.template = cfg.ChatTemplate
	default:
		return fmt.Errorf("--chat-template is neither a readable file nor a template: %w", err)
	}
	return nil
}

// defaults are the sampling defaults of the generation config, under the API's names.
func (s *source) defaults() map[string]float64 {
	defaults := map[string]float64{}
	for theirs, ours := range map[string]string{"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
		"repetition_penalty": "repetition_penalty", "max_new_tokens": "max_tokens"} {
		if v, ok := s.generation[theirs].(float64); ok {
			defaults[ours] = v
		}
	}
	return defaults
}

// optional reads a file that may be absent (nil).
func optional(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}
