package stages

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine"
	"omni-engine/engine/enginetest"
	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/output"
)

// local starts a replica over any runner.
func local(t *testing.T, runner engine.Runner, k record.Sink, change ...func(*LocalConfig)) *Local {
	t.Helper()
	cfg := LocalConfig{Core: engine.Config{Name: "0/0", Scheduler: schedulerConfig(options{}.defaults())},
		Output: output.Config{Tokenizer: letters{}, Sink: k}}
	for _, f := range change {
		f(&cfg)
	}
	l, err := NewLocal(cfg, runner)
	require.NoError(t, err)
	return l
}

// evictions keeps the residencies that it hears of.
type evictions struct {
	record.Discard
	mu  sync.Mutex
	all []time.Duration
}

func (e *evictions) KVBlockEvicted(life, idle clock.Span, _ []clock.Span) {
	e.mu.Lock()
	defer e.mu.Unlock()
	d, ok := life.Get()
	i, okI := idle.Get()
	if ok && okI && i <= d {
		e.all = append(e.all, d)
	}
}

// --kv-cache-metrics: what the scheduler saw of a block's life reaches the sink, in the core's time.
func TestLivesOfBlocksReachTheSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &evictions{}
		l := local(t, &enginetest.Runner{StepTime: stepTime}, e, func(c *LocalConfig) {
			c.Core.Scheduler = schedulerConfig(options{blocks: 8}.defaults())
			c.Core.Scheduler.KVResidencySample = 1
		})
		for i := range 6 {
			r := ask(request.ID(fmt.Sprint("r", i)), 40, 2)
			s, err := l.Submit(context.Background(), r)
			require.NoError(t, err)
			all(t, s)
			time.Sleep(time.Second)
		}
		require.NoError(t, l.Close(t.Context()))
		require.NotEmpty(t, e.all)
		for _, d := range e.all {
			require.GreaterOrEqual(t, d, time.Second)
		}
	})
}
