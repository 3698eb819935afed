package tokenizer

import (
	"fmt"
	"time"

	"github.com/dlclark/regexp2/v2"
)

// The split patterns of known models, as their tokenizer.json spells them.
const (
	patternGPT2     = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternLlama3   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen2    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen35   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200k    = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternKimi     = `[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternDigits3  = `\p{N}{1,3}`
	patternCJK      = `[一-龥぀-ゟ゠-ヿ]+`
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// knownScanner returns the hand-written scanner of a pattern.
func knownScanner(pattern string) (scanner, bool) {
	t := classes()
	switch pattern {
	case patternGPT2:
		return gpt2Scanner{t}, true
	case patternLlama3:
		return wordScanner{t, letter, 3}, true
	case patternQwen2:
		return wordScanner{t, letter, 1}, true
	case patternQwen35:
		return wordScanner{t, letter | mark, 1}, true
	case patternO200k:
		return caseScanner{classTable: t, digits: 3, contractions: true, after: newlinesAndSlashes}, true
	case patternTekken:
		return caseScanner{classTable: t, digits: 1, after: newlinesAndSlashes}, true
	case patternKimi:
		return caseScanner{classTable: t, digits: 3, contractions: true, han: true, after: newlines}, true
	case patternDeepSeek:
		return deepseek3Scanner{t}, true
	case patternDigits3:
		return setScanner{classTable: t, class: number, min: 1, max: 3}, true
	case `\p{N}`, `\d`:
		return setScanner{classTable: t, class: number, min: 1, max: 1}, pattern == `\p{N}`
	case `\p{N}+`:
		return setScanner{classTable: t, class: number, min: 1}, true
	case `\s?\p{L}+`:
		return setScanner{classTable: t, space: true, class: letter, min: 1}, true
	case `\s?\p{P}+`:
		return setScanner{classTable: t, space: true, class: punct, min: 1}, true
	case `[0-9][0-9][0-9]`:
		return setScanner{classTable: t, ranges: []runeRange{{'0', '9'}}, min: 3, max: 3}, true
	case `[\p{P}\$\+<=>\^~\|]+`:
		return setScanner{classTable: t, class: punct, min: 1,
			ranges: mergeRanges([]runeRange{{'$', '$'}, {'+', '+'}, {'<', '>'}, {'^', '^'}, {'~', '~'}, {'|', '|'}})}, true
	case `\s+$`:
		return trailingSpaces{t}, true
	}
	return parseSet(pattern)
}

// matchTimeout bounds the search for one match of a pattern that is not known.
const matchTimeout = 2 * time.Second

// regexpMatcher runs a pattern that has no scanner.
type regexpMatcher struct{ re *regexp2.Regexp }

func newRegexpMatcher(pattern string) (*regexpMatcher, error) {
	if len(pattern) > 1<<16 {
		return nil, fmt.Errorf("split pattern of %d bytes is too long", len(pattern))
	}
	re, err := regexp2.Compile(pattern)
	if err != nil {
		return nil, fmt.Errorf("compile split pattern %.200q: %w", pattern, err)
	}
	re.MatchTimeout = matchTimeout
	return &regexpMatcher{re}, nil
}

func (m *regexpMatcher) find(s string, yield func(begin, end int)) error {
	all, err := m.re.FindAllStringIndex(s, -1)
	if err != nil {
		return fmt.Errorf("split text with the tokenizer's pattern: %w", err)
	}
	for _, x := range all {
		if x[1] > x[0] {
			yield(x[0], x[1])
		}
	}
	return nil
}
