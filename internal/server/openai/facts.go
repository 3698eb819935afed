package openai

import (
	"omni-engine/internal/server/schema"
)

// Tokenizer is what the front end needs of a tokenizer.
type Tokenizer interface {
	// Encode returns token ids; addSpecial adds the model's begin and end tokens. Special tokens in the text are recognised.
	Encode(text string, addSpecial bool) ([]int32, error)
	Decode(ids []int32, skipSpecial bool) string
	// TokenText is the vocabulary's own spelling of a token (tokenize's token_strs).
	TokenText(id int32) string
	// MaxTokenChars is the length of the longest token, for refusing hopelessly long prompts before tokenising them.
	MaxTokenChars() int
}

// ChatInput is one conversation to render.
type ChatInput struct {
	Messages, Tools, Documents []any // schema values
	Template                   string
	AddGenerationPrompt        bool
	ContinueFinalMessage       bool
	Kwargs                     *schema.Dict
}

// ChatTemplate renders conversations. An error that is meant for the client is returned as such by the renderer.
type ChatTemplate interface {
	Render(ChatInput) (string, error)
}

// Model is the served model.
type Model struct {
	Names     []string // the first is echoed
	Root      string
	Created   int64
	Limits    Limits
	Tokenizer Tokenizer
	Chat      ChatTemplate // nil: the model has no chat template
	EOS       []int32
}

func (m *Model) served(name string) bool {
	for _, n := range m.Names {
		if n == name {
			return true
		}
	}
	return false
}

// check answers an unknown model name; null and an absent field are the served model.
func (m *Model) check(d *schema.Dict) error {
	if v, ok := d.Get("model"); ok && v != nil {
		if name, _ := v.(string); name != "" && !m.served(name) {
			return notFound(name, m.Names)
		}
	}
	return nil
}
