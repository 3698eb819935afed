package kernels

// Name is the operation's name in plans and errors.
func (*InputIDs) Name() string { return "input_ids" }

// Uses lists what the operation touches.
func (o *InputIDs) Uses() Uses { return Uses{Out: []BufferID{o.Out}} }

// Name is the operation's name in plans and errors.
func (*AddRows) Name() string { return "add_rows" }

// Uses lists what the operation touches.
func (o *AddRows) Uses() Uses { return Uses{In: []BufferID{o.Out}, Out: []BufferID{o.Out}} }

// Name is the operation's name in plans and errors.
func (*SlotStore) Name() string { return "slot_store" }

// Uses lists what the operation touches.
func (o *SlotStore) Uses() Uses { return Uses{In: []BufferID{o.In}, States: []StateID{o.State}} }

// Name is the operation's name in plans and errors.
func (*SlotLoad) Name() string { return "slot_load" }

// Uses lists what the operation touches.
func (o *SlotLoad) Uses() Uses { return Uses{Out: []BufferID{o.Out}, States: []StateID{o.State}} }

// Name is the operation's name in plans and errors.
func (*Sampled) Name() string { return "sampled" }

// Uses lists what the operation touches.
func (o *Sampled) Uses() Uses { return Uses{In: []BufferID{o.Out}, Out: []BufferID{o.Out}} }

// Name is the operation's name in plans and errors.
func (*SampleCode) Name() string { return "sample_code" }

// Uses lists what the operation touches.
func (o *SampleCode) Uses() Uses {
	return Uses{In: []BufferID{o.Logits, o.IDs}, Out: []BufferID{o.IDs}}
}

// Name is the operation's name in plans and errors.
func (*RopeAt) Name() string { return "rope_at" }

// Uses lists what the operation touches.
func (o *RopeAt) Uses() Uses { return Uses{In: []BufferID{o.X}, Out: []BufferID{o.X}} }

// Name is the operation's name in plans and errors.
func (*RowAttention) Name() string { return "row_attention" }

// Uses lists what the operation touches.
func (o *RowAttention) Uses() Uses {
	return Uses{In: []BufferID{o.Q, o.K, o.V}, Out: []BufferID{o.Out}}
}

// Name is the operation's name in plans and errors.
func (*RingAttention) Name() string { return "ring_attention" }

// Uses lists what the operation touches.
func (o *RingAttention) Uses() Uses {
	return Uses{In: []BufferID{o.Q, o.K, o.V}, Out: []BufferID{o.Out}, States: []StateID{o.State}}
}

// Name is the operation's name in plans and errors.
func (*Conv1d) Name() string { return "conv1d" }

// Uses lists what the operation touches.
func (o *Conv1d) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Weight, o.Bias}, States: []StateID{o.State}}
}

// Name is the operation's name in plans and errors.
func (*ConvTranspose1d) Name() string { return "conv_transpose1d" }

// Uses lists what the operation touches.
func (o *ConvTranspose1d) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Weight, o.Bias}, States: []StateID{o.State}}
}

// Name is the operation's name in plans and errors.
func (*Snake) Name() string { return "snake" }

// Uses lists what the operation touches.
func (o *Snake) Uses() Uses {
	return Uses{In: []BufferID{o.In}, Out: []BufferID{o.Out}, Weights: []WeightID{o.Alpha, o.Beta}}
}
