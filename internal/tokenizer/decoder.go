package tokenizer

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// decoder says how tokens become text.
type decoder struct {
	alphabet  *byteAlphabet         // byte-level: a token's characters stand for bytes
	fallback  bool                  // <0xHH> stands for a byte
	replace   []replaceLiteral      // in each token
	strips    []func(string) string // of each token
	stripLeft string                // one character, taken off the front of the whole text at most stripMax times
	stripMax  int
	joined    bool                      // tokens are words: a space before each but the first
	first     func(token string) string // the first token, where it differs
	rest      func(token string) string // the others
}

// pieces holds what every token decodes to, back to back.
type pieces struct {
	text    string
	offsets []uint32
	whole   []bool // valid UTF-8 by itself
	isByte  []bool // <0xHH>
}

func (p *pieces) of(id int32) string { return p.text[p.offsets[id]:p.offsets[id+1]] }

// buildPieces decodes every token once.
func (d *decoder) buildPieces(tokens []string) (*pieces, error) {
	p := &pieces{offsets: make([]uint32, 1, len(tokens)+1), whole: make([]bool, len(tokens)), isByte: make([]bool, len(tokens))}
	var out strings.Builder
	for i, t := range tokens {
		text, isByte := d.piece(t, false)
		out.WriteString(text)
		if out.Len() > 1<<31 {
			return nil, fmt.Errorf("the vocabulary's text is longer than 2 GiB")
		}
		p.offsets = append(p.offsets, uint32(out.Len()))
		p.isByte[i] = isByte
		p.whole[i] = !isByte && utf8.ValidString(text)
	}
	p.text = out.String()
	return p, nil
}

// piece decodes one token's vocabulary text.
func (d *decoder) piece(token string, first bool) (text string, isByte bool) {
	for _, r := range d.replace {
		token = strings.ReplaceAll(token, r.old, r.new)
	}
	if d.alphabet != nil {
		if b, ok := d.alphabet.decode(token); ok {
			token = b
		}
	}
	if d.fallback {
		if b, ok := byteToken(token); ok {
			return string([]byte{b}), true
		}
	}
	for _, f := range d.strips {
		token = f(token)
	}
	switch {
	case first && d.first != nil:
		token = d.first(token)
	case !first && d.rest != nil:
		token = d.rest(token)
	}
	return token, false
}

// byteToken reads <0xHH>.
func byteToken(t string) (byte, bool) {
	if len(t) != 6 || !strings.HasPrefix(t, "<0x") || t[5] != '>' {
		return 0, false
	}
	hi, lo := hexDigit(t[3]), hexDigit(t[4])
	if hi < 0 || lo < 0 {
		return 0, false
	}
	return byte(hi<<4 | lo), true
}

func hexDigit(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// wordPieceDecoder joins ## pieces to the word before, and tidies the spaces around signs.
func wordPieceDecoder(prefix string, cleanup bool) *decoder {
	tidy := func(s string) string { return s }
	if cleanup {
		// In this order, as the reference does one after the other.
		pairs := []replaceLiteral{{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"}, {" n't", "n't"}, {" 'm", "'m"},
			{" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}}
		tidy = func(s string) string {
			for _, p := range pairs {
				s = strings.ReplaceAll(s, p.old, p.new)
			}
			return s
		}
	}
	return &decoder{joined: true, first: tidy, rest: func(t string) string {
		if cut, ok := strings.CutPrefix(t, prefix); ok {
			return tidy(cut)
		}
		return tidy(" " + t)
	}}
}

// metaspaceDecoder turns the replacement into spaces, and drops it from the first token when one was put there.
func metaspaceDecoder(replacement string, prepended bool) *decoder {
	d := &decoder{rest: func(t string) string { return strings.ReplaceAll(t, replacement, " ") }}
	d.first = d.rest
	if prepended {
		d.first = func(t string) string { return strings.ReplaceAll(t, replacement, "") }
	}
	return d
}

// plainDecoder joins tokens with spaces: what a description without a decoder means.
func plainDecoder() *decoder {
	return &decoder{joined: true, first: func(t string) string { return t }, rest: func(t string) string { return " " + t }}
}
