package kernels

// Batch is what a step computes. T tokens in R rows (requests), of which L positions need logits. Slices are views of memory
// that the step owns (C or page-locked); fill them in place through Reset and the Append methods, without allocation.
type Batch struct {
	Tokens     []int32    // [T]; -1-k: the k-th token that the row's slot sampled last
	Positions  [3][]int32 // [T] each; 1 and 2 are empty for plain rope
	QueryStart []int32    // [R+1] into T
	SeqLens    []int32    // [R] tokens of the request after this step
	Slots      []int32    // [R]
	Flags      []RowFlags // [R]
	Tables     []GroupTable
	Adapters   []int32     // [R], -1 none; empty when no adapter is loaded
	Inputs     []NamedRows // rows that are not tokens
	LogitRows  []int32     // [L] into T
	LogitOwner []int32     // [L] the row r of each logit row
	Sampling   []RowSampling
	Masks      []uint32 // [L, ceil(V/32)], empty without a grammar; bit set: allowed
	Frames     int      // for modules with a Frames dimension
}

// RowFlags say what a row is.
type RowFlags uint8

// The flags.
const (
	RowFirst    RowFlags = 1 << iota // reset the slot's state first
	RowLast                          // flush the slot's state
	RowPrefill                       // a prefill chunk
	RowRelative                      // positions are relative: minus rejected drafts
)

// GroupTable is one KV group's block table of the batch: row r's blocks are Blocks[Start[r]:Start[r+1]]; block 0 is the null
// block (out of the window). A position p of the row lives in block p/BlockSize at offset p%BlockSize.
type GroupTable struct {
	Start  []int32 // [R+1]
	Blocks []int32
}

// Row returns row r's block table.
func (g *GroupTable) Row(r int) []int32 { return g.Blocks[g.Start[r]:g.Start[r+1]] }

// NamedRows are input rows for an InputRows operation: Data[i] goes to token row Rows[i].
type NamedRows struct {
	Name  string
	Width int
	Rows  []int32   // [n] into T
	Data  []float32 // [n, Width]
}

// RowSampling says how to sample one logit row. The zero value is greedy.
type RowSampling struct {
	Skip        bool // only logprobs are wanted (prompt logprobs): sample nothing
	Temperature float32
	TopK        int32   // 0: off
	TopP        float32 // 0 or 1: off
	MinP        float32
	Seed        uint64
	Position    uint64 // counter of the Philox stream: the output position

	Presence, Frequency, Repetition float32 // Repetition 0 or 1: off
	Prompt, Output                  []int32 // history, for penalties; aliases, read only during the step
	BiasIDs                         []int32
	Bias                            []float32
	Banned                          []int32 // tokens that may not be sampled (min_tokens, bad words)
	Allowed                         []int32 // nil: all
	// Logprobs is how many best tokens are reported beside the chosen one; -1: none reported at all.
	// 0 reports the chosen token only.
	Logprobs int32
	// Target is the token whose logprob is reported when Skip is set.
	Target int32
}

// Result is what a step sampled, in the order of LogitRows. Valid until Release.
type Result struct {
	Tokens   []int32    // [L]; -1 where Skip or at a fault
	Logprobs []Logprobs // [L] or nil when no row asked
	Faults   []RowFault
}

// Logprobs of one logit row, of the raw logits (before temperature and penalties), as vLLM's default raw_logprobs:
// the chosen (or target) token first, then the n best in descending order.
type Logprobs struct {
	IDs    []int32
	Values []float32
	Rank   int32 // 1-based rank of the chosen token
}

// RowFault ends one request: NaN in its logits, or no legal token.
type RowFault struct {
	LogitRow int
	Reason   string
}
