package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strconv"
)

// perplexityText is the fixed text that both engines score.
//
//go:embed testdata/perplexity.txt
var perplexityText string

// perplexityWindow is llama-perplexity's own context: the text is cut into windows of so many tokens, and what stands in the second half
// of each is scored, every token behind all before it in its window.
const perplexityWindow = 512

func perplexities(ctx context.Context, e engine, _ bool) ([]float64, error) {
	v, err := e.perplexity(ctx, perplexityText, perplexityWindow)
	return []float64{v}, err
}

// perplexity asks our server for the log-probabilities of a prompt's tokens, window by window; with window 0 of the whole text at once,
// every token but the first.
func (o *omni) perplexity(ctx context.Context, text string, window int) (float64, error) {
	s, err := o.serve(ctx, 1, window)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	if _, err := s.firstToken(ctx); err != nil {
		return 0, err
	}
	ids, bos, err := tokenise(ctx, s.base, text)
	if err != nil {
		return 0, err
	}
	windows, from := [][]int32{ids}, 1
	if window > 0 {
		from = window/2 + 1
		if windows, err = cut(ids, bos, window); err != nil {
			return 0, err
		}
	}
	sum, n := 0.0, 0
	for _, w := range windows {
		lp, err := promptLogprobs(ctx, s.base, w)
		if err != nil {
			return 0, err
		}
		for _, v := range lp[from:] {
			sum, n = sum-v, n+1
		}
	}
	return math.Exp(sum / float64(n)), nil
}

// cut makes whole windows of a text's tokens; each begins with the model's begin-of-text token, where it has one, in place of its first.
func cut(ids []int32, bos *int32, window int) (windows [][]int32, err error) {
	for w := range slices.Chunk(ids, window) {
		if len(w) < window {
			break
		}
		w = slices.Clone(w)
		if bos != nil {
			w[0] = *bos
		}
		windows = append(windows, w)
	}
	if len(windows) < 2 {
		return nil, fmt.Errorf("the text of %d tokens fills no two windows of %d", len(ids), window)
	}
	return windows, nil
}

// tokenise returns a text's tokens with those that the model's tokenizer adds, and the begin-of-text token where it adds one.
func tokenise(ctx context.Context, base, text string) (ids []int32, bos *int32, err error) {
	var with, without struct {
		Tokens []int32 `json:"tokens"`
	}
	if err := post(ctx, base+"/tokenize", map[string]any{"prompt": text, "add_special_tokens": true}, &with); err != nil {
		return nil, nil, err
	}
	if err := post(ctx, base+"/tokenize", map[string]any{"prompt": text, "add_special_tokens": false}, &without); err != nil {
		return nil, nil, err
	}
	switch {
	case slices.Equal(with.Tokens, without.Tokens):
		return with.Tokens, nil, nil
	case len(with.Tokens) == len(without.Tokens)+1 && slices.Equal(with.Tokens[1:], without.Tokens):
		return with.Tokens, &with.Tokens[0], nil
	}
	return nil, nil, errors.New("the tokenizer adds more than a begin-of-text token: windows cannot be cut as llama-perplexity does")
}

// promptLogprobs are the natural logarithms of each token's probability behind those before it; the first has none and is NaN.
func promptLogprobs(ctx context.Context, base string, ids []int32) ([]float64, error) {
	var answer struct {
		Choices []struct {
			Logprobs []map[string]struct {
				Logprob float64 `json:"logprob"`
			} `json:"prompt_logprobs"`
		} `json:"choices"`
	}
	ask := map[string]any{"prompt": ids, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}
	if err := post(ctx, base+"/v1/completions", ask, &answer); err != nil {
		return nil, err
	}
	if len(answer.Choices) != 1 || len(answer.Choices[0].Logprobs) != len(ids) {
		return nil, fmt.Errorf("%d tokens were scored in an answer without a log-probability for each", len(ids))
	}
	out := []float64{math.NaN()}
	for i, of := range answer.Choices[0].Logprobs[1:] {
		v, ok := of[strconv.Itoa(int(ids[i+1]))]
		if !ok {
			return nil, fmt.Errorf("token %d at %d has no log-probability", ids[i+1], i+1)
		}
		out = append(out, v.Logprob)
	}
	return out, nil
}

func post(ctx context.Context, url string, body, answer any) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking %s: %w", url, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 400))
		return fmt.Errorf("asking %s: status %s: %s", url, resp.Status, text)
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("the answer of %s: %w", url, err)
	}
	return nil
}

// perplexity runs llama-perplexity over the text.
func (l *llama) perplexity(ctx context.Context, text string, window int) (float64, error) {
	file, remove, err := temporary(text)
	if err != nil {
		return 0, err
	}
	defer remove()
	out, err := everything(ctx, l.program("llama-perplexity"), "-m", l.model, "-t", strconv.Itoa(l.threads), "-c", strconv.Itoa(window), "-f", file)
	if err != nil {
		return 0, err
	}
	return finalEstimate(out)
}

// finalEstimate finds llama-perplexity's result among its logs.
func finalEstimate(out []byte) (float64, error) {
	m := regexp.MustCompile(`Final estimate: PPL = ([0-9.]+)`).FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("llama-perplexity gave no estimate: %s", clip(out))
	}
	return strconv.ParseFloat(string(m[1]), 64)
}
