package template

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// benchmarkTemplate renders a real template with three messages.
func benchmarkTemplate(b *testing.B, name string) {
	src, err := os.ReadFile(filepath.Join(corpusDir(b), name+".jinja"))
	require.NoError(b, err)
	tmpl, err := Parse(string(src))
	require.NoError(b, err)
	in := ChatInput{
		Messages: mustJSON(b, []byte(`[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello, who are you?"},
			{"role":"assistant","content":"I am a model."},{"role":"user","content":"Go on."}]`)).(*List),
		AddGenerationPrompt: true,
		SpecialTokens:       NewDict().Set("bos_token", String("<s>")).Set("eos_token", String("</s>")),
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.RenderChat(context.Background(), in, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRenderSmolLM2(b *testing.B) { benchmarkTemplate(b, "smollm2-135m-instruct") }

func BenchmarkRenderQwen3(b *testing.B) { benchmarkTemplate(b, "axolotl-qwen3") }

func BenchmarkRenderPlain(b *testing.B) {
	tmpl, err := Parse(plainChat)
	require.NoError(b, err)
	in := ChatInput{Messages: mustJSON(b, []byte(`[{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}]`)).(*List)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.RenderChat(context.Background(), in, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseSmolLM2(b *testing.B) {
	src, err := os.ReadFile(filepath.Join(corpusDir(b), "smollm2-135m-instruct.jinja"))
	require.NoError(b, err)
	for b.Loop() {
		if _, err := Parse(string(src)); err != nil {
			b.Fatal(err)
		}
	}
}
