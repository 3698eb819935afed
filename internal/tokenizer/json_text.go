package tokenizer

import (
	"encoding/json"
	"fmt"

	"golang.org/x/text/unicode/norm"
)

// normalizer reads a normalizer; nil for none.
func (b *builder) normalizer(raw json.RawMessage, depth int) (normalizer, error) {
	if absent(raw) {
		return nil, nil
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("nested more than %d deep", maxNesting)
	}
	var p struct {
		Type               string            `json:"type"`
		Normalizers        []json.RawMessage `json:"normalizers"`
		Pattern            *pattern          `json:"pattern"`
		Content            string            `json:"content"`
		Prepend            string            `json:"prepend"`
		StripLeft          bool              `json:"strip_left"`
		StripRight         bool              `json:"strip_right"`
		CleanText          bool              `json:"clean_text"`
		HandleChineseChars bool              `json:"handle_chinese_chars"`
		StripAccents       *bool             `json:"strip_accents"`
		Lowercase          bool              `json:"lowercase"`
		CharsMap           []byte            `json:"precompiled_charsmap"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		var all normalizers
		for _, n := range p.Normalizers {
			step, err := b.normalizer(n, depth+1)
			if err != nil {
				return nil, err
			}
			if step != nil {
				all = append(all, step)
			}
		}
		if len(all) == 0 {
			return nil, nil
		}
		return all, nil
	case "NFC":
		return form(norm.NFC), nil
	case "NFD":
		return form(norm.NFD), nil
	case "NFKC":
		return form(norm.NFKC), nil
	case "NFKD":
		return form(norm.NFKD), nil
	case "Lowercase":
		return mapping(lowercase), nil
	case "StripAccents":
		return mapping(stripAccents), nil
	case "Prepend":
		return prepend(p.Prepend), nil
	case "Strip":
		return strip(p.StripLeft, p.StripRight), nil
	case "Replace":
		return replaceNormalizer(p.Pattern, p.Content)
	case "Precompiled":
		return newCharsMap(p.CharsMap)
	case "BertNormalizer":
		accents := p.Lowercase
		if p.StripAccents != nil {
			accents = *p.StripAccents
		}
		return bert{p.CleanText, p.HandleChineseChars, accents, p.Lowercase}, nil
	}
	return nil, fmt.Errorf("%q is not supported", p.Type)
}

func replaceNormalizer(p *pattern, content string) (normalizer, error) {
	if p == nil {
		return nil, fmt.Errorf("normalizer Replace needs a pattern")
	}
	if p.String != nil {
		return replaceLiteral{*p.String, content}, nil
	}
	f, err := p.finder()
	if err != nil {
		return nil, err
	}
	return replacePattern{f, content}, nil
}

// preTokenizer reads the pre-tokenizer; nil for none. It notes whether the model works on bytes.
func (b *builder) preTokenizer(raw json.RawMessage) (pretokenizer, error) {
	if absent(raw) {
		return nil, nil
	}
	steps, err := b.preSteps(nil, raw, 0)
	if err != nil {
		return nil, err
	}
	// The bytes' characters are only written out where a later step looks at them; the model wants bytes again.
	var out sequence
	mapped := false
	for i, s := range steps {
		if _, ok := s.(byteMapper); ok && i == len(steps)-1 {
			break
		} else if ok {
			mapped = true
		}
		out = append(out, s)
	}
	if mapped {
		out = append(out, unmapper{b.alphabet})
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

func (b *builder) preSteps(dst []pretokenizer, raw json.RawMessage, depth int) ([]pretokenizer, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("nested more than %d deep", maxNesting)
	}
	var p struct {
		Type             string            `json:"type"`
		Pretokenizers    []json.RawMessage `json:"pretokenizers"`
		Pattern          pattern           `json:"pattern"`
		Behavior         string            `json:"behavior"`
		Invert           bool              `json:"invert"`
		AddPrefixSpace   *bool             `json:"add_prefix_space"`
		UseRegex         *bool             `json:"use_regex"`
		IndividualDigits bool              `json:"individual_digits"`
		Replacement      string            `json:"replacement"`
		PrependScheme    string            `json:"prepend_scheme"`
		Split            *bool             `json:"split"`
		Delimiter        string            `json:"delimiter"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	switch p.Type {
	case "Sequence":
		var err error
		for _, step := range p.Pretokenizers {
			if dst, err = b.preSteps(dst, step, depth+1); err != nil {
				return nil, err
			}
		}
		return dst, nil
	case "ByteLevel":
		if b.byteLevel {
			return nil, fmt.Errorf("ByteLevel is given twice")
		}
		b.byteLevel = true
		if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
			dst = append(dst, prefixSpace{})
		}
		if p.UseRegex == nil || *p.UseRegex {
			dst = append(dst, splitter{finder: scanFinder{gpt2Scanner{classes()}}})
		}
		return append(dst, byteMapper{b.alphabet}), nil
	case "Split":
		f, err := p.Pattern.finder()
		if err != nil {
			return nil, err
		}
		how, err := parseBehavior(p.Behavior)
		if err != nil {
			return nil, err
		}
		if how == removed && p.Invert {
			if sf, ok := f.(scanFinder); ok && coversAll(sf.scanner) {
				how, p.Invert = isolated, false // no text lies between the matches
			}
		}
		return append(dst, splitter{f, how, p.Invert}), nil
	case "Digits":
		return append(dst, digitsSplitter(p.IndividualDigits)), nil
	case "Punctuation":
		how := isolated
		if p.Behavior != "" {
			var err error
			if how, err = parseBehavior(p.Behavior); err != nil {
				return nil, err
			}
		}
		return append(dst, splitter{finder: runeFinder(isPunctuation), behavior: how}), nil
	case "WhitespaceSplit":
		return append(dst, splitter{finder: runeFinder(isSpace), behavior: removed}), nil
	case "BertPreTokenizer":
		return append(dst, splitter{finder: runeFinder(isSpace), behavior: removed},
			splitter{finder: runeFinder(isPunctuation), behavior: isolated}), nil
	case "CharDelimiterSplit":
		return append(dst, splitter{finder: literalFinder(p.Delimiter), behavior: removed}), nil
	case "Metaspace":
		if p.Replacement == "" {
			p.Replacement = "▁"
		}
		m := metaspace{replacement: p.Replacement, cuts: p.Split == nil || *p.Split}
		switch p.PrependScheme {
		case "always", "":
			m.always = p.AddPrefixSpace == nil || *p.AddPrefixSpace
		case "never":
		default:
			return nil, fmt.Errorf("pre-tokenizer Metaspace with prepend_scheme %q is not supported", p.PrependScheme)
		}
		return append(dst, m), nil
	}
	return nil, fmt.Errorf("%q is not supported", p.Type)
}

func isSpace(r rune) bool { return classes().of(r)&space != 0 }

// coversAll says that a scanner's matches leave no text between them.
func coversAll(s scanner) bool {
	switch s.(type) {
	case gpt2Scanner, wordScanner, caseScanner:
		return true
	}
	return false
}

func parseBehavior(s string) (behavior, error) {
	switch s {
	case "Isolated":
		return isolated, nil
	case "Removed":
		return removed, nil
	case "MergedWithPrevious":
		return mergedWithPrevious, nil
	case "MergedWithNext":
		return mergedWithNext, nil
	case "Contiguous":
		return contiguous, nil
	}
	return 0, fmt.Errorf("split behavior %q is not supported", s)
}
