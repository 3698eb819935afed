package models_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/kernels"
)

func zimageDir() string {
	if given := os.Getenv("OMNI_TESTDATA"); given != "" {
		return filepath.Join(given, "ref", "tiny_zimage")
	}
	return filepath.Join("testdata", "tiny_zimage")
}

// image is a request of the denoiser: latents [16, h, w] and a caption.
type image struct {
	latents []float32
	h, w    int
	caption array
}

func padded(n int) int { return (n + 31) / 32 * 32 }

// fillImages makes each image a batch row: patches, padding, caption, padding. Caption positions run along the first axis from 1.
func fillImages(b *kernels.Batch, images []image, captions [][]float32) {
	*b = kernels.Batch{QueryStart: []int32{0}}
	in := map[string]*kernels.NamedRows{}
	for _, n := range []string{models.InputLatents, models.InputLatentsPad, models.InputCaption, models.InputCaptionPad} {
		in[n] = &kernels.NamedRows{Name: n}
	}
	for r, im := range images {
		patches, words := im.h/2*im.w/2, im.caption.shape[0]
		add := func(input string, f, y, x int) {
			in[input].Rows = append(in[input].Rows, int32(len(b.Tokens)))
			b.Tokens = append(b.Tokens, 0)
			for axis, p := range []int{f, y, x} {
				b.Positions[axis] = append(b.Positions[axis], int32(p))
			}
		}
		if im.latents != nil {
			for i := range patches {
				add(models.InputLatents, padded(words)+1, i/(im.w/2), i%(im.w/2))
			}
			in[models.InputLatents].Data = append(in[models.InputLatents].Data, models.Patchify(im.latents, 16, im.h, im.w, 2)...)
			for range padded(patches) - patches {
				add(models.InputLatentsPad, 0, 0, 0)
			}
			for i := range padded(words) {
				add(models.InputCaption, i+1, 0, 0)
			}
			in[models.InputCaption].Data = append(in[models.InputCaption].Data, captions[r]...)
		} else {
			for i := range padded(words) {
				if i < words {
					add(models.InputCaption, i+1, 0, 0)
				} else {
					add(models.InputCaptionPad, i+1, 0, 0)
				}
			}
			in[models.InputCaption].Data = append(in[models.InputCaption].Data, im.caption.floats()...)
		}
		n := int32(len(b.Tokens))
		b.SeqLens = append(b.SeqLens, n-b.QueryStart[r])
		b.QueryStart = append(b.QueryStart, n)
		b.Slots, b.Flags = append(b.Slots, int32(r)), append(b.Flags, kernels.RowFirst)
	}
	for _, rows := range in {
		if len(rows.Rows) > 0 {
			rows.Width = len(rows.Data) / len(rows.Rows)
			b.Inputs = append(b.Inputs, *rows)
		}
	}
}

func zimageRunner(t *testing.T) *runner {
	m := open(t, filepath.Join(zimageDir(), "transformer"), nil)
	return newRunner(t, m.Module, kernels.Limits{Tokens: 512, Rows: 4})
}

// encode runs the caption's part, which no step changes.
func encode(run *runner, images []image) [][]float32 {
	bare := make([]image, len(images))
	for i, im := range images {
		bare[i] = image{caption: im.caption}
	}
	fillImages(run.step.Batch(), bare, nil)
	require.NoError(run.t, run.step.Submit(kernels.Call{Entry: run.m.Entry("encode_prompt")}))
	rows := run.output("caption")
	run.step.Release()
	var out [][]float32
	for _, im := range images {
		var flat []float32
		for _, row := range rows[:padded(im.caption.shape[0])] {
			flat = append(flat, row...)
		}
		rows = rows[padded(im.caption.shape[0]):]
		out = append(out, flat)
	}
	return out
}

// denoise returns each image's model output [16, h, w].
func denoise(run *runner, images []image, captions [][]float32, t float32) [][]float32 {
	fillImages(run.step.Batch(), images, captions)
	require.NoError(run.t, run.step.Submit(kernels.Call{Entry: run.m.Entry("denoise"), Scalars: []float32{t}}))
	rows := run.output("velocity")
	start := append([]int32{}, run.step.Batch().QueryStart...)
	run.step.Release()
	var out [][]float32
	for r, im := range images {
		var flat []float32
		for _, row := range rows[start[r] : int(start[r])+im.h/2*im.w/2] {
			flat = append(flat, row...)
		}
		out = append(out, models.Unpatchify(flat, 16, im.h, im.w, 2))
	}
	return out
}

type zimageCase struct {
	PromptIDs     []int32 `json:"prompt_ids"`
	Height, Width int
	T             []float32 `json:"transformer_t"`
	Sigmas        []float32
	Guidance      float32 `json:"guidance_scale"`
}

func zimageCases(t *testing.T) (map[string]zimageCase, map[string]array) {
	raw, err := os.ReadFile(filepath.Join(zimageDir(), "ref.json"))
	require.NoError(t, err)
	var all struct{ Cases map[string]zimageCase }
	require.NoError(t, json.Unmarshal(raw, &all))
	return all.Cases, npz(t, filepath.Join(zimageDir(), "ref.npz"))
}

func TestZImageStepsMatchDiffusers(t *testing.T) {
	cases, want := zimageCases(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h, w := c.Height/8, c.Width/8
			images := []image{{h: h, w: w, caption: want[name+".prompt_embeds"]}}
			if c.Guidance > 0 {
				images = append(images, image{h: h, w: w, caption: want[name+".negative_embeds"]})
			}
			run := zimageRunner(t)
			captions := encode(run, images)
			latents, size := want[name+".latents0"].floats(), 16*h*w
			for s, ts := range c.T {
				for i := range images {
					images[i].latents = latents
				}
				got := denoise(run, images, captions, ts)
				for i := range images {
					from := (s*len(images) + i) * size
					require.LessOrEqual(t, maxDiff(got[i], want[name+".model_out"].floats()[from:from+size]), 1e-3, "step %d image %d", s, i)
				}
				// Follow the reference's own latents, as a step's error would grow over the steps.
				latents = want[name+".latents_steps"].floats()[s*size : (s+1)*size]
			}
		})
	}
}

// Guidance and the flow-matching Euler step, as the pipeline does them, over all steps from the same noise.
func TestZImageLatentsMatchDiffusersOverAllSteps(t *testing.T) {
	cases, want := zimageCases(t)
	for name, c := range cases {
		h, w := c.Height/8, c.Width/8
		images := []image{{h: h, w: w, caption: want[name+".prompt_embeds"]}}
		if c.Guidance > 0 {
			images = append(images, image{h: h, w: w, caption: want[name+".negative_embeds"]})
		}
		run := zimageRunner(t)
		captions := encode(run, images)
		latents := want[name+".latents0"].floats()
		for s, ts := range c.T {
			for i := range images {
				images[i].latents = latents
			}
			out := denoise(run, images, captions, ts)
			next := make([]float32, len(latents))
			for i, v := range out[0] {
				if c.Guidance > 0 {
					v += c.Guidance * (v - out[1][i])
				}
				next[i] = latents[i] + (c.Sigmas[s+1]-c.Sigmas[s])*-v
			}
			latents = next
			size := len(latents)
			require.LessOrEqual(t, maxDiff(latents, want[name+".latents_steps"].floats()[s*size:(s+1)*size]), 2e-3, "%s step %d", name, s)
		}
	}
}

func TestUnpatchifyReversesPatchify(t *testing.T) {
	v := make([]float32, 3*4*6)
	for i := range v {
		v[i] = float32(i)
	}
	require.Equal(t, v, models.Unpatchify(models.Patchify(v, 3, 4, 6, 2), 3, 4, 6, 2))
	require.Equal(t, []float32{0, 24, 48, 1, 25, 49}, models.Patchify(v, 3, 4, 6, 2)[:6], "channels last within a patch")
}

// The image of both cases from the reference's last latents. Two images of different sizes share the batch.
func TestVAEImagesMatchDiffusers(t *testing.T) {
	if os.Getenv("OMNI_TESTDATA") == "" {
		t.Skip("the copy beside the test has no VAE; set OMNI_TESTDATA")
	}
	cases, want := zimageCases(t)
	m := open(t, filepath.Join(zimageDir(), "vae"), nil)
	run := newRunner(t, m.Module, kernels.Limits{Tokens: 512, Rows: 4})
	b := run.step.Batch()
	*b = kernels.Batch{QueryStart: []int32{0}}
	in := kernels.NamedRows{Name: models.InputLatents, Width: 16}
	var names []string
	for name, c := range cases {
		names = append(names, name)
		h, w := c.Height/8, c.Width/8
		steps := want[name+".latents_steps"]
		last := steps.floats()[(steps.shape[0]-1)*16*h*w:]
		for y := range h {
			for x := range w {
				in.Rows = append(in.Rows, int32(len(b.Tokens)))
				b.Tokens = append(b.Tokens, 0)
				for axis, p := range []int{0, y, x} {
					b.Positions[axis] = append(b.Positions[axis], int32(p))
				}
				for ch := range 16 {
					in.Data = append(in.Data, last[(ch*h+y)*w+x])
				}
			}
		}
		b.QueryStart, b.SeqLens = append(b.QueryStart, int32(len(b.Tokens))), append(b.SeqLens, int32(h*w))
		b.Slots, b.Flags = append(b.Slots, int32(len(b.Slots))), append(b.Flags, kernels.RowFirst)
	}
	b.Inputs = []kernels.NamedRows{in}
	require.NoError(t, run.step.Submit(kernels.Call{Entry: m.Module.Entry("vae_decode")}))
	var flat []float32
	for _, row := range run.output("image") {
		flat = append(flat, row...)
	}
	for _, name := range names {
		ref := want[name+".image"].floats()
		require.LessOrEqual(t, maxDiff(flat[:len(ref)], ref), 2e-3, name)
		flat = flat[len(ref):]
	}
	require.Empty(t, flat)
}

// The caption's features are the text encoder's last hidden states but one.
func TestZImageTextEncoderMatchesTransformers(t *testing.T) {
	if os.Getenv("OMNI_TESTDATA") == "" {
		t.Skip("the copy beside the test has no text encoder; set OMNI_TESTDATA")
	}
	cases, want := zimageCases(t)
	m := open(t, filepath.Join(zimageDir(), "text_encoder"), func(s *models.Source) { s.Hidden = []int{2} })
	for name, c := range cases {
		run := newRunner(t, m.Module, limits())
		run.forward(chunk{tokens: c.PromptIDs})
		for p, row := range run.output("hidden@2") {
			require.LessOrEqual(t, maxDiff(row, want[name+".prompt_embeds"].row(p)), 1e-3, "%s position %d", name, p)
		}
	}
}
