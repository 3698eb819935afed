package kernels

// Operations of image decoders. A batch row is an image whose tokens are the pixels of a grid, row by row; Batch.Positions[1] and [2] are
// their row and column. A buffer of scale s has s*s rows a token: the pixels of a grid s times as high and as wide, row by row.

// Conv2d: convolution with stride 1 and zero padding of Kernel/2 on each side. W is [out, in, Kernel, Kernel].
type Conv2d struct {
	Out, In      BufferID
	Weight, Bias WeightID
	Kernel       int
	Scale        int
}

// GroupNorm normalises each group of width/Groups columns over all pixels of an image, then times weight plus bias, by column.
type GroupNorm struct {
	Out, In      BufferID
	Weight, Bias WeightID
	Groups       int
	Eps          float32
	Scale        int
}

// Upsample2d doubles height and width: each pixel of In, of scale Scale, becomes four.
type Upsample2d struct {
	Out, In BufferID
	Scale   int
}

// Name is the operation's name in plans and errors.
func (*Conv2d) Name() string { return "conv2d" }

// Uses lists what the operation touches.
func (o *Conv2d) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Weight, o.Bias}}
}

// Name is the operation's name in plans and errors.
func (*GroupNorm) Name() string { return "group_norm" }

// Uses lists what the operation touches.
func (o *GroupNorm) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Weight, o.Bias}}
}

// Name is the operation's name in plans and errors.
func (*Upsample2d) Name() string { return "upsample2d" }

// Uses lists what the operation touches.
func (o *Upsample2d) Uses() Uses { return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}} }
