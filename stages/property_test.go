package stages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/metrics/record"
)

// act is one thing that happens to a replica.
type act struct {
	after   time.Duration
	what    string // submit, park, session, segment, marker, abort, gone, deliver, reset
	who     int
	prompt  int
	max     int
	stop    bool
	preempt bool
}

func drawActs(t *rapid.T) (o options, acts []act) {
	o = options{
		blocks: rapid.IntRange(8, 40).Draw(t, "blocks"), seqs: rapid.IntRange(1, 6).Draw(t, "seqs"),
		tokens: rapid.IntRange(4, 40).Draw(t, "tokens"), depth: rapid.IntRange(1, 3).Draw(t, "depth"), maxLen: 96,
	}
	one := rapid.Custom(func(t *rapid.T) act {
		return act{
			after: time.Duration(rapid.IntRange(0, 25).Draw(t, "ms")) * time.Millisecond,
			what: rapid.SampledFrom([]string{"submit", "submit", "submit", "park", "session", "segment", "segment", "marker", "abort", "gone",
				"deliver", "reset"}).Draw(t, "what"),
			who: rapid.IntRange(0, 7).Draw(t, "who"), prompt: rapid.IntRange(1, 50).Draw(t, "prompt"), max: rapid.IntRange(1, 40).Draw(t, "max"),
			stop: rapid.IntRange(0, 4).Draw(t, "stop") == 0, preempt: rapid.Bool().Draw(t, "preempt"),
		}
	})
	return o, rapid.SliceOfN(one, 1, 40).Draw(t, "acts")
}

// client follows one request.
type client struct {
	req      *request.Request
	gone     context.CancelFunc
	tokens   []int32
	records  []*record.Stage
	session  bool
	marked   bool
	extended int // tokens of its segments
	err      error
	done     chan struct{}
}

func (c *client) read(s Stream) {
	defer close(c.done)
	for {
		u, err := s.Next(context.Background())
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			c.err = err
			return
		}
		c.tokens = append(c.tokens, u.Output.NewTokens...)
		if u.Record != nil {
			c.records = append(c.records, u.Record)
		}
	}
}

// play runs the acts and returns what is wrong.
func play(t *testing.T, o options, acts []act) (wrong error) {
	runner := &enginetest.Runner{StepTime: stepTime}
	o.runner = runner
	b := start(t, o)
	var clients []*client
	live := func(who int, want func(*client) bool) *client {
		var fit []*client
		for _, c := range clients {
			if want(c) {
				fit = append(fit, c)
			}
		}
		if len(fit) == 0 {
			return nil
		}
		return fit[who%len(fit)]
	}
	open := func(a act) {
		r := ask(request.ID(fmt.Sprint("r", len(clients))), min(a.prompt, 90), a.max)
		r.Sampling.MaxTokens = min(a.max, 96-len(r.Prompt))
		c := &client{req: r, done: make(chan struct{}), session: a.what == "session"}
		switch a.what {
		case "session":
			r.Resumable = true
		case "park":
			r.Wait = request.WaitInput
		default:
			if a.stop {
				r.Sampling.Stop = []string{"qx", "b"}
			}
		}
		ctx, gone := context.WithCancel(context.Background())
		c.gone = gone
		s, err := b.Submit(ctx, r)
		if err != nil {
			gone()
			if !errors.Is(err, ErrNeverFits) {
				wrong = err
			}
			return
		}
		clients = append(clients, c)
		go c.read(s)
	}
	for _, a := range acts {
		time.Sleep(a.after)
		any := func(*client) bool { return true }
		open1 := func(c *client) bool { return c.session && !c.marked }
		switch a.what {
		case "submit", "park", "session":
			open(a)
		case "segment":
			if c := live(a.who, open1); c != nil {
				seg := more(min(a.max, 3))
				seg.Tokens = seg.Tokens[:1+a.prompt%3]
				_ = b.Extend(c.req.ID, seg) // it may have ended meanwhile
				c.extended += len(seg.Tokens)
			}
		case "marker":
			if c := live(a.who, open1); c != nil {
				_ = b.Extend(c.req.ID, marker)
				c.marked = true
			}
		case "abort":
			if c := live(a.who, any); c != nil {
				_ = b.Abort(request.FinishAbort, c.req.ID)
			}
		case "gone":
			if c := live(a.who, any); c != nil {
				c.gone()
			}
		case "deliver":
			if c := live(a.who, func(c *client) bool { return c.req.Wait != 0 }); c != nil {
				_ = b.Core().Deliver(c.req.ID, request.Payload{Last: true})
			}
		case "reset":
			_, _ = b.ResetPrefixCache(context.Background(), a.preempt)
		}
	}
	for _, c := range clients { // let everything end
		switch {
		case c.session && !c.marked:
			_ = b.Extend(c.req.ID, marker)
		case c.req.Wait != 0:
			_ = b.Core().Deliver(c.req.ID, request.Payload{Last: true})
		}
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	if wrong == nil {
		wrong = b.verify(o, clients)
	}
	b.stop(t)
	for _, c := range clients {
		c.gone()
		<-c.done
	}
	return wrong
}

func (b *bench) verify(o options, clients []*client) error {
	if s := b.Snapshot(); s.InCore != 0 || s.Stats.Usage != 0 || s.Stats.Running+s.Waiting() != 0 {
		return fmt.Errorf("%d requests are stuck: usage %v, running %d, waiting %d", s.InCore, s.Stats.Usage, s.Stats.Running, s.Waiting())
	}
	tokens := 0
	for _, c := range clients {
		if c.err != nil || len(c.records) != 1 {
			return fmt.Errorf("%s: %d records, %w", c.req.ID, len(c.records), c.err)
		}
		r := c.records[0]
		tokens += len(c.tokens)
		if !c.session {
			for i, tok := range c.tokens {
				if want := b.runner.Token(c.req, len(c.req.Prompt)+i); tok != want {
					return fmt.Errorf("%s: token %d is %d, want %d", c.req.ID, i, tok, want)
				}
			}
			if r.NumGenerationTokens != len(c.tokens) {
				return fmt.Errorf("%s: %d tokens, recorded %d", c.req.ID, len(c.tokens), r.NumGenerationTokens)
			}
			if r.Finish == request.FinishLength && len(c.tokens) != c.req.Sampling.MaxTokens {
				return fmt.Errorf("%s: ended by length with %d of %d tokens", c.req.ID, len(c.tokens), c.req.Sampling.MaxTokens)
			}
		}
		// A session that is extended beyond the model's length ends with an error, as it should.
		outgrown := c.session && len(c.req.Prompt)+c.extended+len(c.tokens) >= o.maxLen
		if r.Finish == request.FinishError && !outgrown {
			return fmt.Errorf("%s: ended with an error", c.req.ID)
		}
		total, ok := r.Ledger.Total().Get()
		sum := time.Duration(0)
		for s := request.State(0); s < request.NumStates; s++ {
			d, _ := r.Ledger.Part(s).Get()
			sum += d
		}
		if r.QueuedTS.IsSet() && (!ok || sum != total) {
			return fmt.Errorf("%s: the ledger's parts sum to %s of %s", c.req.ID, sum, total)
		}
	}
	if len(b.sink.finished) != len(clients) || b.sink.tokens != tokens {
		return fmt.Errorf("%d of %d records, %d of %d tokens reached the sink", len(b.sink.finished), len(clients), b.sink.tokens, tokens)
	}
	if len(b.sink.parents) != len(clients) {
		return fmt.Errorf("%d parents", len(b.sink.parents))
	}
	return nil
}

// Whatever happens in whatever order: every request ends exactly once, with the tokens that it would have had alone, an exact
// ledger, and all blocks free.
func TestAnyHistoryEndsEveryRequestOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o, acts := drawActs(rt)
		var wrong error
		synctest.Test(t, func(t *testing.T) { wrong = play(t, o, acts) })
		if wrong != nil {
			rt.Fatalf("%v\noptions %+v", wrong, o)
		}
	})
}
