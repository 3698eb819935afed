package models_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/kernels"
)

// omniDir is the tiny Qwen3-Omni: the copy beside the test holds what its tests need.
func omniDir() string {
	if given := os.Getenv("OMNI_TESTDATA"); given != "" {
		return filepath.Join(given, "ref", "tiny_qwen3_omni")
	}
	return filepath.Join("testdata", "tiny_qwen3_omni")
}

type omniCase struct {
	PromptIDs     []int32   `json:"prompt_ids"`
	ThinkerTokens []int32   `json:"thinker_tokens"`
	Penalty       float32   `json:"talker_repetition_penalty"`
	Codec0        []int32   `json:"talker_codec0"`
	Codes         [][]int32 `json:"codes_frames_by_group"`
}

// omniCases are the cases whose stages were recorded in full.
func omniCases(t *testing.T) (map[string]omniCase, map[string]array) {
	raw, err := os.ReadFile(filepath.Join(omniDir(), "ref.json"))
	require.NoError(t, err)
	var all struct{ Cases map[string]omniCase }
	require.NoError(t, json.Unmarshal(raw, &all))
	arrays := npz(t, filepath.Join(omniDir(), "ref.npz"))
	out := map[string]omniCase{}
	for name, c := range all.Cases {
		if _, ok := arrays[name+".codes"]; ok {
			out[name] = c
		}
	}
	require.NotEmpty(t, out)
	return out, arrays
}

func omniPart(t *testing.T, part string, opts models.BuildOptions) *models.Model {
	return open(t, omniDir(), func(s *models.Source) { s.Part, s.BuildOptions = part, opts })
}

// needThinker skips where the thinker's layers were left out to keep the copy small.
func needThinker(t *testing.T) {
	if os.Getenv("OMNI_TESTDATA") == "" {
		t.Skip("the copy beside the test has no thinker layers; set OMNI_TESTDATA")
	}
}

func TestThinkerMatchesTransformers(t *testing.T) {
	needThinker(t)
	cases, want := omniCases(t)
	m := omniPart(t, "", models.BuildOptions{Hidden: []int{0, 1, 2, 3, 4}})
	for name, c := range cases {
		ids := append(append([]int32{}, c.PromptIDs...), c.ThinkerTokens...)
		run := newRunner(t, m.Module, limits())
		got := run.forward(chunk{tokens: ids})
		for p := range got {
			require.LessOrEqual(t, maxDiff(got[p], want[name+".thinker_all_logits"].row(p)), 1e-3, "%s position %d", name, p)
		}
		for k := range 5 {
			hidden := run.output([]string{"hidden@0", "hidden@1", "hidden@2", "hidden@3", "hidden@4"}[k])
			for p := range hidden {
				require.LessOrEqual(t, maxDiff(hidden[p], want[name+".thinker_hidden_layers"].row(k*len(ids)+p)), 1e-3, "%s layer %d position %d", name, k, p)
			}
		}
	}
}

// talkerRun plays the talker's protocol on the device alone: codes never visit the host between steps.
type talkerRun struct {
	*runner
	c       omniCase
	want    map[string]array
	name    string
	vocab   int
	history []int32
}

func (r *talkerRun) sampling() kernels.RowSampling {
	p := kernels.RowSampling{Logprobs: -1, Repetition: r.c.Penalty, Output: r.history}
	const eos = 358
	for id := r.vocab - 1024; id < r.vocab; id++ {
		if id != eos || len(r.history) < 2 { // and min_new_tokens of 2
			p.Banned = append(p.Banned, int32(id))
		}
	}
	return p
}

// step runs one chunk with a named input row for each of its tokens and returns the logits and the frame.
func (r *talkerRun) step(c chunk, input string, rows []float32) ([]float32, []int32) {
	r.fill([]int32{int32(len(c.tokens) - 1)}, c)
	b := r.runner.step.Batch()
	in := kernels.NamedRows{Name: input, Width: len(rows) / len(c.tokens), Data: rows}
	for t := range c.tokens {
		in.Rows = append(in.Rows, int32(t))
	}
	b.Inputs = []kernels.NamedRows{in}
	b.Sampling[0] = r.sampling()
	var calls []kernels.Call
	for _, e := range []string{"forward", "sample", "code_predictor"} {
		calls = append(calls, kernels.Call{Entry: r.m.Entry(e)})
	}
	require.NoError(r.t, r.runner.step.Submit(calls...))
	res, err := r.runner.step.Wait(context.Background())
	require.NoError(r.t, err)
	require.Empty(r.t, res.Faults)
	r.history = append(r.history, res.Tokens[0])
	v, err := r.runner.step.Output("codes")
	require.NoError(r.t, err)
	var codes []int32
	for i := range v.Shape[1] {
		codes = append(codes, int32(uint32(v.Data[4*i])|uint32(v.Data[4*i+1])<<8|uint32(v.Data[4*i+2])<<16|uint32(v.Data[4*i+3])<<24))
	}
	logits := r.output("logits")[0]
	if len(r.history) == 1 {
		for g := range 15 {
			got := r.output("code_logits@" + itoa(g+1))[0]
			require.LessOrEqual(r.t, maxDiff(got, r.want[r.name+".code_predictor_logits_frame0"].row(g)), 1e-3, "%s code %d", r.name, g+1)
		}
	}
	r.runner.step.Release()
	return logits, codes
}

func itoa(n int) string { raw, _ := json.Marshal(n); return string(raw) }

func TestTalkerAndCodePredictorMatchTransformers(t *testing.T) {
	cases, want := omniCases(t)
	m := omniPart(t, models.Talker, models.BuildOptions{CodeLogits: true})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &talkerRun{runner: newRunner(t, m.Module, limits()), c: c, want: want, name: name, vocab: m.Vocab}
			embeds := want[name+".talker_prefill_embeds"]
			n := embeds.shape[0]
			logits, codes := r.step(chunk{tokens: make([]int32, n)}, "embeds", embeds.floats())
			trailing, pad := want[name+".trailing_text_hidden"], want[name+".tts_pad_embed"].floats()
			for i, id := range c.Codec0 {
				require.LessOrEqual(t, maxDiff(logits, want[name+".talker_logits"].row(i)), 1e-3, "step %d", i)
				require.Equal(t, id, r.history[i], "step %d", i)
				if i == len(c.Codes) {
					break // the last token has no frame
				}
				require.Equal(t, c.Codes[i], codes, "frame %d", i)
				row := pad
				if i < trailing.shape[0] {
					row = trailing.row(i)
				}
				if i+1 == len(c.Codec0) {
					break
				}
				logits, codes = r.step(chunk{start: n + i, tokens: []int32{-1}}, "text", row)
			}
		})
	}
}

// vocode runs the frames in chunks and returns the samples without the delay.
func vocode(t *testing.T, m *models.Model, codes [][]int32, size int) []float32 {
	run := newRunner(t, m.Module, limits())
	var wav []float32
	for at := 0; at < len(codes); at += size {
		part := codes[at:min(at+size, len(codes))]
		run.fill([]int32{}, chunk{slot: 1, start: at, tokens: make([]int32, len(part))})
		in := kernels.NamedRows{Name: "codes", Width: len(codes[0])}
		for i, frame := range part {
			in.Rows = append(in.Rows, int32(i))
			for _, c := range frame {
				in.Data = append(in.Data, float32(c))
			}
		}
		run.step.Batch().Inputs = []kernels.NamedRows{in}
		require.NoError(t, run.step.Submit(kernels.Call{Entry: m.Module.Entry("vocode")}))
		for _, row := range run.output("wav") {
			wav = append(wav, row...)
		}
		run.step.Release()
	}
	return wav[m.Delay:]
}

// The reference is one pass over all frames; one frame at a time must give the same samples.
func TestVocoderInChunksMatchesOnePass(t *testing.T) {
	cases, want := omniCases(t)
	m := omniPart(t, models.Code2Wav, models.BuildOptions{})
	require.Equal(t, 1920, m.Rate)
	require.Equal(t, 555, m.Delay)
	for name, c := range cases {
		ref := want[name+".wav_full"].floats()
		var whole []float32
		for _, size := range []int{len(c.Codes), 1, 4} {
			if size != 1 && len(c.Codes) > 20 && os.Getenv("OMNI_LONG") == "" {
				continue
			}
			got := vocode(t, m, c.Codes, size)
			require.LessOrEqual(t, maxDiff(got, ref), 5e-4, "%s in chunks of %d", name, size)
			if whole == nil {
				whole = got
			}
			require.Equal(t, whole, got, "%s in chunks of %d: bits", name, size)
		}
	}
}

// The text row that pads the speech is the projection of the thinker's embedding of tts_pad.
func TestTextProjectionGivesThePadRow(t *testing.T) {
	needThinker(t)
	_, want := omniCases(t)
	const ttsPad = 421
	thinker := newRunner(t, omniPart(t, models.Thinker, models.BuildOptions{Hidden: []int{0}}).Module, limits())
	thinker.forward(chunk{tokens: []int32{ttsPad}})
	row := thinker.output("hidden@0")[0]
	m := omniPart(t, models.Talker, models.BuildOptions{})
	run := newRunner(t, m.Module, limits())
	run.fill([]int32{}, chunk{tokens: []int32{0}})
	run.step.Batch().Inputs = []kernels.NamedRows{{Name: "embeds", Width: len(row), Rows: []int32{0}, Data: row}}
	require.NoError(t, run.step.Submit(kernels.Call{Entry: m.Module.Entry("text_projection")}))
	require.LessOrEqual(t, maxDiff(run.output("projected")[0], want["basic.tts_pad_embed"].floats()), 1e-4)
}
