package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/internal/server/dashboard"
	"omni-engine/metrics/record"
)

const hostileID = "cmpl-\x1b[2J\x1b]0;pwned\x07\u202eevil"

// dashboardServer answers as a server with one core that finished three requests.
func dashboardServer(t *testing.T) *httptest.Server {
	t.Helper()
	d := dashboard.New(dashboard.Options{Models: []string{"smollm2"}, Version: "v1", Recording: true})
	r := d.Replica(dashboard.ReplicaInfo{})
	snap := record.Snapshot{Cache: &record.CacheConfig{SizeTokens: 1600}, Totals: record.Totals{GenerationTokens: 1234, PrefixQueries: 100, PrefixHits: 42}}
	snap.Stats.Running, snap.Stats.Waiting, snap.Stats.Usage, snap.Stats.TotalBlocks, snap.Stats.FreeBlocks = 5, 2, 0.75, 100, 25
	r.Observe(func() record.Snapshot { return snap })
	sink := r.Sink(record.Discard{})
	for i, id := range []string{"cmpl-first", "cmpl-second", hostileID} {
		sink.Finished(finishedRecord(id, 100*(i+1)))
	}
	mux := http.NewServeMux()
	for path, h := range d.Routes() {
		mux.Handle("GET "+path, h)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

// finishedRecord queued 10 ms, prefilled 40 ms, decoded decode ms.
func finishedRecord(id string, decode int) *record.Stage {
	m, start := clock.NewManual(time.Second), time.Now()
	at := func(ms int) clock.Time { return m.Now().Add(time.Duration(ms) * time.Millisecond) }
	s := record.Begin(record.Identity{RequestID: id, CoreID: request.ID(id), Model: "smollm2"}, clock.WallAt(start))
	s.PromptTokens = 12
	s.ApplyOutput(at(50), clock.WallAt(start.Add(50*time.Millisecond)), &request.Output{NewTokens: []int32{1},
		Events:  []request.Event{{Type: request.Queued, At: at(0)}, {Type: request.Scheduled, At: at(10)}},
		Changes: []request.StateChange{{To: request.StateQueued, At: at(0)}, {To: request.StatePrefill, At: at(10)}, {To: request.StateDecode, At: at(50)}}}, nil)
	s.ApplyOutput(at(50+decode), clock.WallAt(start.Add(time.Duration(50+decode)*time.Millisecond)), &request.Output{NewTokens: []int32{2},
		Finish: request.FinishStop}, nil)
	return s
}

func runTop(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"top", "--interval", "100ms"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestTopPrintsOneFrameWhereThereIsNoTerminal(t *testing.T) {
	out, err := runTop(t, "--url", dashboardServer(t).URL+"/")
	require.NoError(t, err)
	require.NotContains(t, out, "\x1b")
	require.NotContains(t, out, "\u202e")
	for _, want := range []string{
		`omni-engine smollm2  v1 +● live  last minute`, `Stage 0  llm_ar  replica 0`, `Requests +5 running .*2 waiting`, `KV cache +75 % .*75 of 100 blocks`,
		`Prefix hits +42 %`, `Generation .* 1234 since start`, `Where requests spend their time: 3 that ended`, `\bqueued +10\.0 ms +10\.0 ms +10\.0 ms +3\n`,
		`decode +200 ms +280 ms +298 ms +3\n`, `stop +cmpl-first .*12 → 2`, `stop +cmpl-·\[2J·\]0;pwned··evil`,
	} {
		require.Regexp(t, want, out)
	}
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), plainWidth, line)
	}
	// Without colours a bar is made of its states' letters: 10, 40 and 200 ms a request.
	bar := regexp.MustCompile(`(?m)^  (q+)(p+)(d+)$`).FindStringSubmatch(out)
	require.NotNil(t, bar, out)
	require.InDelta(t, 96*0.04, len(bar[1]), 1)
	require.InDelta(t, 96*0.16, len(bar[2]), 1)
	require.InDelta(t, 96*0.80, len(bar[3]), 1)
}

func TestTopPrintsJSON(t *testing.T) {
	out, err := runTop(t, "--json", "--query", "second", "--url", dashboardServer(t).URL)
	require.NoError(t, err)
	var v struct {
		State    dashboard.State
		Requests dashboard.List
	}
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	require.Equal(t, 3, v.State.Stages[0].Replicas[0].Recent.Requests)
	require.Equal(t, 1, v.Requests.Matched)
	require.Equal(t, "cmpl-second", v.Requests.Requests[0].ID)
}

func TestTopSaysWhatIsWrong(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	_, err := runTop(t, "--url", gone.URL)
	require.ErrorContains(t, err, "--disable-dashboard")
	gone.Close()
	_, err = runTop(t, "--url", gone.URL)
	require.ErrorContains(t, err, "no server at "+gone.URL)
	require.ErrorContains(t, err, "refused")
	html := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer html.Close()
	_, err = runTop(t, "--url", html.URL)
	require.ErrorContains(t, err, "not what omni-engine answers")
	_, err = runTop(t, "--window", "61")
	require.ErrorContains(t, err, "--window")
	_, err = runTop(t, "--interval", "1ms")
	require.ErrorContains(t, err, "--interval")
}

func TestTopFitsEveryTerminal(t *testing.T) {
	c := newTopClient(topOptions{url: dashboardServer(t).URL, window: 60})
	require.NoError(t, c.look(t.Context()))
	plain := regexp.MustCompile(`\x1b\[[0-9;]*m`)
	for width := leastWidth; width < 220; width += 7 {
		for height := 1; height < 60; height++ {
			v := topView{width: width, height: height, paint: true, now: time.Now()}
			lines := v.fit(c)
			require.LessOrEqual(t, len(lines), height)
			for _, l := range lines {
				if width >= 66 { // narrower ones wrap nowhere: the terminal cuts them
					require.LessOrEqual(t, len([]rune(plain.ReplaceAllString(l, ""))), width, "%d: %q", width, l)
				}
			}
		}
	}
}

func TestTopShowsStaleFiguresAsStale(t *testing.T) {
	server := dashboardServer(t)
	c := newTopClient(topOptions{url: server.URL, window: 60})
	require.NoError(t, c.look(t.Context()))
	server.Close()
	c.trouble = c.look(t.Context())
	v := topView{width: 100, now: time.Now()}
	text := strings.Join(v.frame(c, 5), "\n")
	require.Contains(t, text, "stale since "+c.at.Format(time.TimeOnly))
	require.Contains(t, text, "no server at")
	require.Contains(t, text, "5 running", "the last figures stay")
}

// terminal opens a pseudo-terminal of 100 by 40 characters: what the program writes to tty is read from master.
func terminal(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo-terminals here: ", err)
	}
	t.Cleanup(func() { _ = master.Close() })
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tty.Close() })
	require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100}))
	return master, tty
}

// typescript collects what a terminal was sent.
type typescript struct {
	master *os.File
	text   strings.Builder
}

func (s *typescript) until(t *testing.T, want string) string {
	t.Helper()
	buf := make([]byte, 1<<16)
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(s.text.String(), want); {
		require.True(t, time.Now().Before(deadline), "waiting for %q in %q", want, s.text.String())
		n, err := s.master.Read(buf)
		require.NoError(t, err)
		s.text.Write(buf[:n])
	}
	all := s.text.String()
	s.text.Reset()
	return all
}

func TestTopGivesTheTerminalBack(t *testing.T) {
	server := dashboardServer(t)
	for _, end := range []string{"q", "signal"} {
		t.Run(end, func(t *testing.T) {
			t.Setenv("TERM", "xterm-256color")
			t.Setenv("NO_COLOR", "")
			master, tty := terminal(t)
			before, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			require.NoError(t, err)
			ctx, signal := context.WithCancel(t.Context())
			defer signal()
			done := make(chan error, 1)
			go func() {
				done <- top(ctx, topOptions{url: server.URL, window: 60, interval: 100 * time.Millisecond}, tty, tty)
			}()
			s := &typescript{master: master}
			require.Contains(t, s.until(t, "Latency"), "\x1b[?1049h", "the alternate screen is taken first")
			raw, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			require.NoError(t, err)
			require.Zero(t, raw.Lflag&(unix.ICANON|unix.ECHO))
			require.NotZero(t, raw.Lflag&unix.ISIG, "Ctrl-C stays a signal")

			require.NoError(t, unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 8, Col: 100}))
			require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGWINCH))
			s.until(t, "enlarge the terminal")
			if end == "q" {
				_, err = master.WriteString("q")
				require.NoError(t, err)
			} else {
				signal()
			}
			s.until(t, "\x1b[?25h\x1b[?1049l")
			require.NoError(t, <-done)
			after, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestNoColourIsHonoured(t *testing.T) {
	_, tty := terminal(t)
	t.Setenv("TERM", "xterm")
	for value, colours := range map[string]bool{"": true, "1": false} {
		t.Setenv("NO_COLOR", value)
		s, interactive := openScreen(tty, tty)
		require.True(t, interactive)
		require.Equal(t, colours, s.colours)
	}
}
