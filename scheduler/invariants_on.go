//go:build invariants

package scheduler

const verifying = true

// verifyScheduled and verifyUpdated panic when the state is inconsistent. Builds with the tag invariants check twice a step.
func (s *Scheduler) verifyScheduled(d *Decision) { insist(s.check(), s.checkRows(d)) }
func (s *Scheduler) verifyUpdated()              { insist(s.check(), s.checkOutputs()) }

func insist(errs ...error) {
	for _, err := range errs {
		if err != nil {
			panic("scheduler: " + err.Error())
		}
	}
}
