package kernels

// Name is the operation's name in plans and errors.
func (*Embed) Name() string { return "embed" }

// Uses lists what the operation touches.
func (o *Embed) Uses() Uses {
	return Uses{Out: []BufferID{o.Out}, Weights: []WeightID{o.Table}}
}

// Name is the operation's name in plans and errors.
func (*Lookup) Name() string { return "lookup" }

// Uses lists what the operation touches.
func (o *Lookup) Uses() Uses {
	return Uses{In: []BufferID{o.IDs}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Table}}
}

// Name is the operation's name in plans and errors.
func (*InputRows) Name() string { return "input_rows" }

// Uses lists what the operation touches.
func (o *InputRows) Uses() Uses {
	return Uses{In: []BufferID{o.Out}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*Norm) Name() string { return "norm" }

// Uses lists what the operation touches.
func (o *Norm) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Weight, o.Bias}}
}

// Name is the operation's name in plans and errors.
func (*Linear) Name() string { return "linear" }

// Uses lists what the operation touches.
func (o *Linear) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Weight, o.Bias}}
}

// Name is the operation's name in plans and errors.
func (*Binary) Name() string { return "binary" }

// Uses lists what the operation touches.
func (o *Binary) Uses() Uses {
	return Uses{In: []BufferID{o.A, o.B}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*Unary) Name() string { return "unary" }

// Uses lists what the operation touches.
func (o *Unary) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*Gated) Name() string { return "gated" }

// Uses lists what the operation touches.
func (o *Gated) Uses() Uses {
	return Uses{In: []BufferID{o.Gate, o.Up}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*Copy) Name() string { return "copy" }

// Uses lists what the operation touches.
func (o *Copy) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*Rope) Name() string { return "rope" }

// Uses lists what the operation touches.
func (o *Rope) Uses() Uses {
	return Uses{In: []BufferID{o.X}, Out: []BufferID{o.X}}
}

// Name is the operation's name in plans and errors.
func (*PositionScale) Name() string { return "position_scale" }

// Uses lists what the operation touches.
func (o *PositionScale) Uses() Uses {
	return Uses{In: []BufferID{o.X}, Out: []BufferID{o.X}}
}

// Name is the operation's name in plans and errors.
func (*KVWrite) Name() string { return "kv_write" }

// Uses lists what the operation touches.
func (o *KVWrite) Uses() Uses {
	return Uses{In: []BufferID{o.K, o.V}, States: []StateID{o.State}}
}

// Name is the operation's name in plans and errors.
func (*Attention) Name() string { return "attention" }

// Uses lists what the operation touches.
func (o *Attention) Uses() Uses {
	return Uses{In: []BufferID{o.Q}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Sinks}, States: []StateID{o.State}}
}

// Name is the operation's name in plans and errors.
func (*GatherRows) Name() string { return "gather_rows" }

// Uses lists what the operation touches.
func (o *GatherRows) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*Sample) Name() string { return "sample" }

// Uses lists what the operation touches.
func (o *Sample) Uses() Uses {
	return Uses{In: []BufferID{o.Logits}}
}

// Name is the operation's name in plans and errors.
func (*Route) Name() string { return "route" }

// Uses lists what the operation touches.
func (o *Route) Uses() Uses {
	return Uses{In: []BufferID{o.Logits}, Out: []BufferID{o.IDs, o.Weights}, Weights: []WeightID{o.SelectBias}}
}

// Name is the operation's name in plans and errors.
func (*ConvState) Name() string { return "conv_state" }

// Uses lists what the operation touches.
func (o *ConvState) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Weight, o.Bias}, States: []StateID{o.State}}
}

// Name is the operation's name in plans and errors.
func (*DeltaRule) Name() string { return "delta_rule" }

// Uses lists what the operation touches.
func (o *DeltaRule) Uses() Uses {
	return Uses{In: []BufferID{o.Q, o.K, o.V, o.G, o.Beta}, Out: []BufferID{o.Out}, States: []StateID{o.State}}
}

// Name is the operation's name in plans and errors.
func (*Experts) Name() string { return "experts" }

// Uses lists what the operation touches.
func (o *Experts) Uses() Uses {
	u := Uses{In: []BufferID{o.In, o.IDs, o.Weights}, Out: []BufferID{o.Out}}
	for _, l := range [][]WeightID{o.Gate, o.Up, o.Down, o.GateBias, o.UpBias, o.DownBias} {
		u.Weights = append(u.Weights, l...)
	}
	return u
}

// Name is the operation's name in plans and errors.
func (*ColumnScale) Name() string { return "column_scale" }

// Uses lists what the operation touches.
func (o *ColumnScale) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Scale, o.Shift}}
}
