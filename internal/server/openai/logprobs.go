package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"omni-engine/stages"
)

// minLogprob stands for minus infinity, as in OpenAI's API.
const minLogprob = -9999.0

// labels gives the text that logprobs show for a token: its own, or token_id:N.
type labels struct {
	tok   Tokenizer
	asIDs bool
}

func (l labels) of(c stages.TokenLogprob) string {
	if l.asIDs {
		return fmt.Sprintf("token_id:%d", c.ID)
	}
	return c.Text
}

// alone is a token's label at a position without logprobs.
func (l labels) alone(id int32) string {
	if l.asIDs {
		return fmt.Sprintf("token_id:%d", id)
	}
	return l.tok.Decode([]int32{id}, false)
}

// runes is a text's length in characters, which is what offsets count.
func runes(s string) int { return utf8.RuneCountInString(s) }

// logprob is a JSON number: float32 values widened, minus infinity floored.
type logprob float32

func (l logprob) MarshalJSON() ([]byte, error) {
	f := float64(l)
	if f < minLogprob || math.IsNaN(f) {
		f = minLogprob
	}
	return json.Marshal(f)
}

// textLogprobs is an ordered JSON object of token texts.
type textLogprobs struct {
	texts  []string
	values []logprob
	at     map[string]int // place of each text, once there are more than searchable
}

// searchable is how many texts are looked through one by one: logprobs may ask for the whole vocabulary.
const searchable = 32

func (t textLogprobs) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, s := range t.texts {
		if i > 0 {
			b.WriteByte(',')
		}
		k, _ := marshal(s)
		v, _ := t.values[i].MarshalJSON()
		b.Write(k)
		b.WriteByte(':')
		b.Write(v)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// set keeps the first place of a repeated text and its last value, as a Python dict does.
func (t *textLogprobs) set(s string, v logprob) {
	if i := t.find(s); i >= 0 {
		t.values[i] = v
		return
	}
	if t.at != nil {
		t.at[s] = len(t.texts)
	}
	t.texts, t.values = append(t.texts, s), append(t.values, v)
}

// find returns the place of a text, or -1.
func (t *textLogprobs) find(s string) int {
	if len(t.texts) <= searchable {
		return slices.Index(t.texts, s)
	}
	if t.at == nil {
		t.at = make(map[string]int, 2*len(t.texts))
		for i, have := range t.texts {
			t.at[have] = i
		}
	}
	if i, ok := t.at[s]; ok {
		return i
	}
	return -1
}

// completionLogprobs is the legacy API's form.
type completionLogprobs struct {
	TextOffset    []int           `json:"text_offset"`
	TokenLogprobs []*logprob      `json:"token_logprobs"`
	Tokens        []string        `json:"tokens"`
	TopLogprobs   []*textLogprobs `json:"top_logprobs"`

	next int // offset of the next token
}

func newCompletionLogprobs(offset int) *completionLogprobs {
	return &completionLogprobs{TextOffset: []int{}, TokenLogprobs: []*logprob{}, Tokens: []string{}, TopLogprobs: []*textLogprobs{}, next: offset}
}

// add appends one position; a nil lp is a position without logprobs (the first of a prompt).
func (c *completionLogprobs) add(l labels, id int32, lp stages.TokenLogprobs, top int) {
	if len(lp) == 0 {
		c.push(l.alone(id), nil, nil)
		return
	}
	chosen := logprob(lp[0].Logprob)
	best := &textLogprobs{}
	for i, t := range distinct(lp) {
		if top < 0 || i <= top {
			best.set(l.of(t), logprob(t.Logprob))
		}
	}
	c.push(l.of(lp[0]), &chosen, best)
}

func (c *completionLogprobs) push(text string, lp *logprob, best *textLogprobs) {
	c.TextOffset = append(c.TextOffset, c.next)
	c.next += runes(text)
	c.Tokens = append(c.Tokens, text)
	c.TokenLogprobs = append(c.TokenLogprobs, lp)
	c.TopLogprobs = append(c.TopLogprobs, best)
}

// distinct lists a position's candidates without the chosen token's second mention among the best.
func distinct(lp stages.TokenLogprobs) stages.TokenLogprobs {
	out := make(stages.TokenLogprobs, 0, len(lp))
	for i, c := range lp {
		if i == 0 || c.ID != lp[0].ID {
			out = append(out, c)
		}
	}
	return out
}

// chatLogprob is one position in the chat API's form.
type chatLogprob struct {
	Token       string     `json:"token"`
	Logprob     logprob    `json:"logprob"`
	Bytes       []int      `json:"bytes"`
	TopLogprobs []chatBest `json:"top_logprobs"`
}

type chatBest struct {
	Token   string  `json:"token"`
	Logprob logprob `json:"logprob"`
	Bytes   []int   `json:"bytes"`
}

type chatLogprobs struct {
	Content []chatLogprob `json:"content"`
}

func byteList(s string) []int {
	out := make([]int, len(s))
	for i := range len(s) {
		out[i] = int(s[i])
	}
	return out
}

// add appends one position with its top best tokens (-1: all).
func (c *chatLogprobs) add(l labels, id int32, lp stages.TokenLogprobs, top int) {
	if len(lp) == 0 {
		text := l.alone(id)
		c.Content = append(c.Content, chatLogprob{Token: text, Logprob: minLogprob, Bytes: byteList(text), TopLogprobs: []chatBest{}})
		return
	}
	// bytes are the text's even when the token is shown as an id
	out := chatLogprob{Token: l.of(lp[0]), Logprob: logprob(lp[0].Logprob), Bytes: byteList(lp[0].Text), TopLogprobs: []chatBest{}}
	for i, t := range distinct(lp) {
		if top < 0 || i < top {
			s := l.of(t)
			out.TopLogprobs = append(out.TopLogprobs, chatBest{s, logprob(t.Logprob), byteList(s)})
		}
	}
	c.Content = append(c.Content, out)
}

// promptLogprobs encodes the list of objects by token id; its first entry is null.
func promptLogprobs(list []stages.TokenLogprobs) json.RawMessage {
	if list == nil {
		return nil
	}
	var b bytes.Buffer
	b.WriteByte('[')
	for i, lp := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		if len(lp) == 0 {
			b.WriteString("null")
			continue
		}
		b.WriteByte('{')
		for n, c := range distinct(lp) {
			if n > 0 {
				b.WriteByte(',')
			}
			v, _ := logprob(c.Logprob).MarshalJSON()
			text, _ := marshal(c.Text)
			fmt.Fprintf(&b, `"%d":{"logprob":%s,"rank":%d,"decoded_token":%s}`, c.ID, v, c.Rank, text)
		}
		b.WriteByte('}')
	}
	b.WriteByte(']')
	return b.Bytes()
}
