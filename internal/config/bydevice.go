package config

import (
	"errors"
	"strings"
)

// ForDevice sets what of a step nobody set, and checks it: on the CPU the defaults, on a GPU vLLM 0.32's for a server, by the device's
// memory. Without chunked prefill a step holds a whole context. maxLen is the context that is served.
func (s *Serve) ForDevice(kind, name string, memory int64, maxLen int) error {
	beside := DefaultPrefillBesideDecode
	if kind == "cuda" {
		s.forGPU(name, memory, maxLen)
		beside = 0
	}
	if s.PrefillBesideDecode < 0 {
		s.PrefillBesideDecode = beside
	}
	if !s.TokensByDevice && !s.SeqsByDevice {
		return nil // checked when it was read
	}
	return errors.Join(checkBatch(s, maxLen)...)
}

func (s *Serve) forGPU(name string, memory int64, maxLen int) {
	tokens, seqs := 2048, 256
	switch {
	case memory >= 160<<30:
		tokens, seqs = 16384, 1024
	case memory >= 70<<30 && !strings.Contains(strings.ToLower(name), "a100"): // large steps are slower on an A100, vLLM found
		tokens, seqs = 8192, 1024
	}
	if s.SeqsByDevice {
		s.MaxNumSeqs = seqs
	}
	if s.TokensByDevice {
		if !s.ChunkedPrefill {
			tokens = max(tokens, maxLen)
		}
		s.MaxNumBatchedTokens = tokens
		if maxLen > 0 {
			s.MaxNumBatchedTokens = min(tokens, s.MaxNumSeqs*maxLen)
		}
	}
}
