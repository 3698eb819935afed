//go:build cgo && linux && amd64

package cpu

// #include "omni.h"
import "C"

// layout is what a level decides about memory.
type layout struct {
	panel       int   // tokens of a panel at most
	panelBytes  int64 // a block of 32 columns
	byRows      C.int32_t
	kv          C.int32_t // caches, unless the user chose
	expandBytes int64     // an expanded block
}

func layoutOf(l *C.Level) layout {
	return layout{int(l.panel), int64(l.panel_bytes), l.by_rows, l.kv, int64(l.expand_bytes)}
}

// widen gives panels the width that the step's rows need: one token then fills one cache line, and sixteen share sixteen.
func (s *step) widen() {
	rows := [...]C.int32_t{C.ROWS_TOKENS: s.c.T, C.ROWS_LOGITS: s.c.L, C.ROWS_REQUESTS: s.c.R}
	for _, e := range s.program.entries {
		for _, b := range e.plan.buffers {
			if b.panel && b.c != nil {
				b.c.wide = C.wide_for(C.int(rows[b.c.rows_kind]))
			}
		}
	}
}

// productsOf says by which kernels a level multiplies packed blocks, by the tokens of a unit of work.
func productsOf(level string) string {
	switch level {
	case "avx512-amx":
		return "products of blocks, int8 activations: VNNI from packed blocks to 8 tokens; more by AMX tiles or by VNNI (expanded from 21), as each thread measures; same bits\n"
	case "amx-bf16":
		return "products of blocks, bfloat16 activations and weights: AMX tiles, expanded as they stream to 16 tokens, once a unit above\n"
	case "avx512-vnni":
		return "products of blocks, int8 activations: VNNI from packed blocks to 20 tokens, expanded above\n"
	}
	return "products of blocks, int8 activations: from packed blocks\n"
}
