package gpu

import "omni-engine/cuda"

// maxTiles is how many sizes of attention tiles a module may have: one for each ratio of query heads to KV heads.
const maxTiles = 4

// sizes of a step, as the kernels see it: padded to a bucket where a graph runs.
type sizes struct {
	image                *image
	tokens, rows, logits int
	decodes              int           // rows of one token
	work                 [maxTiles]int // tiles of each size
	longest              int           // most tokens that a row attends to, a bound
	ids, bias            cuda.DevicePtr
	topStride            int
	captured             bool // into a graph
}
