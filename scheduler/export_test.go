package scheduler

// Check exposes the invariants to the tests.
func (s *Scheduler) Check() error { return s.check() }

// CheckRows and CheckOutputs expose those of a decision just made and of an update just done.
func (s *Scheduler) CheckRows(d *Decision) error { return s.checkRows(d) }
func (s *Scheduler) CheckOutputs() error         { return s.checkOutputs() }

// Verifying reports the build tag invariants, whose checks allocate.
const Verifying = verifying

// FreeBlocks is the pool's count.
func (s *Scheduler) FreeBlocks() int { return s.pool.free }

// AnyDecoding reports whether a running request is past its prefill.
func (s *Scheduler) AnyDecoding() bool { return s.anyDecoding() }
