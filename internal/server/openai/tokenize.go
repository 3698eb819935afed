package openai

import (
	"net/http"

	"omni-engine/internal/server/schema"
)

type tokenizeResponse struct {
	Count       int      `json:"count"`
	MaxModelLen int      `json:"max_model_len"`
	Tokens      []int32  `json:"tokens"`
	TokenStrs   []string `json:"token_strs"`
}

func (s *Server) tokenize(w http.ResponseWriter, r *http.Request) {
	either := schema.Choose(func(v any) schema.Type {
		if d, ok := v.(*schema.Dict); ok && d.Has("messages") {
			return s.schemas.tokenizeChat
		}
		return s.schemas.tokenizeText
	})
	d, err := readBody(r, nil, either)
	if err != nil {
		writeError(w, err)
		return
	}
	if err := s.model.check(d); err != nil {
		writeError(w, err)
		return
	}
	text, special := d.Str("prompt", ""), d.Bool("add_special_tokens", true)
	if d.Has("messages") {
		special = d.Bool("add_special_tokens", false)
		if text, err = s.render(d); err != nil {
			writeError(w, err)
			return
		}
	}
	ids, err := s.model.Tokenizer.Encode(text, special)
	if err != nil {
		writeError(w, err)
		return
	}
	out := tokenizeResponse{Count: len(ids), MaxModelLen: s.model.Limits.MaxModelLen, Tokens: ids}
	if out.Tokens == nil {
		out.Tokens = []int32{}
	}
	if d.Bool("return_token_strs", false) {
		out.TokenStrs = []string{}
		for _, id := range ids {
			out.TokenStrs = append(out.TokenStrs, s.model.Tokenizer.TokenText(id))
		}
	}
	writeJSON(w, out)
}

func (s *Server) detokenize(w http.ResponseWriter, r *http.Request) {
	d, err := readBody(r, nil, s.schemas.detokenize)
	if err != nil {
		writeError(w, err)
		return
	}
	if err := s.model.check(d); err != nil {
		writeError(w, err)
		return
	}
	// Ids beyond the vocabulary have no text.
	var ids []int32
	for _, v := range d.List("tokens") {
		if n, _ := v.(int64); n < int64(s.model.Limits.VocabSize) {
			ids = append(ids, int32(n))
		}
	}
	writeJSON(w, map[string]string{"prompt": s.model.Tokenizer.Decode(ids, false)})
}
