package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"omni-engine/internal/server/dashboard"
)

// topOptions are the flags of `omni-engine top`.
type topOptions struct {
	url      string
	window   int
	interval time.Duration
	once     bool
	json     bool
	query    string
}

func topCommand() *cobra.Command {
	var o topOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show a running server in the terminal: throughput, where requests spend their time, latencies, recent requests",
		Long: "Show a running server in the terminal, from the JSON behind its /dashboard. q or Ctrl-C ends it.\n" +
			"When the output is no terminal, or with --once, it prints one frame as text and ends (two looks, one interval apart, so that\n" +
			"there are rates). NO_COLOR is honoured.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(dashboard.Windows(), o.window) {
				return fmt.Errorf("--window must be 60, 300 or 900 (seconds), got %d", o.window)
			}
			if o.interval < 100*time.Millisecond || o.interval > time.Minute {
				return fmt.Errorf("--interval must be between 100ms and 1m, got %s", o.interval)
			}
			return top(cmd.Context(), o, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.url, "url", "http://localhost:8000", "server")
	f.IntVar(&o.window, "window", 60, "seconds that percentiles and bars look back: 60, 300 or 900")
	f.DurationVar(&o.interval, "interval", time.Second, "time between looks")
	f.BoolVar(&o.once, "once", false, "print one frame as text and end")
	f.BoolVar(&o.json, "json", false, "print one frame as JSON and end")
	f.StringVar(&o.query, "query", "", "show requests whose id, trace, model or finish reason contains this")
	return cmd
}

// top looks until ctx ends; once where the output is no terminal.
func top(ctx context.Context, o topOptions, in io.Reader, out io.Writer) error {
	c := newTopClient(o)
	if err := c.look(ctx); err != nil {
		return err
	}
	screen, interactive := openScreen(in, out)
	if o.once || o.json || !interactive {
		return topOnce(ctx, o, c, screen, out)
	}
	if err := screen.enter(); err != nil {
		return fmt.Errorf("preparing the terminal: %w", err)
	}
	defer screen.leave()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	keys := make(chan struct{})
	go func() { defer close(keys); screen.watch(ctx, stop) }()
	topLoop(ctx, o.interval, c, screen)
	stop()
	<-keys
	return nil
}

// topOnce prints one frame. A second look gives rates.
func topOnce(ctx context.Context, o topOptions, c *topClient, s *screen, out io.Writer) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(o.interval):
	}
	if err := c.look(ctx); err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(out).Encode(struct {
			State    *dashboard.State `json:"state"`
			Requests *dashboard.List  `json:"requests"`
		}{&c.state, &c.list})
	}
	width, _ := s.size()
	v := topView{width: width, paint: s.colours, now: time.Now()}
	_, err := io.WriteString(out, strings.Join(v.frame(c, listOnce), "\n")+"\n")
	return err
}

// listOnce is how many requests a printed frame lists.
const listOnce = 10

// topLoop redraws after each look, and when the window changes its size.
func topLoop(ctx context.Context, every time.Duration, c *topClient, s *screen) {
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		width, height := s.size()
		v := topView{width: width, height: height, paint: s.colours, now: time.Now()}
		s.draw(v.fit(c))
		select {
		case <-ctx.Done():
			return
		case <-resized:
			s.clear()
		case <-tick.C:
			if err := c.look(ctx); err != nil && !errors.Is(err, context.Canceled) {
				c.trouble = err // shown over the last figures
			}
		}
	}
}
