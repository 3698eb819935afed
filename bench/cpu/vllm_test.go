package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAProcessLineIsReadBehindAnyName(t *testing.T) {
	r, err := parseRelative([]byte("4242 (a) b (c) S 17 1 1 0 -1 4194560 100 200 0 0 250 50 100 100 20 0 1 0 777 1000 10\n"))
	require.NoError(t, err)
	require.Equal(t, relative{pid: 4242, parent: 17, spent: 5, began: "777"}, r)
	for _, bad := range []string{"", "1 no name", "1 (x) S 17", "x (x) S 1 1 1 0 -1 1 1 1 0 0 1 1 1 1 20 0 1 0 777"} {
		_, err := parseRelative([]byte(bad))
		require.Error(t, err, bad)
	}
}

// The time of a child that still runs is ours, not a disturbance.
func TestTimeOfALivingChildIsOurs(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc here")
	}
	before, err := readUsage()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sh -c 'while :; do :; done' & wait")
	require.NoError(t, cmd.Start())
	var members []relative
	require.Eventually(t, func() bool {
		members = family(cmd.Process.Pid)
		after, err := readUsage()
		return err == nil && len(members) == 1 && after.own-before.own > 0.1
	}, 10*time.Second, 50*time.Millisecond)
	endFamily(members)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", members[0].pid))
		return err != nil || strings.Contains(string(raw), ") Z ")
	}, 5*time.Second, 20*time.Millisecond, "the grandchild outlived its end")
}

func TestASlowPeerDoesWhatHTTPShows(t *testing.T) {
	chosen := fit(works())
	var names []string
	for _, w := range chosen {
		names = append(names, w.name)
		require.LessOrEqual(t, w.full, 3, w.name)
	}
	require.Equal(t, []string{"start", "http16", "http1", "prefix64", "http_prefill", "http64"}, names)
	v := &vllm{}
	_, err := v.prefill(t.Context(), 1)
	require.ErrorIs(t, err, errUnsupported)
}

// One server serves all works, with an empty prefix cache for each; it ends with the engine.
func TestOneServerServesAllWorksOfASlowPeer(t *testing.T) {
	var asked []string
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.Method+" "+r.URL.Path) }))
	defer web.Close()
	process, err := start(t.Context(), web.URL, "", "sleep", "60")
	require.NoError(t, err)
	process.kept = true
	removed := false
	v := &vllm{running: process, remove: func() { removed = true }}
	for range 2 {
		s, err := v.serve(t.Context(), 16, 288)
		require.NoError(t, err)
		s.stop()
	}
	require.Equal(t, slices.Repeat([]string{"POST /reset_prefix_cache"}, 2), asked)
	select {
	case <-process.ended:
		t.Fatal("a work ended the server")
	default:
	}
	v.close()
	<-process.ended
	require.True(t, removed)
}

func TestVLLMIsStartedWithItsThreadsAndModel(t *testing.T) {
	folder, asked := build(t, map[string]string{"python": "env | grep ^VLLM_CPU >>" + filepath.Join(t.TempDir(), "env") + "; exit 3"})
	v := &vllm{folder: folder, model: "HF", threads: 2, remove: func() {}}
	s, err := v.serve(t.Context(), 1, startTokens)
	require.NoError(t, err)
	_, err = s.firstToken(t.Context())
	require.ErrorContains(t, err, "ended")
	s.stop()
	raw, err := os.ReadFile(asked)
	require.NoError(t, err)
	require.Contains(t, string(raw), "--model HF --dtype bfloat16")
}
