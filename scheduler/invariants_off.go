//go:build !invariants

package scheduler

const verifying = false

// verifyScheduled and verifyUpdated do nothing in normal builds.
func (s *Scheduler) verifyScheduled(*Decision) {}
func (s *Scheduler) verifyUpdated()            {}
