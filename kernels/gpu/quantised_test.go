//go:build !nocuda && linux && amd64

package gpu

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"omni-engine/engine/models"
	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/quant"
	"omni-engine/kernels"
)

// mixed gives a small llama whose matrices have different block types: queries and keys lie in one matrix, values in another, as in
// GGUF files of mixed quality.
type mixed struct {
	t     testing.TB
	names []string
	shape map[string][]int
	dtype map[string]tensor.DType
}

func newMixed(t testing.TB, most, some tensor.DType) *mixed {
	m := &mixed{t: t, shape: map[string][]int{}, dtype: map[string]tensor.DType{}}
	add := func(name string, d tensor.DType, dims ...int) {
		m.names = append(m.names, name)
		m.shape[name], m.dtype[name] = dims, d
	}
	add("model.embed_tokens.weight", some, 512, 256)
	add("model.norm.weight", tensor.F32, 256)
	for i := range 2 {
		p := fmt.Sprintf("model.layers.%d.", i)
		add(p+"input_layernorm.weight", tensor.F32, 256)
		add(p+"post_attention_layernorm.weight", tensor.F32, 256)
		add(p+"self_attn.q_proj.weight", most, 256, 256)
		add(p+"self_attn.k_proj.weight", most, 128, 256)
		add(p+"self_attn.v_proj.weight", some, 128, 256)
		add(p+"self_attn.o_proj.weight", most, 256, 256)
		add(p+"mlp.gate_proj.weight", most, 512, 256)
		add(p+"mlp.up_proj.weight", most, 512, 256)
		add(p+"mlp.down_proj.weight", some, 256, 512)
	}
	return m
}

func (m *mixed) Names() []string { return m.names }

func (m *mixed) Tensor(name string) (tensor.View, error) {
	dims, d := m.shape[name], m.dtype[name]
	if len(dims) == 1 {
		ones := make([]float32, dims[0])
		for i := range ones {
			ones[i] = 1
		}
		return tensor.NewView(d, dims, asBytes(ones))
	}
	data, _ := randomBlocks(m.t, d, dims[0], dims[1])
	return tensor.NewView(d, dims, data)
}

func (m *mixed) module() *kernels.Module {
	config := []byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":256,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
		"head_dim":64,"intermediate_size":512,"vocab_size":512,"max_position_embeddings":256,"rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true}`)
	got, err := models.Load(models.Source{Config: config, Weights: m})
	require.NoError(m.t, err)
	return got.Module
}

// widened is the module with its blocks' values in float32, which the device keeps in 16 bits.
func widened(t testing.TB, m *kernels.Module) *kernels.Module {
	out := *m
	out.Weights = append([]kernels.Weight(nil), m.Weights...)
	for i, w := range out.Weights {
		f, err := quant.Float32s(w.View)
		require.NoError(t, err)
		out.Weights[i].View = tensor.View{DType: tensor.F32, Shape: w.View.Shape, Data: asBytes(f)}
	}
	return &out
}

// Blocks lie on the device as in the file; products of few rows and of many, and embeddings, read them. The results
// are about as near the definition as those of the same weights in 16 bits.
func TestQuantisedBlocksAreReadAsTheyAre(t *testing.T) {
	for _, c := range []struct{ most, some tensor.DType }{{tensor.Q4_K, tensor.Q6_K}, {tensor.Q4_0, tensor.Q8_0}, {tensor.Q4_1, tensor.Q5_0}, {tensor.Q5_K, tensor.Q8_0}, {tensor.Q5_1, tensor.Q4_0}} {
		t.Run(c.most.String()+" "+c.some.String(), func(t *testing.T) {
			dev := opened(t, Options{})
			m, l := newMixed(t, c.most, c.some).module(), limits()
			got := newRig(t, dev, m, l)
			if c.most == tensor.Q5_1 {
				require.Contains(t, got.program.Explain(), "product [BF16]", "a type without kernels is widened")
			} else {
				require.Contains(t, got.program.Explain(), "product ["+c.most.String()+"]")
			}
			wide := newRig(t, dev, widened(t, m), l)
			l.Exact = true
			want := onRef(t, m, l)
			for i, batch := range scenario(false) {
				g, _ := got.run(batch...)
				v, _ := wide.run(batch...)
				w, _ := want.run(batch...)
				near, bound := distance(t, g, w), distance(t, v, w)
				t.Logf("step %d: %.4f from the definition, the same weights in 16 bits %.4f", i, near, bound)
				require.LessOrEqual(t, near, 2*bound+0.02, "step %d", i)
			}
		})
	}
}

// distance is the L2 norm of the difference over that of what is wanted.
func distance(t testing.TB, got, want [][]float32) float64 {
	t.Helper()
	require.Len(t, got, len(want))
	var diff, whole float64
	for i := range want {
		for k := range want[i] {
			d := float64(got[i][k]) - float64(want[i][k])
			diff, whole = diff+d*d, whole+float64(want[i][k])*float64(want[i][k])
		}
	}
	return math.Sqrt(diff / whole)
}
