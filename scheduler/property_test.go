package scheduler_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/scheduler"
)

// world drives a scheduler under random load and holds what must be true of it.
type world struct {
	t        *rapid.T
	cfg      scheduler.Config
	s        *scheduler.Scheduler
	clk      *clock.Manual
	flights  []*scheduler.Decision
	depth    int
	next     int
	segments int
	live     map[request.ID]bool
	ended    map[request.ID]int
	ledger   map[request.ID]*life
	parked   map[request.ID]bool
	session  map[request.ID]bool
	holders  int // sessions and parked requests were made: they may hold blocks that others need
	log      []string
}

// life adds a request's ledger up as metrics does, from the changes alone.
type life struct {
	start, since, end clock.Time
	state             request.State
	sum               time.Duration
	queued            clock.Time
}

func drawConfig(t *rapid.T) scheduler.Config {
	c := scheduler.DefaultConfig()
	c.BlockSize = rapid.SampledFrom([]int{1, 2, 4}).Draw(t, "block")
	c.MaxModelLen = rapid.IntRange(8, 48).Draw(t, "len")
	c.MaxNumBatchedTokens = rapid.IntRange(4, 32).Draw(t, "tokens")
	c.MaxNumSeqs = rapid.IntRange(1, 6).Draw(t, "seqs")
	c.Policy = rapid.SampledFrom([]scheduler.Policy{scheduler.FCFS, scheduler.Priority}).Draw(t, "policy")
	c.EnablePrefixCaching = rapid.Bool().Draw(t, "caching")
	c.ReserveFullISL = rapid.Bool().Draw(t, "reserve")
	c.LongPrefillTokenThreshold = rapid.SampledFrom([]int{0, 3}).Draw(t, "long")
	c.MaxPrefillTokensBesideDecode = rapid.SampledFrom([]int{0, 0, 1, 5}).Draw(t, "beside")
	c.Async = rapid.Bool().Draw(t, "async")
	if rapid.Bool().Draw(t, "spec") {
		c.NumSpecTokens = rapid.IntRange(1, 3).Draw(t, "k")
		c.NumLookaheadTokens = rapid.SampledFrom([]int{0, c.NumSpecTokens}).Draw(t, "lookahead")
	}
	switch rapid.IntRange(0, 3).Draw(t, "groups") {
	case 1:
		c.Groups = []scheduler.GroupSpec{{Kind: scheduler.SlidingWindow, Window: rapid.IntRange(1, 9).Draw(t, "w")}}
	case 2:
		w := rapid.IntRange(1, 9).Draw(t, "w")
		c.Groups = []scheduler.GroupSpec{{}, {Kind: scheduler.SlidingWindow, Window: w}, {Kind: scheduler.SlidingWindow, Window: w}}
	case 3:
		c.Groups = []scheduler.GroupSpec{{BlockSize: 2 * c.BlockSize}, {Kind: scheduler.SlidingWindow, Window: rapid.IntRange(1, 9).Draw(t, "w")}}
	}
	c.NonPreemptible = rapid.IntRange(0, 4).Draw(t, "nonpreemptible") == 0
	c.MaxLoRAs = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "loras")
	c.KVEvents = rapid.IntRange(0, 4).Draw(t, "events") == 0
	c.NumBlocks = 2
	for c.CheckCapacity() != nil { // the smallest legal cache
		c.NumBlocks++
	}
	c.NumBlocks += rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, "extra")
	return c
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, cfg: drawConfig(t), clk: clock.NewManual(time.Second), live: map[request.ID]bool{}, ended: map[request.ID]int{},
		ledger: map[request.ID]*life{}, parked: map[request.ID]bool{}, session: map[request.ID]bool{}, depth: 1}
	if w.cfg.Async {
		w.depth = rapid.IntRange(1, 3).Draw(t, "depth")
		w.cfg.MaxConcurrentBatches = w.depth
		for w.cfg.CheckCapacity() != nil {
			w.cfg.NumBlocks++
		}
	}
	s, err := scheduler.New(w.cfg)
	require.NoError(t, err)
	w.s = s
	return w
}

func (w *world) check() {
	require.NoError(w.t, w.s.Check())
	require.Equal(w.t, len(w.live), w.s.NumRequests())
}

func (w *world) add() {
	id := request.ID(fmt.Sprintf("r%d", w.next))
	w.next++
	n := rapid.IntRange(1, w.cfg.MaxModelLen-1).Draw(w.t, "prompt")
	prompt := make([]int32, n)
	common := rapid.IntRange(0, n).Draw(w.t, "common")
	for i := range prompt {
		prompt[i] = int32(i)
		if i >= common {
			prompt[i] = int32(1000*w.next + i)
		}
	}
	p := request.DefaultSampling()
	p.MaxTokens = rapid.IntRange(1, 12).Draw(w.t, "max_tokens")
	r := &request.Request{ID: id, Prompt: prompt, Sampling: p, EOS: []int32{2}, ArrivalOrder: float64(w.next),
		Priority: rapid.IntRange(0, 2).Draw(w.t, "priority"), Adapter: rapid.IntRange(0, 2).Draw(w.t, "lora")}
	switch rapid.IntRange(0, 9).Draw(w.t, "kind") {
	case 0:
		r.Wait = request.WaitGrammar
		w.parked[id] = true
	case 1:
		r.Resumable = true
		w.session[id] = true
		w.holders++
	}
	require.NoError(w.t, w.cfg.CheckAdmission(r))
	require.NoError(w.t, w.s.Add(w.clk.Now(), r))
	require.ErrorIs(w.t, w.s.Add(w.clk.Now(), r), scheduler.ErrDuplicateRequest)
	w.live[id] = true
	w.ledger[id] = &life{queued: w.clk.Now()}
}

// any picks a live request in the order of arrival.
func (w *world) any(name string) (request.ID, bool) {
	ids := w.s.IDs()
	if len(ids) == 0 {
		return "", false
	}
	return ids[rapid.IntRange(0, len(ids)-1).Draw(w.t, name)], true
}

func (w *world) noteEnd(o *request.Output) {
	w.note(o)
	if o.Finish != request.NotFinished && !o.Segment {
		w.ended[o.ID]++
		require.Equal(w.t, 1, w.ended[o.ID], "%s ended twice", o.ID)
		delete(w.live, o.ID)
		delete(w.parked, o.ID)
		delete(w.session, o.ID)
		l := w.ledger[o.ID]
		require.Equal(w.t, request.StateNone, l.state, "%s left the ledger open", o.ID)
		whole, ok := l.end.Sub(l.queued).Get()
		require.True(w.t, ok)
		require.Equal(w.t, whole, l.sum, "PS-32: the parts of %s", o.ID)
	}
}

func (w *world) note(o *request.Output) {
	l := w.ledger[o.ID]
	for _, c := range o.Changes {
		if l.state == request.StateNone {
			require.False(w.t, l.start.IsSet(), "%s came back", o.ID)
			require.Equal(w.t, l.queued, c.At, "the ledger of %s starts at QUEUED", o.ID)
			l.start = c.At
		} else {
			require.NotEqual(w.t, l.state, c.To)
			d, ok := c.At.Sub(l.since).Get()
			require.True(w.t, ok && d >= 0)
			l.sum += d
		}
		l.state, l.since = c.To, c.At
		if c.To == request.StateNone {
			l.end = c.At
		}
	}
}

func (w *world) abort() {
	id, ok := w.any("abort")
	if !ok {
		return
	}
	outs := w.s.Abort(w.clk.Now(), request.FinishAbort, id, "stranger", id)
	require.Len(w.t, outs, 1)
	w.noteEnd(&outs[0])
}

func (w *world) schedule() {
	work, decoding := w.s.Stats(), w.s.AnyDecoding()
	d := w.s.Schedule(w.clk.Advance(time.Millisecond))
	require.NoError(w.t, w.s.CheckRows(d))
	w.flights = append(w.flights, d)
	w.log = append(w.log, d.String())
	total, prefills, decodes := 0, 0, 0
	slots := map[int]bool{}
	for i := range d.Rows {
		r := &d.Rows[i]
		total += r.NumTokens
		require.Positive(w.t, r.NumTokens)
		switch n := r.NumTokens - len(r.Drafts); {
		case r.NumOutput > 0 && !r.New && !r.Resumed:
			decodes++
		case n > 1 || r.NumComputed+n < r.PromptLen:
			prefills += n
		}
		require.False(w.t, slots[r.Slot], "slot %d twice", r.Slot)
		require.True(w.t, r.Slot >= 0 && r.Slot < w.cfg.MaxNumSeqs)
		slots[r.Slot] = true
		require.LessOrEqual(w.t, r.NumComputed+r.NumTokens, w.cfg.MaxModelLen)
		size := w.cfg.BlockSize
		if len(w.cfg.Groups) > 0 && w.cfg.Groups[0].BlockSize > 0 {
			size = w.cfg.Groups[0].BlockSize
		}
		require.GreaterOrEqual(w.t, len(r.Blocks[0])*size, r.NumComputed+r.NumTokens)
	}
	if limit := w.cfg.MaxPrefillTokensBesideDecode; limit > 0 && decodes > 0 && decoding {
		require.LessOrEqual(w.t, prefills, limit, "%s", d)
	}
	require.Equal(w.t, total, d.TotalTokens)
	require.LessOrEqual(w.t, total, w.cfg.MaxNumBatchedTokens)
	require.LessOrEqual(w.t, d.Running, w.cfg.MaxNumSeqs)
	if len(w.flights) == 1 && total == 0 && len(d.Preempted) == 0 && w.holders == 0 && w.s.Pause() == scheduler.Unpaused {
		require.Zero(w.t, work.Running+work.Waiting, "no progress with work: %s, %+v", d, w.cfg)
	}
}

func (w *world) update() {
	if len(w.flights) == 0 {
		return
	}
	d := w.flights[0]
	w.flights = w.flights[1:]
	res := &scheduler.StepResult{Rows: make([]scheduler.RowResult, len(d.Rows))}
	var ids []request.ID
	var drafts [][]int32
	for i := range d.Rows {
		r := &d.Rows[i]
		if r.Samples {
			n := 1 + rapid.IntRange(0, len(r.Drafts)).Draw(w.t, "accepted")
			for range n {
				res.Rows[i].Tokens = append(res.Rows[i].Tokens, int32(rapid.IntRange(2, 40).Draw(w.t, "token")))
			}
			if rapid.IntRange(0, 60).Draw(w.t, "fault") == 0 {
				res.Rows[i].Fault = "NaN in logits"
			}
		}
		ids = append(ids, r.ID)
		drafts = append(drafts, make([]int32, rapid.IntRange(0, w.cfg.NumSpecTokens).Draw(w.t, "drafts")))
	}
	out := w.s.Update(w.clk.Advance(time.Millisecond), d, res)
	require.NoError(w.t, w.s.CheckOutputs())
	for i := range out.Outputs {
		w.noteEnd(&out.Outputs[i])
	}
	if w.cfg.NumSpecTokens > 0 {
		w.s.UpdateDrafts(ids, drafts)
	}
}

func (w *world) step() {
	w.schedule()
	w.check()
	if len(w.flights) >= w.depth {
		w.update()
		w.check()
	}
}

func (w *world) extend() {
	for _, id := range w.s.IDs() {
		if w.session[id] && rapid.Bool().Draw(w.t, "extend") {
			w.segments++ // no two arrive at once: among equals vLLM's victim is the first that runs, so two such could preempt each other for ever
			seg := request.Segment{Tokens: []int32{5}, Order: float64(w.next) + float64(w.segments)/1e6}
			if rapid.IntRange(0, 2).Draw(w.t, "last") == 0 {
				seg = request.Segment{Last: true}
				delete(w.session, id)
			}
			if err := w.s.Extend(w.clk.Now(), id, seg); err != nil {
				require.ErrorIs(w.t, err, scheduler.ErrPromptTooLong)
			}
			if !w.s.Has(id) {
				delete(w.live, id)
			}
			return
		}
	}
}

func (w *world) park() {
	id, ok := w.any("park")
	if !ok || w.session[id] || w.parked[id] {
		return
	}
	for _, d := range w.flights {
		for i := range d.Rows {
			if d.Rows[i].ID == id {
				return
			}
		}
	}
	if err := w.s.Park(w.clk.Now(), id, request.WaitChunk); err == nil {
		w.parked[id] = true
		w.holders++
	}
}

func (w *world) unpark() {
	for _, id := range w.s.IDs() {
		if w.parked[id] {
			require.NoError(w.t, w.s.Unpark(w.clk.Now(), id))
			delete(w.parked, id)
			return
		}
	}
}

func (w *world) pause() {
	w.s.SetPause(w.clk.Now(), rapid.SampledFrom([]scheduler.PauseState{scheduler.Unpaused, scheduler.PausedNew, scheduler.PausedAll}).Draw(w.t, "pause"))
}

func (w *world) reset() {
	_, _ = w.s.ResetPrefixCache(w.clk.Now(), rapid.Bool().Draw(w.t, "preempt"))
}

// drain lets everything end: nobody may starve, nothing may be lost.
func (w *world) drain() {
	w.s.SetPause(w.clk.Now(), scheduler.Unpaused)
	for len(w.parked) > 0 {
		w.unpark()
	}
	for id := range w.session {
		require.NoError(w.t, w.s.Extend(w.clk.Now(), id, request.Segment{Last: true}))
		if !w.s.Has(id) {
			delete(w.live, id)
		}
	}
	clear(w.session)
	w.holders = 0
	for i := 0; w.s.HasRequests() || len(w.flights) > 0; i++ {
		require.Less(w.t, i, 5000, "no end in sight: %v, %+v\n%s\n%+v", w.s.IDs(), w.cfg, strings.Join(w.log[max(0, len(w.log)-6):], "\n"), w.s.Inspect())
		if w.s.HasRequests() {
			w.schedule()
		}
		for len(w.flights) >= w.depth || (len(w.flights) > 0 && !w.s.HasRequests()) {
			w.update()
		}
	}
	w.check()
	require.Empty(w.t, w.s.IDs())
	require.Equal(w.t, w.cfg.NumBlocks-1, w.s.FreeBlocks())
	require.Len(w.t, w.ended, w.next, "every request ended")
	ok, err := w.s.ResetPrefixCache(w.clk.Now(), false)
	require.NoError(w.t, err)
	require.True(w.t, ok)
}

func (w *world) run() {
	for range rapid.IntRange(1, 40).Draw(w.t, "actions") {
		switch rapid.IntRange(0, 19).Draw(w.t, "action") {
		case 0, 1, 2, 3:
			w.add()
		case 4:
			w.abort()
		case 5:
			w.extend()
		case 6:
			w.park()
		case 7:
			w.unpark()
		case 8:
			w.pause()
		case 9:
			w.reset()
		default:
			if w.s.HasRequests() {
				w.step()
			} else {
				w.update()
			}
		}
		w.check()
	}
	w.drain()
}

func TestRandomLoadKeepsTheRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { newWorld(t).run() })
}

// TestRandomLoadKeepsTheRulesLong is the long form: 10,000 runs and more with OMNI_LONG=1.
func TestRandomLoadKeepsTheRulesLong(t *testing.T) {
	if os.Getenv("OMNI_LONG") == "" {
		t.Skip("set OMNI_LONG=1 for 10,000 runs")
	}
	for range 100 {
		rapid.Check(t, func(t *rapid.T) { newWorld(t).run() })
	}
}
