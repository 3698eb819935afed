package main

import "omni-engine/kernels"

// matrixWork is what a forward pass multiplies: a benchmark holds its rates against the machine's peaks with it.
type matrixWork struct {
	TokenMACs int64 `json:"macs_per_token"`     // multiply-adds of the linears for each token
	LogitMACs int64 `json:"macs_per_logit_row"` // for each row of logits
	Bytes     int64 `json:"weight_bytes"`       // of all of them, as the file holds them: what one decode step reads
}

// workOf counts the linears of the module's forward entry; a linear whose output has a row a logit counts as the head.
func workOf(m *kernels.Module) (w matrixWork) {
	for _, e := range m.Entries {
		if e.Name != "forward" {
			continue
		}
		for _, op := range e.Ops {
			l, ok := op.(*kernels.Linear)
			if !ok {
				continue
			}
			v := m.Weights[l.Weight].View
			macs := int64(v.Shape[0]) * int64(v.Shape[1])
			w.Bytes += int64(len(v.Data))
			if e.Buffers[l.Out].Rows.Sym == kernels.LogitRows {
				w.LogitMACs += macs
			} else {
				w.TokenMACs += macs
			}
		}
	}
	return w
}
