package scheduler

// Check exposes the invariants to the tests.
func (s *Scheduler) Check() error { return s.check() }

// FreeBlocks is the pool's count.
func (s *Scheduler) FreeBlocks() int { return s.pool.free }
