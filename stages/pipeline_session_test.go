package stages

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/request"
	"omni-engine/internal/clock"
	"omni-engine/metrics/record"
	"omni-engine/metrics/stagelog"
)

// conversation drives a streaming session of two segments in stage 0, each of which a request of its own speaks in stage 1.
type conversation struct {
	*pipe
	journey *Journey
	turns   int
}

func (c *conversation) speak(tokens []int32) *record.Stage {
	c.turns++
	r := ask(request.ID([]string{"", "turn1", "turn2"}[c.turns]), 0, 2)
	r.Prompt = tokens
	s, err := c.units[1][0].Submit(c.t.Context(), r)
	require.NoError(c.t, err)
	u := all(c.t, s)
	c.journey.Stage(u.Record, clock.WallNow())
	return u.Record
}

// PS-50…53, PS-60, PS-61 in a pipeline, on the text and the multimodal path: segments report nothing, the terminal record covers the
// last one, and where rows of a stage fold, the last value that is there wins.
func TestStreamingSessionInAPipelinePS50PS51PS60PS61(t *testing.T) {
	for name, multimodal := range map[string]bool{"text": false, "multimodal": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defs := []stageDef{{name: "thinker", audio: multimodal}, {name: "talker"}}
				if multimodal {
					defs[0].chunk = 1
				}
				c := &conversation{pipe: newPipe(t, defs)}
				defer c.close()
				c.journey = c.traffic.Begin("req-s", clock.WallNow(), 1)
				c.journey.Dispatched(clock.WallNow())
				if multimodal {
					c.units[0][0].chunks.whole["s"] = true // each output has a token and a payload
				}
				r := ask("s", 4, 3)
				r.Resumable, r.External = true, "req-s"
				s, err := c.units[0][0].Submit(t.Context(), r)
				require.NoError(t, err)

				var tokens []int32
				segments := 0
				var last Update
				for !last.Done() {
					last, err = s.Next(t.Context())
					require.NoError(t, err)
					tokens = append(tokens, last.Output.NewTokens...)
					if last.Segment != nil {
						segments++
						require.Nil(t, last.Record)
						row := record.NewRow(last.Segment)
						for _, f := range record.SplitFields() {
							require.False(t, row.Get(f.Name).IsSet(), "%s at a segment's end (PS-51)", f.Name)
						}
						require.Equal(t, 3, row.Get(record.NumTokensOut).Int())
						c.journey.Stage(last.Segment, clock.WallNow())
						c.speak(tokens)
						tokens = nil
						time.Sleep(100 * time.Millisecond) // the user thinks
						snap := c.units[0][0].Snapshot()
						require.Equal(t, 1, snap.Parked(request.WaitSession))
						require.NoError(t, c.units[0][0].Extend("s", more(4)))
						require.NoError(t, c.units[0][0].Extend("s", marker))
					}
				}
				require.Equal(t, 1, segments)
				c.journey.Stage(last.Record, clock.WallNow())
				spoken := c.speak(tokens)
				require.True(t, c.journey.End(last.Output.Finish, "", clock.WallNow()))
				require.Equal(t, []any{0.0, 10.0, 30.0, 0}, fields(last.Record), "of the last segment alone (PS-50)")
				ledgerExact(t, last.Record)
				idle, _ := last.Record.Ledger.Part(request.StateWaitingSession).Get()
				require.Equal(t, 120*time.Millisecond, idle, "the talker's 20, and the user's 100")

				m := c.samples()
				require.Equal(t, 1.0, m["vllm:request_queue_time_seconds_count{replica=0,stage=0}"], "once, in every view")
				require.Equal(t, 2.0, m["vllm:request_queue_time_seconds_count{replica=0,stage=1}"])
				require.Equal(t, 7.0, m["vllm:generation_tokens_total{replica=0,stage=0}"])
				require.Contains(t, c.lines.text(), "|          0_2 |          1_2 |")

				if multimodal {
					require.Equal(t, 7*float64(chunkFrames), m["vllm_omni:audio_frames_total{replica=0,stage=0}"], "of both segments, once")
					require.Equal(t, 4*chunkFrames, last.Record.AudioFrames, "of the last one")
				}
				folded := record.StageMetrics(c.journey.Records()...)
				require.Equal(t, 7, folded["0"].Get(record.NumTokensOut).Int(), "sums")
				require.Equal(t, 10.0, folded["0"].Get(record.VLLMPrefillMS).Number(), "terminal wins: the segment's absence hides nothing")
				require.Equal(t, 30.0, folded["0"].Get(record.VLLMDecodeMS).Number())
				require.Equal(t, millis(spoken.DecodeTime()), folded["1"].Get(record.VLLMDecodeMS).Number())

				duplex := stagelog.OfDuplex(&c.ends.list[0])
				rows := duplex.Build().Stages[0].Stages
				require.Len(t, rows, 2, "one column a stage")
				for i, row := range rows {
					for name := range record.DuplexStageTableExclude() {
						for _, cell := range row {
							require.NotEqual(t, name, cell.Name, "stage %d (PS-61)", i)
						}
					}
				}
				require.Equal(t, 30.0, duplex.Folded()[0].Get(record.VLLMDecodeMS).Number(), "the folded rows hold it")
			})
		})
	}
}

// PS-53: the end marker finds the session parked: the engine makes the record, which carries the last completed segment once.
func TestEndMarkerOfAParkedSessionInAPipelinePS53(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conversation{pipe: newPipe(t, []stageDef{{name: "thinker"}, {name: "talker"}})}
		defer c.close()
		r := ask("s", 4, 3)
		r.Resumable = true
		s, err := c.units[0][0].Submit(t.Context(), r)
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.NoError(t, c.units[0][0].Extend("s", marker))
		u := all(t, s)
		require.Equal(t, request.FinishLength, u.Record.Finish, "as its last segment, not aborted")
		require.Equal(t, []any{0.0, 10.0, 20.0, 0}, fields(u.Record))
		synctest.Wait()
		m := c.samples()
		require.Equal(t, 1.0, m["vllm:request_decode_time_seconds_count{replica=0,stage=0}"])
		require.Equal(t, 1.0, m["vllm:request_success_total{finished_reason=length,replica=0,stage=0}"])
		require.Zero(t, m["vllm:request_success_total{finished_reason=abort,replica=0,stage=0}"])
	})
}
