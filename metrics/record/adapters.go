package record

import "slices"

// AdapterStates counts the requests of each LoRA adapter in one core, waiting and running, by the events that their outputs brought, as
// vLLM does. One goroutine, the output side's, uses it.
type AdapterStates struct {
	names   []string // sorted
	counts  map[string]*[adapterEnded]int
	version uint64
}

// adapterState is where a request of an adapter is.
type adapterState uint8

const (
	adapterWaiting adapterState = iota
	adapterRunning
	adapterEnded // or not known yet
)

// NewAdapterStates returns an empty account.
func NewAdapterStates() *AdapterStates {
	return &AdapterStates{counts: map[string]*[adapterEnded]int{}}
}

// Names returns the adapters that have a request, sorted. The slice is the account's own; it changes with [AdapterStates.Version].
func (a *AdapterStates) Names() []string { return a.names }

// Version changes whenever Names does.
func (a *AdapterStates) Version() uint64 { return a.version }

// Count returns an adapter's requests.
func (a *AdapterStates) Count(name string) (waiting, running int) {
	if c := a.counts[name]; c != nil {
		return c[adapterWaiting], c[adapterRunning]
	}
	return 0, 0
}

func (a *AdapterStates) move(name string, from, to adapterState) {
	c := a.counts[name]
	if c == nil {
		if to == adapterEnded {
			return
		}
		c = &[adapterEnded]int{}
		a.counts[name] = c
		at, _ := slices.BinarySearch(a.names, name)
		a.names = slices.Insert(a.names, at, name)
		a.version++
	}
	if from < adapterEnded {
		c[from]--
	}
	if to < adapterEnded {
		c[to]++
	}
	if *c == [adapterEnded]int{} {
		delete(a.counts, name)
		at, _ := slices.BinarySearch(a.names, name)
		a.names = slices.Delete(a.names, at, at+1)
		a.version++
	}
}

// adapterEnters moves the record's request, if it has an adapter.
func (s *Stage) adapterEnters(to adapterState, it *Iteration) {
	if s.Adapter == "" || it == nil || it.Adapters == nil {
		return
	}
	from := adapterEnded
	if s.adapterKnown {
		from = s.adapterAt
	}
	it.Adapters.move(s.Adapter, from, to)
	s.adapterAt, s.adapterKnown = to, true
}
