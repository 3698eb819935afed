package metrics

import (
	"slices"

	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
)

// What only the front end, a connector or a device sees comes in through these typed events. They may be called from any goroutine.

// SetInFlight gives the pipeline's requests: all that have not ended, and those of them that were given to a stage. It is asked at
// each scrape and must not wait. Without it the stages' snapshots are summed, which is right for a pipeline of one stage.
func (m *Metrics) SetInFlight(source func() (total, dispatched int)) { m.inFlight.Store(&source) }

// AudioFirstPacket records arrival → first audio packet of a streamed answer, once a request. An absent span is no sample.
func (m *Metrics) AudioFirstPacket(stageID, replicaID int, since clock.Span) {
	if r := m.audioReplica(stageID, replicaID); r != nil {
		r.series[omniAudioFirst][0].observe(since)
	}
}

// AudioStreamEnded records how continuous a streamed audio answer was; a stream without a chunk is no sample.
func (m *Metrics) AudioStreamEnded(stageID, replicaID int, p *record.Playout) {
	r := m.audioReplica(stageID, replicaID)
	worst, ok := p.WorstUnderrun().Get()
	if r == nil || !ok {
		return
	}
	r.series[omniAudioUnderrun][0].hist.Observe(worst.Seconds())
	if worst <= record.AudibleGap {
		r.series[omniAudioContinuous][0].add(1)
	}
}

func (m *Metrics) audioReplica(stageID, replicaID int) *replica {
	if r := m.find(stageID, replicaID); r != nil && r.stage.info.Audio {
		return r
	}
	return nil
}

// SpeechStreamCompleted counts a speech stream that was produced to its end.
func (m *Metrics) SpeechStreamCompleted() { m.model[omniSpeechCompleted][0].add(1) }

// SpeechStreamAborted counts one that ended before: cancelled, closed, engine_dead, or error, which any other reason becomes.
func (m *Metrics) SpeechStreamAborted(reason string) { m.bounded(omniSpeechAborted, reason).add(1) }

// KVWaited records the wait for a KV transfer over a connector of Config.Connectors; another one is "unknown".
func (m *Metrics) KVWaited(connector string, wait clock.Span) {
	m.bounded(omniTransferKVWait, connector).observe(wait.NonNegative())
}

// bounded finds the series of a label value; the last value of the family stands for what is in no list (PS-71).
func (m *Metrics) bounded(i id, value string) *series {
	at := slices.Index(m.table[i].values, value)
	if at < 0 {
		at = len(m.table[i].values) - 1
	}
	return m.model[i][at]
}

// MMCacheLookup counts lookups of multimodal items in the processor's cache, and how many were found.
func (m *Metrics) MMCacheLookup(stageID, replicaID, queries, hits int) {
	if r := m.find(stageID, replicaID); r != nil && m.enabled[mmQueries] {
		r.series[mmQueries][0].add(float64(queries))
		r.series[mmHits][0].add(float64(hits))
	}
}

// VADSessionStarted counts a realtime session with voice activity detection, until done is called.
func (m *Metrics) VADSessionStarted() (done func()) {
	return hold(m.model[omniVADSessions][0])
}

// VADInference records the detection over one appended batch of audio.
func (m *Metrics) VADInference(took clock.Span) { m.model[omniVADInference][0].observe(took) }

// VADEndpoint records the silence between the last speech and its commit.
func (m *Metrics) VADEndpoint(delay clock.Span) { m.model[omniVADEndpoint][0].observe(delay) }

// VADError counts an error of the detection: error, overflow, or unknown.
func (m *Metrics) VADError(reason string) { m.bounded(omniVADErrors, reason).add(1) }
