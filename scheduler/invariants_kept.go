package scheduler

import (
	"fmt"
	"slices"
)

// checkRows verifies a decision that was just made: what its rows keep from earlier steps must still be true of their requests.
func (s *Scheduler) checkRows(d *Decision) error {
	if len(d.items) != len(d.Rows) {
		return fmt.Errorf("%d rows and %d items", len(d.Rows), len(d.items))
	}
	for i, it := range d.items[len(d.items):cap(d.items)] {
		if it.q != nil || (len(d.Rows)+i < cap(d.Rows) && d.Rows[:cap(d.Rows)][len(d.Rows)+i].Req != nil) {
			return fmt.Errorf("a row behind the last keeps %s", it.q.id)
		}
	}
	total := 0
	for i := range d.Rows {
		row, it := &d.Rows[i], &d.items[i]
		q := it.q
		total += row.NumTokens
		if row.ID != q.id || row.Req != q.req || row.Slot != int(q.slot) || row.PromptLen != q.numPrompt || &row.Blocks[0] != &q.tables[0] {
			return fmt.Errorf("row %d of %s belongs to %s, slot %d of %d, prompt %d of %d", i, q.id, row.ID, row.Slot, q.slot, row.PromptLen, q.numPrompt)
		}
		if len(row.Tokens) != len(q.tokens) || &row.Tokens[0] != &q.tokens[0] {
			return fmt.Errorf("row %d of %s has %d tokens, the request %d, or other ones", i, q.id, len(row.Tokens), len(q.tokens))
		}
		if row.NumComputed+row.NumTokens != q.computed || int(it.n) != row.NumTokens || int(it.drafts) != len(row.Drafts) {
			return fmt.Errorf("row %d of %s: %d tokens at %d with %d drafts, computed %d", i, q.id, row.NumTokens, row.NumComputed, len(row.Drafts), q.computed)
		}
		for g, more := range row.NewBlocks {
			if t := q.tables[g]; !slices.Equal(t[len(t)-len(more):], more) {
				return fmt.Errorf("row %d of %s: new blocks %v are not the end of %v", i, q.id, more, t)
			}
		}
	}
	if total != d.TotalTokens {
		return fmt.Errorf("%d tokens in the rows, counted %d", total, d.TotalTokens)
	}
	return nil
}

// checkOutputs verifies what an update left in place of earlier outputs.
func (s *Scheduler) checkOutputs() error {
	o := &s.outputs
	if len(o.plain) != len(o.step.Outputs) {
		return fmt.Errorf("%d outputs and %d marks", len(o.step.Outputs), len(o.plain))
	}
	for i := range o.step.Outputs {
		q, out := o.plain[i].q, &o.step.Outputs[i]
		if q == nil {
			continue
		}
		want := q.tokens[len(q.tokens)-1]
		if out.ID != q.id || len(out.NewTokens) != 1 || out.NewTokens[0] != want || out.Client != q.client || out.NumCached != q.prefillLocal ||
			out.StopToken != q.stopToken || out.Repeated != q.repeated {
			return fmt.Errorf("output %d of %s (token %d) is %+v", i, q.id, want, *out)
		}
		if out.Finish != 0 || out.Terminal || len(out.Events)+len(out.Changes) > 0 || out.Prefill != nil || out.Payload != nil || out.Err != "" {
			return fmt.Errorf("output %d of %s keeps what belongs to another step: %+v", i, q.id, *out)
		}
	}
	return nil
}

// checkMarks verifies the thresholds that spare a decode step the work on tables and lengths.
func (s *Scheduler) checkMarks(q *seq) error {
	roof, hashAt, limit := q.roof, q.hashAt, q.limit
	s.setMarks(q)
	q.setLimit(s.cfg.MaxModelLen)
	if roof != q.roof || hashAt != q.hashAt || limit != q.limit {
		return fmt.Errorf("%s: next block at %d of %d, next hash at %d of %d, length limit %d of %d", q.id, roof, q.roof, hashAt, q.hashAt, limit, q.limit)
	}
	if q.noted != (len(q.events)+len(q.changes) > 0) || q.drafted != (len(q.spec) > 0) {
		return fmt.Errorf("%s: %d events and %d changes noted %v, %d drafts noted %v", q.id, len(q.events), len(q.changes), q.noted, len(q.spec), q.drafted)
	}
	return nil
}
