package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/safetensors"
	"omni-engine/kernels"
)

// tiny is a module of one of the tiny checkpoints.
func tiny(t testing.TB, name string) *kernels.Module {
	t.Helper()
	dir := filepath.Join("..", "..", "engine", "models", "testdata", "tiny", name)
	config, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	w, err := safetensors.Open(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.Close()) })
	m, err := models.Load(models.Source{Config: config, Weights: w})
	require.NoError(t, err)
	return m.Module
}

// decoders are the tiny checkpoints of the families that have CUDA kernels.
func decoders() []string {
	return []string{"llama_default", "llama3_tied", "qwen2", "qwen3", "gemma3_text"}
}

func limits() kernels.Limits {
	return kernels.Limits{Tokens: 48, Rows: 6, LogitRows: 48, MaxModelLen: 128, InFlight: 2, BlockSize: 16}
}

func explain(t *testing.T, name string) string {
	t.Helper()
	p, err := newPlan(tiny(t, name), limits(), hardware{sms: 132})
	require.NoError(t, err)
	var s strings.Builder
	for _, e := range p.entries {
		e.explain(&s)
	}
	return s.String()
}

func TestDecodersBecomeFewNodes(t *testing.T) {
	llama := explain(t, "llama_default")
	for _, line := range []string{"1 x embed [BF16]", "4 x norm\n", "2 x rope + cache", "2 x attention", "4 x product [BF16] + residual", "5 x product [BF16]\n", "2 x gated silu", "1 x norm of logit rows", "1 x sample"} {
		require.Contains(t, llama, line)
	}
	require.Contains(t, explain(t, "qwen2"), "2 x product [BF16] + bias")
	require.Contains(t, explain(t, "qwen3"), "2 x qk-norm + rope + cache")
	gemma := explain(t, "gemma3_text")
	for _, line := range []string{"3 x qk-norm + rope + cache", "2 x attention window 8", "1 x attention\n", "5 x post-norm + residual + norm", "1 x post-norm + residual\n", "3 x gated gelu-tanh"} {
		require.Contains(t, gemma, line)
	}
}

func TestOneErrorNamesEverythingThatIsMissing(t *testing.T) {
	for name, want := range map[string][]string{
		"gpt_oss":     {"attention with sinks", "operation route", "operation experts"},
		"deepseek_v2": {"attention heads of"},
		"qwen3_next":  {"slot states"},
	} {
		_, err := newPlan(tiny(t, name), limits(), hardware{sms: 132})
		require.ErrorContains(t, err, "--device cpu may serve it", name)
		for _, w := range want {
			require.ErrorContains(t, err, w, name)
		}
	}
}

func TestTypesFollowTheWeightsAndTheFlags(t *testing.T) {
	m := tiny(t, "llama_default")
	p, err := newPlan(m, limits(), hardware{sms: 1})
	require.NoError(t, err)
	require.Equal(t, tensor.BF16, p.act)
	l := limits()
	l.Exact = true
	p, err = newPlan(m, l, hardware{sms: 1})
	require.NoError(t, err)
	require.Equal(t, tensor.F32, p.act)
	require.Equal(t, tensor.F32, p.kv)
	l = limits()
	l.Compute = tensor.F16
	p, err = newPlan(m, l, hardware{sms: 1})
	require.NoError(t, err)
	require.Equal(t, tensor.F16, p.kv)
	l.KV = tensor.F32
	_, err = newPlan(m, l, hardware{sms: 1})
	require.ErrorContains(t, err, "a KV cache of F32 beside activations of F16")
	l = limits()
	l.BlockSize = 8
	_, err = newPlan(m, l, hardware{sms: 1})
	require.ErrorContains(t, err, "block size 8 is no multiple")
}

// Values that are alive together never share memory.
func TestBuffersDoNotOverlapWhileAlive(t *testing.T) {
	for _, name := range decoders() {
		p, err := newPlan(tiny(t, name), limits(), hardware{sms: 132})
		require.NoError(t, err)
		for _, e := range p.entries {
			for i, a := range e.buffers {
				for _, b := range e.buffers[i+1:] {
					if a == b || a.first < 0 || b.first < 0 {
						continue
					}
					alive := a.output || b.output || a.first <= b.last && b.first <= a.last
					apart := a.offset+p.bufferBytes(a) <= b.offset || b.offset+p.bufferBytes(b) <= a.offset
					require.True(t, !alive || apart, "%s %s: buffers %s and %s", name, e.spec.Name, a.name, b.name)
				}
				require.LessOrEqual(t, a.offset+p.bufferBytes(a), p.scratch.size)
			}
		}
		require.Less(t, p.layoutWeights(), int64(2<<20))
	}
}

func batchOfTwo() kernels.Batch {
	return kernels.Batch{
		Tokens: []int32{11, -1}, Positions: [3][]int32{{17, 5}}, QueryStart: []int32{0, 1, 2}, SeqLens: []int32{18, 6}, Slots: []int32{3, 1},
		Flags: []kernels.RowFlags{0, 0}, LogitRows: []int32{0, 1}, LogitOwner: []int32{0, 1}, Sampling: make([]kernels.RowSampling, 2),
		Tables: []kernels.GroupTable{{Start: []int32{0, 2, 3}, Blocks: []int32{7, 9, 4}}},
	}
}

func TestPaddingRowsReadTheNullBlockAndStoreNothing(t *testing.T) {
	p, err := newPlan(tiny(t, "llama_default"), limits(), hardware{sms: 132})
	require.NoError(t, err)
	m := p.images.buckets[4]
	memory := make([]int32, p.images.limits.size/4)
	for i := range memory {
		memory[i] = 77 // what an earlier, larger batch left
	}
	base := unsafe.Pointer(&memory[0])
	b := batchOfTwo()
	used := make([]int64, 1)
	sz := m.fill(base, &b, 16, p.tiles, true, used)
	require.Equal(t, sizes{image: m, tokens: 4, rows: 4, logits: 4, decodes: 4, work: [maxTiles]int{4}, longest: 18}, sz)
	require.Equal(t, []int32{11, -1, 0, 0}, ints(base, m.tokenIDs, 4))
	require.Equal(t, []int32{17, 5, 0, 0}, ints(base, m.positions, 4))
	require.Equal(t, []int32{3, 1, 0, 0}, ints(base, m.tokenSlots, 4))
	require.Equal(t, []int32{0, 1, 2, 3, 4}, ints(base, m.queryStart, 5))
	require.Equal(t, []int32{18, 6, 1, 1}, ints(base, m.seqLens, 4))
	require.Equal(t, []int32{0, 1, 2, 3}, ints(base, m.logitRows, 4))
	g := m.groups[0]
	require.Equal(t, []int32{9*16 + 1, 4*16 + 5, -1, -1}, ints(base, g.slotMap, 4))
	require.Equal(t, []int32{0, 2, 3, 4, 5}, ints(base, g.start, 5))
	require.Equal(t, []int32{7, 9, 4, 0, 0}, ints(base, g.blocks, 5))
	require.EqualValues(t, 20, used[0])
}

func TestRowsOfOneTokenAndTilesAreListedApart(t *testing.T) {
	m := &image{tokens: 12, rows: 3, queryStart: 0, decodeRows: 64, works: []int64{128, 256}}
	memory := make([]int32, 256)
	base := unsafe.Pointer(&memory[0])
	copy(memory, []int32{0, 5, 6, 12})
	sz := sizes{rows: 3}
	m.divide(base, &sz, []int{1, 4})
	require.Equal(t, 1, sz.decodes)
	require.EqualValues(t, 1, ints(base, 64, 1)[0])
	require.Equal(t, 12, sz.work[0], "a tile of one query serves every token")
	require.Equal(t, 4, sz.work[1])
	require.Equal(t, []int32{0, 0, 0, 4, 2, 0, 2, 4}, ints(base, 256, 8))
}
