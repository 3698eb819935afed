package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// firstToken asks for one token until the server gives it, and returns the time since the process was started.
func (s *server) firstToken(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	base, err := s.url(ctx)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		got, status, err := s.ask(ctx, client, base)
		if got {
			return time.Since(s.began), nil
		}
		// Not listening yet, or listening and still loading (503): any other answer will not change by waiting.
		if status != 0 && status != http.StatusServiceUnavailable {
			return 0, fmt.Errorf("asking %s for a token: %w", base, err)
		}
		if err := s.pause(ctx); err != nil {
			return 0, err
		}
	}
}

// ask reports whether a streamed token came; status is 0 where nothing answered.
func (s *server) ask(ctx context.Context, client *http.Client, base string) (got bool, status int, err error) {
	body, err := json.Marshal(map[string]any{"prompt": []int{300, 301, 302, 303, 304, 305, 306, 307}, "max_tokens": 1, "stream": true,
		"ignore_eos": true, "temperature": 0})
	if err != nil {
		return false, 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return false, 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return false, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 400))
		return false, resp.StatusCode, fmt.Errorf("status %s: %s", resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: "))
		if ok && bytes.HasPrefix(data, []byte(`{"choices"`)) || bytes.Contains(data, []byte(`"choices":[{`)) {
			return true, resp.StatusCode, nil
		}
	}
	return false, resp.StatusCode, fmt.Errorf("the stream held no token: %w", lines.Err())
}
