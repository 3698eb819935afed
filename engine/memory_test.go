package engine

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels"
)

func TestPlanCache(t *testing.T) {
	full := []kernels.GroupSpec{{Name: "full"}}
	mixed := []kernels.GroupSpec{{Name: "full"}, {Name: "sliding", Window: 512}}
	cases := []struct {
		name   string
		block  []int64
		req    CacheRequest
		blocks int
		perSeq int
		err    string
	}{
		{"as many blocks as fit", []int64{1 << 20}, CacheRequest{Bytes: 100<<20 + 5, MaxModelLen: 1024, MaxTokens: 512, BlockSize: 16, Groups: full}, 100, 64, ""},
		{"one sequence and the null block just fit", []int64{1 << 20}, CacheRequest{Bytes: 65 << 20, MaxModelLen: 1024, MaxTokens: 512, BlockSize: 16, Groups: full}, 65, 64, ""},
		{"one block less does not", []int64{1 << 20}, CacheRequest{Bytes: 64 << 20, MaxModelLen: 1024, MaxTokens: 512, BlockSize: 16, Groups: full}, 0, 0,
			"To serve at least one request with the model's max seq len (1024), 0.063477 GiB KV cache is needed, which is larger than the available KV cache memory (0.062500 GiB). " +
				"Based on the available memory, the estimated maximum model length is 1008. Try increasing --kv-cache-memory-bytes (or VLLM_CPU_KVCACHE_SPACE) or decreasing --max-model-len."},
		{"nothing fits", []int64{1 << 30}, CacheRequest{Bytes: 1 << 20, MaxModelLen: 64, MaxTokens: 512, BlockSize: 16, Groups: full}, 0, 0,
			"To serve at least one request with the model's max seq len (64), 5.00 GiB KV cache is needed, which is larger than the available KV cache memory (0.000977 GiB). " +
				"Try increasing --kv-cache-memory-bytes (or VLLM_CPU_KVCACHE_SPACE) or decreasing --max-model-len."},
		{"a window holds what it and one step touch", []int64{1000, 500}, CacheRequest{Bytes: 1000 * 1000, MaxModelLen: 32768, MaxTokens: 256, BlockSize: 16, Groups: mixed}, 0, 0, "max seq len (32768)"},
		{"hybrid: a block belongs to one group at a time", []int64{1000, 500}, CacheRequest{Bytes: 1000 * 3000, MaxModelLen: 32768, MaxTokens: 256, BlockSize: 16, Groups: mixed}, 3000, 2048 + 49, ""},
		{"override", []int64{1 << 20}, CacheRequest{Blocks: 70, MaxModelLen: 1024, MaxTokens: 512, BlockSize: 16, Groups: full}, 70, 64, ""},
		{"override too small", []int64{1 << 20}, CacheRequest{Blocks: 7, MaxModelLen: 1024, MaxTokens: 512, BlockSize: 16, Groups: full}, 0, 0, "Try increasing --num-gpu-blocks-override"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			plan := kernels.MemoryPlan{BlockBytes: c.block}
			c.req.MaxSeqs = 8
			got, err := PlanCache(&plan, c.req)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.blocks, got.Blocks)
			require.Equal(t, c.perSeq, got.BlocksPerSeq)
			require.Equal(t, c.blocks, plan.Blocks)
			require.Equal(t, 8, plan.Slots)
		})
	}
}

func TestWhatIsPrintedIsWhatTheSnapshotSays(t *testing.T) {
	plan := kernels.MemoryPlan{BlockBytes: []int64{1 << 20}}
	r := CacheRequest{Bytes: 2001 << 20, MaxModelLen: 2048, MaxTokens: 512, MaxSeqs: 8, BlockSize: 16, Groups: []kernels.GroupSpec{{}}}
	c, err := PlanCache(&plan, r)
	require.NoError(t, err)
	require.Equal(t, []string{
		"Available KV cache memory: 1.95 GiB", "CPU KV cache size: 32,000 tokens (2001 blocks)",
		"Maximum concurrency for 2,048 tokens per request: 15.62x"}, c.Lines("CPU", 2048))
	facts := c.CacheConfig(r)
	require.Equal(t, 2001, facts.NumBlocks)
	require.Equal(t, 32000, facts.SizeTokens)
	require.InDelta(t, 15.625, facts.MaxConcurrency, 1e-9)
}

func TestDefaultCacheBytes(t *testing.T) {
	plan := &kernels.MemoryPlan{BlockBytes: []int64{1 << 20}}
	r := CacheRequest{MaxModelLen: 1024, MaxTokens: 512, MaxSeqs: 4, BlockSize: 16}
	require.EqualValues(t, 257<<20, DefaultCacheBytes(plan, r, 0), "what max_num_seqs need")
	require.EqualValues(t, 100<<20, DefaultCacheBytes(plan, r, 200<<20), "half of what is free")
	r.MaxSeqs = 1000
	require.EqualValues(t, 4<<30, DefaultCacheBytes(plan, r, 100<<30))
}

func TestFreeMemoryIsTheTightestLimit(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	v2 := fstest.MapFS{
		"proc/meminfo":                           file("MemTotal: 8000 kB\nMemAvailable:    4000 kB\n"),
		"proc/self/cgroup":                       file("0::/a/b\n"),
		"sys/fs/cgroup/a/b/memory.max":           file("max\n"),
		"sys/fs/cgroup/a/memory.max":             file("3000000\n"),
		"sys/fs/cgroup/a/memory.current":         file("2500000\n"),
		"sys/fs/cgroup/a/memory.stat":            file("anon 5\ninactive_file 100000\n"),
		"sys/fs/cgroup/a/b/memory.current":       file("1\n"),
		"sys/fs/cgroup/memory/c/ignored-by-v2":   file(""),
		"sys/fs/cgroup/unrelated/memory.max":     file("1\n"),
		"sys/fs/cgroup/unrelated/memory.current": file("1\n"),
	}
	require.EqualValues(t, 600000, FreeMemory(v2))
	v1 := fstest.MapFS{
		"proc/meminfo":     file("MemAvailable: 4000 kB\n"),
		"proc/self/cgroup": file("3:cpu:/x\n4:memory:/d\n"),
		"sys/fs/cgroup/memory/d/memory.limit_in_bytes": file("2000000"),
		"sys/fs/cgroup/memory/d/memory.usage_in_bytes": file("500000"),
	}
	require.EqualValues(t, 1500000, FreeMemory(v1))
	require.EqualValues(t, 4000<<10, FreeMemory(fstest.MapFS{"proc/meminfo": file("MemAvailable: 4000 kB\n")}))
	require.Zero(t, FreeMemory(fstest.MapFS{}))
}
