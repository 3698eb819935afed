//go:build !invariants

package scheduler

// verifyState does nothing in normal builds.
func (s *Scheduler) verifyState() {}
