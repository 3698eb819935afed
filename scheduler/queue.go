package scheduler

import "slices"

// queue holds waiting requests: a list under FCFS, a binary heap under the priority policy.
type queue struct {
	priority    bool
	heap        []*seq
	first, last *seq
	n           int
}

func (q *queue) len() int { return q.n }

// peek returns the request to serve next, nil when there is none.
func (q *queue) peek() *seq {
	if q.priority {
		if len(q.heap) == 0 {
			return nil
		}
		return q.heap[0]
	}
	return q.first
}

func (q *queue) push(s *seq) {
	s.in = q
	q.n++
	if q.priority {
		q.heap = append(q.heap, s)
		siftDown(q.heap, 0, len(q.heap)-1)
		return
	}
	s.before, s.after = q.last, nil
	if q.last != nil {
		q.last.after = s
	} else {
		q.first = s
	}
	q.last = s
}

// pushFront puts a request before all others; under priority there is no front.
func (q *queue) pushFront(s *seq) {
	if q.priority {
		q.push(s)
		return
	}
	q.insert(s, q.first)
}

// insert puts a request before another of an FCFS queue; before nil is the end.
func (q *queue) insert(s, next *seq) {
	if next == nil || q.priority {
		q.push(s)
		return
	}
	s.in = q
	q.n++
	s.before, s.after = next.before, next
	if next.before != nil {
		next.before.after = s
	} else {
		q.first = s
	}
	next.before = s
}

func (q *queue) pop() *seq {
	s := q.peek()
	if !q.priority {
		q.unlink(s)
		return s
	}
	s.in = nil
	q.n--
	end := len(q.heap) - 1
	last := q.heap[end]
	q.heap[end] = nil
	q.heap = q.heap[:end]
	if end > 0 {
		q.heap[0] = last
		siftUp(q.heap, 0)
	}
	return s
}

func (q *queue) unlink(s *seq) {
	if s.before != nil {
		s.before.after = s.after
	} else {
		q.first = s.after
	}
	if s.after != nil {
		s.after.before = s.before
	} else {
		q.last = s.before
	}
	s.before, s.after, s.in = nil, nil, nil
	q.n--
}

// remove takes those requests out that gone selects from list. A heap is rebuilt even when it loses nobody: a session's new
// arrival time may have left it out of order (spec scheduler rule 57).
func (q *queue) remove(list []*seq) {
	if !q.priority {
		for _, s := range list {
			if s.in == q {
				q.unlink(s)
			}
		}
		return
	}
	for _, s := range list {
		if s.in == q {
			s.in = nil
		}
	}
	q.heap = slices.DeleteFunc(q.heap, func(s *seq) bool { return s.in != q })
	q.n = len(q.heap)
	for i := q.n/2 - 1; i >= 0; i-- {
		siftUp(q.heap, i)
	}
}

// all returns the requests in the order in which they would be popped.
func (q *queue) all() []*seq {
	if !q.priority {
		var out []*seq
		for s := q.first; s != nil; s = s.after {
			out = append(out, s)
		}
		return out
	}
	h := slices.Clone(q.heap)
	out := make([]*seq, 0, len(h))
	for len(h) > 0 {
		out = append(out, h[0])
		last := h[len(h)-1]
		if h = h[:len(h)-1]; len(h) > 0 {
			h[0] = last
			siftUp(h, 0)
		}
	}
	return out
}

// each visits the requests in no particular order.
func (q *queue) each(f func(*seq)) {
	for _, s := range q.heap {
		f(s)
	}
	for s := q.first; s != nil; s = s.after {
		f(s)
	}
}

// less is the order of service: priority, arrival time, id.
func less(a, b *seq) bool {
	if a.priority != b.priority {
		return a.priority < b.priority
	}
	if a.arrival != b.arrival {
		return a.arrival < b.arrival
	}
	return a.id < b.id
}

// siftDown and siftUp are the two halves of the binary heap of Python's heapq: siftUp moves the smaller child up until a leaf is
// reached and then lets the item rise. Another heap would order the same items, but not those whose key changed in place.
func siftDown(h []*seq, start, pos int) {
	s := h[pos]
	for pos > start {
		parent := (pos - 1) / 2
		if !less(s, h[parent]) {
			break
		}
		h[pos] = h[parent]
		pos = parent
	}
	h[pos] = s
}

func siftUp(h []*seq, pos int) {
	start, s := pos, h[pos]
	child := 2*pos + 1
	for child < len(h) {
		if right := child + 1; right < len(h) && !less(h[child], h[right]) {
			child = right
		}
		h[pos] = h[child]
		pos = child
		child = 2*pos + 1
	}
	h[pos] = s
	siftDown(h, start, pos)
}
