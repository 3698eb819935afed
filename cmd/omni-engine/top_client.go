package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"omni-engine/internal/server/dashboard"
)

// topClient asks a server's dashboard and keeps what it said last.
type topClient struct {
	base, query string
	window      int
	http        http.Client

	state   dashboard.State
	list    dashboard.List
	history map[[2]int][]dashboard.Sample // by stage and replica
	newest  int64
	at      time.Time // of the last good look
	trouble error     // of the newest look; nil: it was good
}

const (
	topPatience = 5 * time.Second
	topList     = 100
	topHistory  = 240
)

func newTopClient(o topOptions) *topClient {
	base := strings.TrimRight(o.url, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	return &topClient{base: strings.TrimSuffix(base, "/dashboard"), query: o.query, window: o.window, http: http.Client{Timeout: topPatience},
		history: map[[2]int][]dashboard.Sample{}}
}

// look asks for the newest state and list.
func (c *topClient) look(ctx context.Context) error {
	var state dashboard.State
	if err := c.get(ctx, fmt.Sprintf("/dashboard/state?window=%d&since=%d", c.window, c.newest), &state); err != nil {
		return err
	}
	var list dashboard.List
	if err := c.get(ctx, fmt.Sprintf("/dashboard/requests?limit=%d&query=%s", topList, url.QueryEscape(c.query)), &list); err != nil {
		return err
	}
	if !state.Started.Equal(c.state.Started) { // another server: its counters are new
		c.history, c.newest = map[[2]int][]dashboard.Sample{}, 0
	}
	for _, st := range state.Stages {
		for _, r := range st.Replicas {
			key := [2]int{st.ID, r.Replica}
			all := append(c.history[key], r.History...)
			c.history[key] = all[max(0, len(all)-topHistory):]
			if n := len(r.History); n > 0 {
				c.newest = max(c.newest, r.History[n-1].At)
			}
		}
	}
	c.state, c.list, c.at, c.trouble = state, list, time.Now(), nil
	return nil
}

func (c *topClient) get(ctx context.Context, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return fmt.Errorf("--url %s: %w", c.base, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the long address
		}
		return fmt.Errorf("no server at %s: %w", c.base, err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s has no /dashboard/state: it is not omni-engine, an older one, or it was started with --disable-dashboard", c.base)
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("%s/dashboard/state answers %s", c.base, resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("%s/dashboard/state is not what omni-engine answers: %w", c.base, err)
	}
	return nil
}
