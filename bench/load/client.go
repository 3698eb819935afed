package load

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

func (c *Config) firstModel(ctx context.Context, client *http.Client) (string, error) {
	var list struct{ Data []struct{ ID string } }
	if err := c.getJSON(ctx, client, "/v1/models", &list); err != nil {
		return "", fmt.Errorf("asking %s for its models: %w", c.BaseURL, err)
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("%s serves no model", c.BaseURL)
	}
	return list.Data[0].ID, nil
}

func (c *Config) getJSON(ctx context.Context, client *http.Client, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.BaseURL+path, nil)
	if err != nil {
		return err
	}
	c.authorise(req)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %s", resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(v)
}

func (c *Config) authorise(req *http.Request) {
	if c.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.APIKey)
	}
}

func (c *Config) payload(it item) map[string]any {
	p := map[string]any{"model": c.Model, "stream": true, "stream_options": map[string]any{"include_usage": true}, "ignore_eos": c.IgnoreEOS}
	if c.Backend == "openai-chat" {
		p["messages"] = []any{map[string]any{"role": "user", "content": words(it.ids)}}
		p["max_completion_tokens"] = it.output
	} else {
		p["prompt"], p["max_tokens"] = it.ids, it.output
	}
	if c.Temperature != nil {
		p["temperature"] = *c.Temperature
	}
	if c.StageMetrics {
		p["return_stage_metrics"] = true
	}
	for k, v := range c.Extra {
		p[k] = v
	}
	return p
}

// words spells ids as text for endpoints that take none; a token becomes about one token again.
func words(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		fmt.Fprintf(&b, "%c%c ", 'a'+id%26, 'a'+id/26%26)
	}
	return b.String()
}

// event is the part of a streamed chunk that a benchmark looks at.
type event struct {
	Choices []struct {
		Text  string
		Delta struct{ Content *string }
	}
	Usage *struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
	}
	Metrics *struct {
		StageMetrics map[string]any `json:"stage_metrics"`
	}
	Error *struct{ Message string }
}

func (c *Config) send(ctx context.Context, client *http.Client, it item, start time.Time) Outcome {
	o := Outcome{InputLen: len(it.ids)}
	body, err := json.Marshal(c.payload(it))
	if err == nil {
		err = c.stream(ctx, client, it, body, start, &o)
	}
	if o.Latency = time.Since(start); err != nil {
		o.Error = err.Error()
	}
	o.Success = err == nil
	return o
}

func (c *Config) stream(ctx context.Context, client *http.Client, it item, body []byte, start time.Time, o *Outcome) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.BaseURL+c.Endpoint, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.RequestID != "" {
		req.Header.Set("X-Request-Id", fmt.Sprintf("%s%d", c.RequestID, it.index))
	}
	c.authorise(req)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("status %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return c.read(resp.Body, start, o)
}

// read follows the events: the first with text ends the time to first token, each further one is an inter-token latency.
func (c *Config) read(r io.Reader, start time.Time, o *Outcome) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 16<<20)
	last, done := start, false
	var text strings.Builder
	for s.Scan() {
		data, ok := bytes.CutPrefix(s.Bytes(), []byte("data: "))
		if !ok {
			continue
		}
		if done = string(data) == "[DONE]"; done {
			break
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("event %q: %w", data, err)
		}
		if e.Error != nil {
			return errors.New(e.Error.Message)
		}
		if e.Usage != nil {
			o.OutputLen = e.Usage.CompletionTokens
		}
		if e.Metrics != nil && e.Metrics.StageMetrics != nil {
			o.StageMetrics = e.Metrics.StageMetrics
		}
		if len(e.Choices) == 0 {
			continue
		}
		piece := e.Choices[0].Text
		if d := e.Choices[0].Delta.Content; d != nil {
			if piece = *d; piece == "" && o.TTFT == 0 {
				continue // the role chunk
			}
		}
		now := time.Now()
		if o.TTFT == 0 {
			o.TTFT = now.Sub(start)
		} else {
			o.ITL = append(o.ITL, now.Sub(last))
		}
		last = now
		text.WriteString(piece)
	}
	o.Text = text.String()
	if err := s.Err(); err != nil {
		return err
	}
	if !done {
		return errors.New("the stream ended before [DONE]")
	}
	if o.TTFT == 0 {
		return errors.New("never received a token")
	}
	return nil
}
