package tokenizer

import (
	"encoding/json"
	"fmt"
)

// Config are the facts of a tokenizer_config.json that complete a tokenizer.json. Empty and nil mean: not given.
type Config struct {
	BOSToken, EOSToken, UNKToken, PADToken string
	AddBOS, AddEOS                         *bool // override whether Encode adds them
}

// ParseConfig reads a tokenizer_config.json. Special tokens may be texts or objects with their content.
func ParseConfig(tokenizerConfigJSON []byte) (Config, error) {
	var raw struct {
		BOS    tokenField `json:"bos_token"`
		EOS    tokenField `json:"eos_token"`
		UNK    tokenField `json:"unk_token"`
		PAD    tokenField `json:"pad_token"`
		AddBOS *bool      `json:"add_bos_token"`
		AddEOS *bool      `json:"add_eos_token"`
	}
	if err := json.Unmarshal(tokenizerConfigJSON, &raw); err != nil {
		return Config{}, fmt.Errorf("parse tokenizer_config.json: %w", err)
	}
	return Config{BOSToken: string(raw.BOS), EOSToken: string(raw.EOS), UNKToken: string(raw.UNK), PADToken: string(raw.PAD),
		AddBOS: raw.AddBOS, AddEOS: raw.AddEOS}, nil
}

// tokenField is a token given as a text, as an object with content, or as null.
type tokenField string

func (f *tokenField) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(f))
	}
	var object struct {
		Content string `json:"content"`
	}
	if err := json.Unmarshal(b, &object); err != nil {
		return err
	}
	*f = tokenField(object.Content)
	return nil
}

// apply sets the named tokens and what AddSpecial adds.
func (c Config) apply(t *Tokenizer) error {
	for _, s := range []struct {
		name, token string
		dst         *int32
	}{{"bos_token", c.BOSToken, &t.bos}, {"eos_token", c.EOSToken, &t.eos}, {"unk_token", c.UNKToken, &t.unk}, {"pad_token", c.PADToken, &t.pad}} {
		if s.token == "" {
			continue
		}
		id, ok := t.ids[s.token]
		if !ok {
			return fmt.Errorf("%s %.80q is not in the vocabulary", s.name, s.token)
		}
		*s.dst = id
	}
	return t.addEnds(c.AddBOS, c.AddEOS)
}

// addEnds overrides whether the begin and end tokens are added.
func (t *Tokenizer) addEnds(bos, eos *bool) error {
	if bos != nil {
		if *bos && t.bos == None {
			return fmt.Errorf("add_bos_token is set, but there is no begin token")
		}
		has := len(t.prefix) > 0 && t.prefix[0] == t.bos
		switch {
		case *bos && !has:
			t.prefix = append([]int32{t.bos}, t.prefix...)
		case !*bos && has:
			t.prefix = t.prefix[1:]
		}
	}
	if eos != nil {
		if *eos && t.eos == None {
			return fmt.Errorf("add_eos_token is set, but there is no end token")
		}
		n := len(t.suffix)
		has := n > 0 && t.suffix[n-1] == t.eos
		switch {
		case *eos && !has:
			t.suffix = append(t.suffix, t.eos)
		case !*eos && has:
			t.suffix = t.suffix[:n-1]
		}
	}
	return nil
}
