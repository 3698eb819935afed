package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/internal/server/openai"
	"omni-engine/internal/server/schema"
	"omni-engine/internal/tokenizer"
)

func TestRealModelsTokeniseAsRecorded(t *testing.T) {
	for _, m := range realModels(t) {
		t.Run(m.name, func(t *testing.T) {
			src, _ := openReal(t, m.path)
			holdText(t, src, readFacts(t, m.name))
		})
	}
}

func TestHuggingFaceFolderTokenisesAsRecorded(t *testing.T) {
	src, _ := openReal(t, folder(t, smollm2(t), "bf16"))
	holdText(t, src, readFacts(t, "smollm2"))
	if path := os.Getenv("OMNI_MODEL_GEMMA3"); path != "" && long() {
		src, _ := openReal(t, folder(t, path, "bf16"))
		holdText(t, src, readFacts(t, "gemma3"))
	}
}

// holdText compares token ids, decoded texts and chat renderings.
func holdText(t *testing.T, src *source, f *facts) {
	t.Helper()
	for _, c := range f.Tokenize {
		got, err := apiTokenizer{src.tokenizer}.Encode(c.Text, true)
		require.NoError(t, err)
		require.Equal(t, c.IDs, append([]int32{}, got...), "%q", c.Text)
		got, err = src.tokenizer.Encode(c.Text, tokenizer.EncodeOptions{AddSpecial: true})
		require.NoError(t, err)
		if src.gguf != nil {
			require.Equal(t, c.Plain, append([]int32{}, got...), "%q with special tokens as text", c.Text)
		}
		require.Equal(t, c.Decoded, streamTokenizer{src.tokenizer}.Decode(c.Bare), "%q", c.Text)
	}
	got, err := apiTokenizer{src.tokenizer}.Encode(f.Perplexity.Text, true)
	require.NoError(t, err)
	require.Equal(t, f.Perplexity.IDs, got)
	if src.template == "" {
		require.Empty(t, f.Chat, "the model has no chat template")
		return
	}
	holdChat(t, src, f)
}

func holdChat(t *testing.T, src *source, f *facts) {
	t.Helper()
	require.NotEmpty(t, f.Chat)
	r, err := openai.NewRenderer(src.template, src.special, "auto")
	require.NoError(t, err)
	for _, c := range f.Chat {
		v, err := schema.Parse(c.Messages)
		require.NoError(t, err)
		text, err := r.Render(openai.ChatInput{Messages: v.([]any), AddGenerationPrompt: c.AddGenerationPrompt})
		require.NoError(t, err)
		require.Equal(t, c.Rendered, text)
		ids, err := apiTokenizer{src.tokenizer}.Encode(text, false)
		require.NoError(t, err)
		require.Equal(t, c.IDs, ids, "%q", text)
	}
}
