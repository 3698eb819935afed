package tokenizer

import (
	"encoding/json"
	"fmt"
)

// description is a tokenizer.json. Truncation and padding are a client's matter and are ignored.
type description struct {
	AddedTokens []struct {
		ID         int64  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	} `json:"added_tokens"`
	Normalizer    json.RawMessage   `json:"normalizer"`
	PreTokenizer  json.RawMessage   `json:"pre_tokenizer"`
	PostProcessor json.RawMessage   `json:"post_processor"`
	Decoder       json.RawMessage   `json:"decoder"`
	Model         *modelDescription `json:"model"`
}

// FromJSON builds the tokenizer that a tokenizer.json describes. A part that is not supported is an error that names it.
func FromJSON(tokenizerJSON []byte, cfg Config) (*Tokenizer, error) {
	t, err := fromJSON(tokenizerJSON, cfg)
	if err != nil {
		return nil, fmt.Errorf("load tokenizer.json: %w", err)
	}
	return t, nil
}

func fromJSON(data []byte, cfg Config) (*Tokenizer, error) {
	var d description
	if err := json.Unmarshal(data, &d); err != nil {
		return nil, err
	}
	b := &builder{alphabet: newByteAlphabet()}
	pre, err := b.preTokenizer(d.PreTokenizer)
	if err != nil {
		return nil, fmt.Errorf("pre_tokenizer: %w", err)
	}
	m, err := b.model(d.Model)
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	added := make([]addedToken, 0, len(d.AddedTokens))
	for _, a := range d.AddedTokens {
		if a.ID < 0 || a.ID >= maxVocab {
			return nil, fmt.Errorf("added token %.80q has id %d, outside 0 to %d", a.Content, a.ID, maxVocab-1)
		}
		id := int32(a.ID)
		if known, ok := b.vocab[a.Content]; ok {
			id = known // the model's own id counts, as in the reference
		}
		added = append(added, addedToken{id, a.Content, a.SingleWord, a.LStrip, a.RStrip, a.Normalized, a.Special})
	}
	t, err := newTokenizer(b.vocab, added)
	if err != nil {
		return nil, err
	}
	t.fill(d.Model.Vocab.pieces)
	t.markAdded(added)
	t.pre, t.model, t.unk = pre, m, b.unk
	if t.normalizer, err = b.normalizer(d.Normalizer, 0); err != nil {
		return nil, fmt.Errorf("normalizer: %w", err)
	}
	if t.decoder, err = b.decoder(d.Decoder); err != nil {
		return nil, fmt.Errorf("decoder: %w", err)
	}
	if err := b.postProcessor(t, d.PostProcessor, 0); err != nil {
		return nil, fmt.Errorf("post_processor: %w", err)
	}
	if err := cfg.apply(t); err != nil {
		return nil, err
	}
	return t, t.finish(added)
}

// builder reads the parts of a description.
type builder struct {
	alphabet  *byteAlphabet
	byteLevel bool // the model works on bytes
	vocab     map[string]int32
	unk       int32
}

// maxNesting bounds how deep a part may nest in itself.
const maxNesting = 16

// absent says that a part is not given.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// kind reads a part's type.
func kind(raw json.RawMessage) (string, error) {
	var k struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(raw, &k); err != nil {
		return "", err
	}
	return k.Type, nil
}

// pattern is a fixed text or a regular expression.
type pattern struct {
	String *string `json:"String"`
	Regex  *string `json:"Regex"`
}

// UnmarshalJSON also takes a plain text.
func (p *pattern) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		p.String = new(string)
		return json.Unmarshal(b, p.String)
	}
	type plain pattern
	return json.Unmarshal(b, (*plain)(p))
}

func (p pattern) finder() (finder, error) {
	switch {
	case p.String != nil:
		return literalFinder(*p.String), nil
	case p.Regex != nil:
		if s, ok := knownScanner(*p.Regex); ok {
			return scanFinder{s}, nil
		}
		return newRegexpMatcher(*p.Regex)
	}
	return nil, fmt.Errorf("a pattern needs String or Regex")
}

// postProcessor reads what is put around a single sequence.
func (b *builder) postProcessor(t *Tokenizer, raw json.RawMessage, depth int) error {
	if absent(raw) {
		return nil
	}
	if depth > maxNesting {
		return fmt.Errorf("nested more than %d deep", maxNesting)
	}
	name, err := kind(raw)
	if err != nil {
		return err
	}
	switch name {
	case "ByteLevel":
		return nil // only offsets
	case "Sequence":
		var seq struct {
			Processors []json.RawMessage `json:"processors"`
		}
		if err := json.Unmarshal(raw, &seq); err != nil {
			return err
		}
		for _, p := range seq.Processors {
			if err := b.postProcessor(t, p, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "TemplateProcessing":
		return templateProcessing(t, raw)
	case "BertProcessing", "RobertaProcessing":
		return clsAndSep(t, raw)
	}
	return fmt.Errorf("%q is not supported", name)
}

// clsAndSep is BERT's and RoBERTa's: a class token before, a separator after, each given as [text, id].
func clsAndSep(t *Tokenizer, raw json.RawMessage) error {
	var p struct {
		Sep, Cls [2]json.RawMessage
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	var cls, sep int32
	if err := json.Unmarshal(p.Cls[1], &cls); err != nil {
		return fmt.Errorf("cls: %w", err)
	}
	if err := json.Unmarshal(p.Sep[1], &sep); err != nil {
		return fmt.Errorf("sep: %w", err)
	}
	t.prefix = append([]int32{cls}, t.prefix...)
	t.suffix = append(t.suffix, sep)
	return t.checkEnds()
}

func templateProcessing(t *Tokenizer, raw json.RawMessage) error {
	var p struct {
		Single []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			} `json:"SpecialToken"`
			Sequence *struct {
				ID string `json:"id"`
			} `json:"Sequence"`
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []int32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	var before, after []int32
	sequences := 0
	for _, piece := range p.Single {
		switch {
		case piece.Sequence != nil:
			sequences++
		case piece.SpecialToken != nil:
			special, ok := p.SpecialTokens[piece.SpecialToken.ID]
			if !ok {
				return fmt.Errorf("special token %.80q has no ids", piece.SpecialToken.ID)
			}
			if sequences == 0 {
				before = append(before, special.IDs...)
			} else {
				after = append(after, special.IDs...)
			}
		}
	}
	if sequences != 1 {
		return fmt.Errorf("the template of a single text holds it %d times, expected once", sequences)
	}
	t.prefix = append(before, t.prefix...)
	t.suffix = append(t.suffix, after...)
	return t.checkEnds()
}

// maxEnds bounds what a description may put around every text.
const maxEnds = 64

func (t *Tokenizer) checkEnds() error {
	for _, ids := range [][]int32{t.prefix, t.suffix} {
		if len(ids) > maxEnds {
			return fmt.Errorf("%d tokens around a text, more than %d", len(ids), maxEnds)
		}
		for _, id := range ids {
			if !t.has(id) {
				return fmt.Errorf("token %d around a text is not in the vocabulary", id)
			}
		}
	}
	return nil
}
