package kernels

// Operations of the stages behind a text model: codec heads, vocoders. A vocoder's rows are frames; behind an up-sampling a buffer has
// Rate rows a frame, and its first Delay rows of a request come before the signal's start.

// InputIDs sets rows of the int32 buffer Out from Batch.Inputs of that name; rows without an input become -1.
type InputIDs struct {
	Out   BufferID
	Input string
}

// AddRows adds Batch.Inputs of that name to rows of Out.
type AddRows struct {
	Out   BufferID
	Input string
}

// SlotStore keeps int32 rows In [L, w] in the slot of each logit row's request. The state holds w floats.
type SlotStore struct {
	In    BufferID
	State StateID
}

// SlotLoad: Out[t] (int32) = what the slot of row t's request keeps; -1 where nothing was stored since the request began.
type SlotLoad struct {
	Out   BufferID
	State StateID
}

// Sampled: Out[l][Column] (int32) = the token that the step's Sample drew for logit row l; -1 where it drew none.
type Sampled struct {
	Out    BufferID
	Column int
}

// SampleCode: IDs[l][Column] (int32) is drawn from Logits [L, V]: the best where row l's sampling is greedy, else by temperature 1, TopK and
// TopP, by the row's seed and position with Column+1 as third word of the counter. Negative where IDs[l][0] is.
type SampleCode struct {
	IDs, Logits BufferID
	Column      int
	TopK        int
	TopP        float32
}

// RopeAt is Rope with every row at one position.
type RopeAt struct {
	X              BufferID
	Heads, HeadDim int
	RotDim         int
	Pairing        RopePairing
	InvFreq        []float64 // [RotDim/2]
	Factor         float32
	Position       int
}

// RowAttention: attention within a row. K and V hold Count positions of the row side by side: [rows, >= Count*KVHeads*KDim] and
// [rows, >= Count*KVHeads*VDim].
type RowAttention struct {
	Out, Q, K, V   BufferID
	Heads, KVHeads int
	KDim, VDim     int
	Count          int
	Scale          float32
}

// RingAttention: causal attention over a request's last Window positions, its own included, kept in a slot of Window*KVHeads*(KDim+VDim)
// floats. K and V of this step's tokens are written first come, first overwritten: position p lives at p%Window.
type RingAttention struct {
	Out, Q, K, V   BufferID
	State          StateID
	Heads, KVHeads int
	KDim, VDim     int
	Window         int
	Scale          float32
}

// Conv1d: causal convolution along a request's rows: Out[t] = bias + sum_j W[:,:,j] · x[t-(Kernel-1-j)*Dilation]. W is [out, in, Kernel], or
// [width, 1, Kernel] with Depthwise. Rows before Delay, and before the request, read as zero. The state holds (Kernel-1)*Dilation rows.
type Conv1d struct {
	Out, In          BufferID
	Weight, Bias     WeightID
	Kernel, Dilation int
	Depthwise        bool
	Rate, Delay      int // of In and Out
	State            StateID
}

// ConvTranspose1d up-samples by Stride with W [in, out, Kernel], Kernel = Stride*(1+a): row i of the signal begins at output row i*Stride, and
// the first and last Kernel-Stride output rows are trimmed, so that a block of Stride rows needs a further inputs: Out has Rate*Stride rows a
// frame and a delay of (Delay+a)*Stride. The state holds a input rows.
type ConvTranspose1d struct {
	Out, In        BufferID
	Weight, Bias   WeightID
	Kernel, Stride int
	Rate, Delay    int // of In
	State          StateID
}

// Snake: Out = In + sin(In*exp(Alpha))^2 / (exp(Beta)+1e-9), by column.
type Snake struct {
	Out, In     BufferID
	Alpha, Beta WeightID
}
