//go:build cgo && linux && amd64

package cpu_test

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/kernels/cpu"
)

// blocksOf lists the blocks of a slot, and how many bytes they export of a module with one group.
func blocksOf(s *session, shape tiny, slot int) (ids []int32, bytes int) {
	for i := range s.blocks {
		ids = append(ids, int32(1+slot*s.blocks+i))
	}
	return ids, len(ids) * s.size * shape.layers * shape.kvHeads * 2 * shape.dim * 4
}

// What lies behind a sequence's end, or in blocks that someone else left, may be no number.
func TestWhatLiesBehindASequenceIsNotRead(t *testing.T) {
	for _, level := range cpu.Levels() {
		for i, shape := range shapes()[:3] {
			if shape.window > 0 {
				continue
			}
			t.Run(level+"/"+shape.String(), func(t *testing.T) {
				m := shape.module(uint64(i))
				s := newSession(t, open(t, cpu.Options{Threads: 2, Level: level}), m, limits(false))
				ids := tokens(rand.New(rand.NewPCG(uint64(i), 11)), shape.vocab, 39)
				want := bits(alone(s, ids))
				blocks, n := blocksOf(s, shape, 0)
				dirty := make([]byte, n)
				for at := 0; at < n; at += 4 {
					binary.LittleEndian.PutUint32(dirty[at:], math.Float32bits(float32(math.NaN())))
				}
				require.NoError(t, s.states.Import(0, blocks, dirty))
				require.Equal(t, want, bits(alone(s, ids)))
				s.run(part{from: 0, tokens: ids[:38], sampling: greedy()})
				s.step.Release()
				s.run(part{from: 38, tokens: ids[38:], logits: 1, sampling: greedy()})
				require.Equal(t, want, bits(s.logits()[0]))
				s.step.Release()
			})
		}
	}
}

// Exported blocks continue elsewhere, bit for bit where caches hold the same elements.
func TestExportedBlocksContinueInAnotherProgram(t *testing.T) {
	shape := shapes()[0]
	ids := tokens(rand.New(rand.NewPCG(1, 12)), shape.vocab, 75)
	m := shape.module(3)
	for _, level := range cpu.Levels() {
		t.Run(level, func(t *testing.T) {
			from := newSession(t, open(t, cpu.Options{Threads: 1, Level: level}), m, limits(false))
			to := newSession(t, open(t, cpu.Options{Threads: 1, Level: level}), m, limits(false))
			want := bits(alone(from, ids))
			blocks, n := blocksOf(from, shape, 0)
			moved := make([]byte, n)
			require.NoError(t, from.states.Export(0, blocks, moved))
			blocks, _ = blocksOf(to, shape, 2)
			require.NoError(t, to.states.Import(0, blocks, moved))
			to.run(part{slot: 2, from: 74, tokens: ids[74:], logits: 1, sampling: greedy()})
			require.Equal(t, want, bits(to.logits()[0]))
			to.step.Release()
			again := make([]byte, n)
			require.NoError(t, to.states.Export(0, blocks, again))
			require.Equal(t, moved, again)
		})
	}
}
