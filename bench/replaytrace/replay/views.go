package replay

import (
	"slices"
	"strings"

	"omni-engine/engine/request"
	"omni-engine/scheduler"
)

type object = map[string]any

// list makes nil an empty list.
func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// sched writes a decision as vLLM's SchedulerOutput was recorded.
func (r *replay) sched(d *scheduler.Decision, throttle bool) object {
	c := &r.t.Config
	fresh, again, resumedNew, cached, resumed := []object{}, []object{}, []object{}, []object{}, []object{}
	num, spec := [][]any{}, [][]any{}
	for i := range d.Rows {
		row := &d.Rows[i]
		num = append(num, []any{row.ID, row.NumTokens})
		if len(row.Drafts) > 0 {
			spec = append(spec, []any{row.ID, row.Drafts})
		}
		switch {
		case row.New:
			fresh = append(fresh, r.newRow(row))
		case row.Resumed && c.V2:
			resumedNew = append(resumedNew, r.newRow(row))
		case row.Resumed:
			resumed = append(resumed, r.cachedRow(row))
		default:
			cached = append(cached, r.cachedRow(row))
		}
	}
	again = append(append(again, cached...), resumed...)
	clear(r.prev)
	for i := range d.Rows {
		r.prev[d.Rows[i].ID] = true
	}
	running, waiting, holding, free := r.s.Queues()
	out := object{
		"new": append(fresh, resumedNew...), "cached": again, "num": num, "total": d.TotalTokens, "preempted": list(d.Preempted),
		"finished": sortedIDs(d.Finished), "run": running, "wait": waiting, "kvwait": holding, "free": free,
	}
	if len(spec) > 0 {
		out["spec"] = spec
	}
	if throttle {
		out["throttle"] = true
	}
	return out
}

func sortedIDs(ids []request.ID) []request.ID {
	out := slices.Clone(list(ids))
	slices.Sort(out)
	return slices.Compact(out)
}

func (r *replay) newRow(row *scheduler.Row) object {
	out := object{"id": row.ID, "nct": row.NumComputed, "blocks": list(row.Blocks[0]), "prompt_len": row.PromptLen}
	if row.Req.Resumable {
		out["prompt"] = row.Tokens[:row.PromptLen]
	}
	if r.t.Config.V2 {
		out["prefill_len"] = len(row.Tokens)
		if row.Resumed {
			out["resumed"] = true
		}
	}
	return out
}

func (r *replay) cachedRow(row *scheduler.Row) object {
	out := object{"id": row.ID, "nct": row.NumComputed, "nout": row.NumOutput, "new_blocks": nil}
	if row.NewBlocks != nil {
		out["new_blocks"] = row.NewBlocks[0]
	}
	c := &r.t.Config
	if row.Resumed {
		out["resumed"] = true
	}
	if !c.V2 && !r.prev[row.ID] {
		out["all_tokens"] = len(row.Tokens)
	}
	if c.PPSize > 1 && c.Mode == "sync" {
		end := min(row.NumComputed+row.NumTokens-len(row.Drafts), len(row.Tokens))
		out["new_tokens"] = row.Tokens[row.NumComputed:end]
	}
	return out
}

// clientOutputs groups outputs by client as vLLM's update_from_output does.
func (r *replay) clientOutputs(out *request.StepOutputs) []object {
	var clients []int
	outs := map[int][]object{}
	for i := range out.Outputs {
		o := &out.Outputs[i]
		if o.Terminal {
			continue // vLLM emits nothing for these
		}
		if _, ok := outs[o.Client]; !ok {
			clients = append(clients, o.Client)
		}
		outs[o.Client] = append(outs[o.Client], outputOf(o))
		if o.Finish != request.NotFinished && !o.Segment {
			r.noteEnd(o.ID)
		}
	}
	result := []object{}
	entry := func(c int) object {
		for _, e := range result {
			if e["client"] == c {
				return e
			}
		}
		e := object{"client": c, "outs": list(outs[c])}
		result = append(result, e)
		return e
	}
	for _, c := range clients {
		entry(c)
	}
	if r.t.Config.FinishedSets {
		for _, c := range r.order {
			slices.Sort(r.ended[c])
			entry(c)["finished"] = r.ended[c]
		}
	}
	r.order, r.ended = nil, map[int][]string{}
	if len(result) == 0 {
		entry(0)
	}
	result[0]["stats"] = statsOf(&out.Stats)
	return result
}

func outputOf(o *request.Output) object {
	out := object{"id": o.ID, "tok": list(o.NewTokens)}
	if o.Finish != request.NotFinished {
		out["finish"] = o.Finish.String()
	}
	switch {
	case o.Repeated:
		out["stop"] = "repetition_detected"
	case o.StopToken >= 0:
		out["stop"] = o.StopToken
	}
	if len(o.Events) > 0 {
		names := make([]string, len(o.Events))
		for i, e := range o.Events {
			names[i] = e.Type.String()
		}
		out["events"] = names
	}
	if p := o.Prefill; p != nil {
		out["prefill"] = object{"prompt": p.PromptTokens, "computed": p.Computed, "cached": p.Cached, "local": p.Local, "external": p.External, "created": p.Created}
	}
	return out
}

func statsOf(s *request.SchedulerStats) object {
	out := object{
		"running": s.Running, "waiting": s.Waiting, "skipped": s.Skipped, "usage": s.Usage,
		"prefix": object{
			"reset": s.PrefixReset, "requests": s.PrefixRequests, "queries": s.PrefixQueries, "hits": s.PrefixHits,
			"preempted_requests": s.PreemptedRequests, "preempted_queries": s.PreemptedQueries, "preempted_hits": s.PreemptedHits,
		},
	}
	if s.NumDrafts > 0 {
		out["spec"] = object{"drafts": s.NumDrafts, "draft_tokens": s.DraftTokens, "accepted": s.Accepted,
			"accepted_per_pos": s.AcceptedPerPos, "drafted_per_pos": s.DraftedPerPos}
	}
	return out
}

func stateOf(in scheduler.Inspection, async bool) object {
	rows := [][]any{}
	for _, q := range in.Requests {
		var pending strings.Builder
		for _, e := range q.Pending {
			pending.WriteByte(e.String()[0])
		}
		row := []any{q.ID, q.Status, q.Computed, q.Tokens, q.Outputs, q.Preemptions, pending.String(), q.Drafts}
		if async {
			row = append(row, q.Placeholders, q.InFlight, q.Stale)
		}
		rows = append(rows, row)
	}
	return object{
		"run": in.Running, "wait": in.Waiting, "kvwait": in.Holding, "deferred": sortedIDs(in.Deferred), "free": in.Free, "usage": in.Usage,
		"reqs": rows, "freeq": list(in.FreeQueue), "cachedb": list(in.CachedBlocks),
	}
}

// sortRows orders the request rows by id: their recorded order means nothing.
func sortRows(state any) {
	m, ok := state.(map[string]any)
	if !ok {
		return
	}
	rows, ok := m["reqs"].([]any)
	if !ok {
		return
	}
	slices.SortFunc(rows, func(a, b any) int { return strings.Compare(rowID(a), rowID(b)) })
}

func rowID(row any) string {
	r, ok := row.([]any)
	if !ok || len(r) == 0 {
		return ""
	}
	id, _ := r[0].(string)
	return id
}
