package metrics

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	"omni-engine/metrics/record"
)

// maxAdapterSeries bounds vllm:lora_requests_info: vLLM keeps a series for each combination of adapters that it ever saw, this keeps
// the newest. Readers take the one that was set last.
const maxAdapterSeries = 64

// adapters is vllm:lora_requests_info: which LoRA adapters have requests, in labels; the value is the Unix time of the last update.
type adapters struct {
	family family
	limit  string // the label max_lora

	mu   sync.Mutex
	list []*series // in the order of first sight
	last map[*replica]current
}

// current is what a replica's last step set.
type current struct {
	version uint64
	series  *series
}

func newAdapters(limit int) *adapters {
	return &adapters{limit: strconv.Itoa(limit), last: map[*replica]current{},
		family: family{name: "vllm:lora_requests_info", help: "LoRA adapters that have requests, in labels; the value is the time of the last update.", kind: gauge}}
}

// observe follows a step of a replica.
func (a *adapters) observe(r *replica, states *record.AdapterStates) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.last[r]
	if now.series == nil || now.version != states.Version() {
		now = current{states.Version(), a.find(strings.Join(states.Names(), ","))}
		a.last[r] = now
	}
	now.series.set(float64(time.Now().UnixNano()) / 1e9)
}

// find returns the series of a combination. Both lists name every adapter that has a request, waiting or running, as in vLLM.
func (a *adapters) find(names string) *series {
	labels := []label{{"max_lora", a.limit}, {"running_lora_adapters", names}, {"waiting_lora_adapters", names}}
	for _, s := range a.list {
		if s.labels[1].value == names {
			return s
		}
	}
	if len(a.list) == maxAdapterSeries {
		oldest, value := 0, math.Inf(1)
		for i, s := range a.list {
			if s.value() < value {
				oldest, value = i, s.value()
			}
		}
		for r, c := range a.last {
			if c.series == a.list[oldest] {
				delete(a.last, r)
			}
		}
		a.list = append(a.list[:oldest:oldest], a.list[oldest+1:]...)
	}
	s := newSeries(&a.family, labels)
	a.list = append(a.list, s)
	return s
}

func (a *adapters) collect() block {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := block{f: &a.family}
	for _, s := range a.list {
		b.gauges = append(b.gauges, sample{s, s.value()})
	}
	return b
}
