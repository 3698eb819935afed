package kernels

// Operations of diffusion transformers. A batch's tokens are a request's patches and its caption, all seen by all; a step's scalars are timesteps, one a
// batch row or one for all.

// TimestepEmbed: Out [Rows, Dim] = [cos(t*f), sin(t*f)] with t = scalar*Scale and f_i = MaxPeriod^(-i/(Dim/2)).
type TimestepEmbed struct {
	Out              BufferID
	Dim              int
	Scale, MaxPeriod float64
}

// FillRows sets the rows of Out that Batch.Inputs of that name lists to the one row of Value.
type FillRows struct {
	Out   BufferID
	Input string
	Value WeightID
}

// ScaleByRow: Out[t] = In[t] * (Plus + By[r]) for token t of batch row r; By is [Rows, width].
type ScaleByRow struct {
	Out, In, By BufferID
	Plus        float32
}

// FullAttention: attention of every token over the tokens of its own batch row in this step, in both directions. With Keys, only over those tokens
// that Batch.Inputs of these names list.
type FullAttention struct {
	Out, Q, K, V   BufferID
	Heads, KVHeads int
	KDim, VDim     int
	Scale          float32
	Keys           []string
}

// Name is the operation's name in plans and errors.
func (*TimestepEmbed) Name() string { return "timestep_embed" }

// Uses lists what the operation touches.
func (o *TimestepEmbed) Uses() Uses { return Uses{Out: []BufferID{o.Out}} }

// Name is the operation's name in plans and errors.
func (*FillRows) Name() string { return "fill_rows" }

// Uses lists what the operation touches.
func (o *FillRows) Uses() Uses {
	return Uses{In: []BufferID{o.Out}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Value}}
}

// Name is the operation's name in plans and errors.
func (*ScaleByRow) Name() string { return "scale_by_row" }

// Uses lists what the operation touches.
func (o *ScaleByRow) Uses() Uses {
	return Uses{In: []BufferID{o.In, o.By}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*FullAttention) Name() string { return "full_attention" }

// Uses lists what the operation touches.
func (o *FullAttention) Uses() Uses {
	return Uses{In: []BufferID{o.Q, o.K, o.V}, Out: []BufferID{o.Out}}
}
