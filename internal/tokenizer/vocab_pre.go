package tokenizer

// ggufPre is what the name of a GGUF's pre-tokenizer stands for.
type ggufPre struct {
	split        pretokenizer
	ignoreMerges bool
}

// ggufPretokenizer knows the names that llama.cpp's converter writes for the patterns that have a scanner here. llama.cpp
// applies no normal form to them, and neither does this.
func ggufPretokenizer(name string) (ggufPre, bool) {
	split := func(patterns ...string) pretokenizer {
		var s sequence
		for _, p := range patterns {
			known, _ := knownScanner(p)
			s = append(s, splitter{finder: scanFinder{known}})
		}
		return s
	}
	switch name {
	case "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b":
		return ggufPre{split: split(`\p{N}`, patternGPT2)}, true
	case "gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0",
		"mellum", "exaone4":
		return ggufPre{split: split(patternGPT2)}, true
	case "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2":
		return ggufPre{split: split(patternLlama3), ignoreMerges: true}, true
	case "dbrx", "smaug-bpe", "chatglm-bpe", "glm4":
		return ggufPre{split: split(patternLlama3)}, true
	case "qwen2", "deepseek-r1-qwen", "stablelm2", "megrez":
		return ggufPre{split: split(patternQwen2)}, true
	case "qwen35":
		return ggufPre{split: split(patternQwen35)}, true
	case "gpt-4o", "llama4":
		return ggufPre{split: split(patternO200k)}, true
	case "tekken":
		return ggufPre{split: split(patternTekken), ignoreMerges: true}, true
	case "kimi-k2":
		return ggufPre{split: split(patternKimi)}, true
	case "deepseek-v3", "hunyuan-dense":
		return ggufPre{split: split(patternDigits3, patternCJK, patternDeepSeek)}, true
	case "default", "":
		return ggufPre{split: split(`[\p{P}\$\+<=>\^~\|]+`, patternGPT2, `\p{N}+`, `[0-9][0-9][0-9]`)}, true
	}
	return ggufPre{}, false
}
