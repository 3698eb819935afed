package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"

	"omni-engine/internal/config"
)

// newLogger returns the server's log: lines as vLLM writes them (level, date, message, key=value), or JSON.
func newLogger(cfg *config.Serve, w io.Writer) *slog.Logger {
	level := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warning": slog.LevelWarn, "error": slog.LevelError}[cfg.LogLevel]
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(&lineHandler{level: level, out: &lockedWriter{w: w}})
}

// lineHandler writes messages as they are: a table keeps its lines, which slog's own text handler would quote.
type lineHandler struct {
	level  slog.Level
	out    *lockedWriter
	prefix string // attributes of With, formatted
	group  string
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Enabled reports whether the level is logged.
func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

// Handle writes one record.
func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", levelName(r.Level), r.Time.Format("01-02 15:04:05.000"), r.Message)
	b.WriteString(h.prefix)
	r.Attrs(func(a slog.Attr) bool {
		writeAttr(&b, h.group, a)
		return true
	})
	b.WriteByte('\n')
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	_, err := io.WriteString(h.out.w, b.String())
	return err
}

func levelName(l slog.Level) string {
	if l == slog.LevelWarn {
		return "WARNING"
	}
	return l.String()
}

// WithAttrs returns a handler that adds attributes to every record.
func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range attrs {
		writeAttr(&b, h.group, a)
	}
	c := *h
	c.prefix += b.String()
	return &c
}

// WithGroup returns a handler that puts a prefix before keys.
func (h *lineHandler) WithGroup(name string) slog.Handler {
	c := *h
	c.group += name + "."
	return &c
}

func writeAttr(b *strings.Builder, group string, a slog.Attr) {
	if a.Equal(slog.Attr{}) {
		return
	}
	v := a.Value.Resolve()
	if v.Kind() == slog.KindGroup {
		for _, m := range v.Group() {
			writeAttr(b, group+a.Key+".", m)
		}
		return
	}
	text := v.String()
	if v.Kind() == slog.KindFloat64 {
		text = strconv.FormatFloat(v.Float64(), 'f', 3, 64)
	}
	if text == "" || strings.ContainsAny(text, " \n\t\"=") {
		text = strconv.Quote(text)
	}
	b.WriteString(" " + group + a.Key + "=" + text)
}
