//go:build invariants

package scheduler

// verifyState panics when the state is inconsistent. Builds with the tag invariants check after every step.
func (s *Scheduler) verifyState() {
	if err := s.check(); err != nil {
		panic("scheduler: " + err.Error())
	}
}
