package record

import (
	"time"

	"omni-engine/internal/clock"
)

// AudibleGap is the longest underrun of a stream that counts as continuous (vLLM-Omni's default threshold).
const AudibleGap = 100 * time.Millisecond

// Playout follows a player of streamed audio that begins with the first chunk and consumes at real time: how long it was ever without
// audio. The zero value is ready.
type Playout struct {
	first   clock.Wall
	held    time.Duration // audio received
	worst   time.Duration
	Gaps    int // chunks that came after the player had run dry
	chunked bool
}

// Chunk takes in a chunk of so many samples a channel, whose last byte was there at the given time. A chunk without samples, or
// without a sample rate, is none.
func (p *Playout) Chunk(at clock.Wall, samples, sampleRate int) {
	if samples <= 0 || sampleRate <= 0 {
		return
	}
	if !p.chunked {
		p.chunked, p.first = true, at
	} else if played, ok := at.Sub(p.first).Get(); ok && played > p.held {
		p.worst = max(p.worst, played-p.held)
		p.Gaps++
	}
	p.held += time.Duration(float64(samples) / float64(sampleRate) * float64(time.Second))
}

// WorstUnderrun is the longest deficit, a measured 0 for a continuous stream; absent before the first chunk.
func (p *Playout) WorstUnderrun() clock.Span {
	if !p.chunked {
		return clock.Span{}
	}
	return clock.SpanOf(p.worst)
}
