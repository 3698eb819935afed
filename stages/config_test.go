package stages

import "omni-engine/scheduler"

func schedulerConfig(o options) scheduler.Config {
	c := scheduler.DefaultConfig()
	c.MaxNumSeqs, c.MaxNumBatchedTokens, c.NumBlocks, c.BlockSize, c.MaxModelLen = o.seqs, o.tokens, o.blocks, blockSize, o.maxLen
	c.Async, c.MaxConcurrentBatches = o.depth > 1, max(o.depth, 1)
	c.EnablePrefixCaching = !o.noPrefix
	return c
}
