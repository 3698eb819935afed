package request

import "sync/atomic"

// Parent joins the n sequences of one user request: what is counted once a user request is counted when the last of them ends.
type Parent struct {
	n       int
	left    atomic.Int64
	longest atomic.Int64
}

// NewParent returns the parent of n requests.
func NewParent(n int) *Parent {
	p := &Parent{n: n}
	p.left.Store(int64(n))
	return p
}

// N returns the number of sequences.
func (p *Parent) N() int { return p.n }

// ChildEnded notes the end of one child with its generated tokens. The last child's end reports last, with n and the longest
// child's tokens.
func (p *Parent) ChildEnded(tokens int) (n, longest int, last bool) {
	for {
		old := p.longest.Load()
		if int64(tokens) <= old || p.longest.CompareAndSwap(old, int64(tokens)) {
			break
		}
	}
	if p.left.Add(-1) > 0 {
		return 0, 0, false
	}
	return p.n, int(p.longest.Load()), true
}
