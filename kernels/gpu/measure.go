package gpu

import (
	"errors"
	"fmt"
	"math/rand"
	"time"
	"unsafe"

	"omni-engine/cuda"
	"omni-engine/internal/tensor"
	"omni-engine/kernels"
)

// MeasureSizes are the shapes that [Measure] gives the kernels: a decoder's, and the steps'.
type MeasureSizes struct {
	Hidden, FFN, Heads, KVHeads, Dim, Vocab int
	Prefill                                 int   // tokens of a prefill
	Rows                                    int   // sequences of a decode step
	Contexts                                []int // tokens that they attend to
	Repeats                                 int
}

// KernelTime is how long one kernel took, and what it cannot do without: Bytes moved once, Flops done.
type KernelTime struct {
	Kernel, Shape string
	Time          time.Duration
	Bytes, Flops  float64
}

// Measure times single kernels on random data, by events around many launches.
func Measure(dev kernels.Device, z MeasureSizes) ([]KernelTime, error) {
	d, ok := dev.(*device)
	if !ok {
		return nil, fmt.Errorf("measuring kernels: %s is no CUDA device", dev.Info().Kind)
	}
	x := &measurement{device: d, sizes: z}
	for _, group := range []func(){x.products, x.quantised, x.attention, x.rows, x.sampling} {
		group()
		x.fail(x.freeAll())
		if err := errors.Join(x.errs...); err != nil {
			return nil, fmt.Errorf("measuring kernels: %w", err)
		}
	}
	return x.times, nil
}

type measurement struct {
	*device
	sizes  MeasureSizes
	blocks []*block
	used   []*cuda.Launch
	times  []KernelTime
	errs   []error
}

func (x *measurement) fail(err error) {
	if err != nil {
		x.errs = append(x.errs, err)
	}
}

func (x *measurement) freeAll() error {
	errs := make([]error, 0, len(x.blocks))
	for _, b := range x.blocks {
		errs = append(errs, b.free())
	}
	for _, l := range x.used {
		l.Release()
	}
	x.blocks, x.used = nil, nil
	return errors.Join(errs...)
}

// random is memory full of words that are small finite numbers as float32, BF16, F16 and block scales alike. Zeros would not do: a GPU
// that multiplies them takes less power and clocks higher.
func (x *measurement) random(bytes int) cuda.DevicePtr {
	const piece = 1 << 20
	b, err := x.alloc("a measurement", int64(bytes)+readAhead+piece)
	if err != nil {
		x.fail(err)
		return 0
	}
	x.blocks = append(x.blocks, b)
	r := rand.New(rand.NewSource(1))
	words := make([]uint16, piece/2)
	for i := range words {
		words[i] = 0x3d00 | uint16(r.Uint32())&0x80ff
	}
	x.write(b.base, asBytes(words))
	x.fail(x.cuda.Do(func() error {
		for at := int64(piece); at+piece <= b.size; at += piece {
			if err := x.cuda.CopyOnDevice(b.at(at), b.base, piece, x.stream); err != nil {
				return err
			}
		}
		return x.cuda.StreamSynchronize(x.stream)
	}))
	return b.base
}

func (x *measurement) write(to cuda.DevicePtr, data []byte) {
	if len(x.errs) > 0 {
		return
	}
	u, err := x.newUploader(len(data))
	if err != nil {
		x.fail(err)
		return
	}
	x.fail(errors.Join(u.write(to, data), u.close()))
}

// upload is memory that holds values.
func upload[T any](x *measurement, s []T) cuda.DevicePtr {
	bytes := len(s) * int(unsafe.Sizeof(s[0]))
	p := x.random(bytes)
	x.write(p, unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), bytes))
	return p
}

// prepared is a kernel ready to be launched many times.
func prepared[P any](x *measurement, name string, params P, grid cuda.Dim3) func() error {
	spec, ok := launches()[name]
	if !ok {
		x.fail(fmt.Errorf("there is no kernel %s", name))
		return nil
	}
	f, err := x.function(name, spec.shared)
	x.fail(err)
	l := cuda.NewLaunch(f, unsafe.Sizeof(params))
	x.used = append(x.used, l)
	*cuda.Param[P](l, 0) = params
	l.Grid, l.Block, l.Shared, l.Stream = grid, cuda.Dim3{X: uint32(spec.threads)}, spec.shared, x.stream
	return func() error { return x.cuda.Launch(l) }
}

// time runs launches, which belong together, and notes how long they take.
func (x *measurement) time(kernel, shape string, bytes, flops float64, launches ...func() error) {
	if len(x.errs) > 0 {
		return
	}
	var elapsed float32
	err := x.cuda.Do(func() error {
		begin, err := x.cuda.EventCreate(true, false)
		if err != nil {
			return err
		}
		end, err := x.cuda.EventCreate(true, false)
		if err != nil {
			return errors.Join(err, x.cuda.EventDestroy(begin))
		}
		for i := range x.sizes.Repeats + 2 { // two to warm up
			if i == 2 {
				err = errors.Join(err, x.cuda.EventRecord(begin, x.stream))
			}
			for _, launch := range launches {
				err = errors.Join(err, launch())
			}
		}
		if err = errors.Join(err, x.cuda.EventRecord(end, x.stream), x.cuda.EventSynchronize(end)); err == nil {
			elapsed, err = x.cuda.EventElapsed(begin, end)
		}
		return errors.Join(err, x.cuda.EventDestroy(begin), x.cuda.EventDestroy(end))
	})
	if err != nil {
		x.fail(fmt.Errorf("%s %s: %w", kernel, shape, err))
		return
	}
	x.times = append(x.times, KernelTime{kernel, shape, time.Duration(float64(elapsed) * 1e6 / float64(x.sizes.Repeats)), bytes, flops})
}

// products of dense weights: the gate and up projections.
func (x *measurement) products() {
	z := x.sizes
	n, k, m := 2*z.FFN, z.Hidden, z.Prefill
	weights, in, out := x.random(2*n*k), x.random(2*m*k), x.random(2*m*n)
	p := gemmParams{Out: out, A: in, B: weights, N: int32(n), K: int32(k), LDA: int32(k), LDC: int32(n), OutKind: outBF16}
	wide := p
	wide.M = int32(m)
	flops := 2 * float64(m) * float64(n) * float64(k)
	bytes := 2 * float64(n*k+m*k+m*n)
	x.time("gemm_bf16_128", shapeText(m, n, k), bytes, flops, prepared(x, "gemm_bf16_128", wide, cuda.Dim3{X: ceil(n, 128), Y: ceil(m, 128)}))
	if x.blas != nil && len(x.errs) == 0 {
		work := x.random(int(x.hardware().workspace))
		q := cuda.Product{M: m, N: n, K: k, In: cuda.BFloat16, Out: cuda.BFloat16, Workspace: x.hardware().workspace}
		x.time("cuBLASLt", shapeText(m, n, k), bytes, flops, func() error {
			done, err := x.blas.run(q, out, in, weights, 0, work, x.stream)
			if err == nil && !done {
				err = errors.New("no algorithm")
			}
			return err
		})
	}
	for _, rows := range gemvSizes() {
		few := p
		few.M = int32(rows)
		name := fmt.Sprint("gemv_bf16_", rows)
		x.time(name, shapeText(rows, n, k), 2*float64(n*k+rows*(n+k)), 2*float64(rows)*float64(n)*float64(k), prepared(x, name, few, cuda.Dim3{X: ceil(n, 8)}))
	}
	for _, c := range []struct{ tile, rows, bn int }{{16, 16, 32}, {64, 64, 64}} {
		rows := min(c.rows, m)
		few := p
		few.M = int32(rows)
		name := fmt.Sprint("gemm_bf16_", c.tile)
		x.time(name, shapeText(rows, n, k), 2*float64(n*k+rows*(n+k)), 2*float64(rows)*float64(n)*float64(k),
			prepared(x, name, few, cuda.Dim3{X: ceil(n, c.bn), Y: ceil(rows, c.tile)}))
	}
}

// quantised products, of every type of blocks.
func (x *measurement) quantised() {
	z := x.sizes
	n, k, m := 2*z.FFN, z.Hidden, z.Prefill
	in, out := x.random(2*m*k), x.random(2*m*n)
	quants, scales := x.random(gemvRows*k), x.random(gemvRows*k/4)
	for _, t := range []tensor.DType{tensor.Q4_0, tensor.Q4_1, tensor.Q5_0, tensor.Q8_0, tensor.Q4_K, tensor.Q5_K, tensor.Q6_K} {
		size, err := t.Bytes(int64(n) * int64(k))
		x.fail(err)
		weights := x.random(int(size))
		one := gemvQParams{Out: out, Q: quants, DS: scales, B: weights, M: 1, N: int32(n), K: int32(k), LDC: int32(n), OutKind: outBF16}
		name := "gemv_" + typeName(t) + "_1"
		x.time(name, shapeText(1, n, k), float64(size)+float64(k+2*n), 2*float64(n)*float64(k), prepared(x, name, one, cuda.Dim3{X: ceil(n, 4)}))
		many := gemmParams{Out: out, A: in, B: weights, M: int32(m), N: int32(n), K: int32(k), LDA: int32(k), LDC: int32(n), OutKind: outBF16}
		name = "mmq_" + typeName(t) + "_bf16"
		x.time(name, shapeText(m, n, k), float64(size)+2*float64(m*(n+k)), 2*float64(m)*float64(n)*float64(k), prepared(x, name, many, cuda.Dim3{X: ceil(n, 64), Y: ceil(m, 64)}))
	}
}

// attention over caches of whole blocks: a prompt alone, and decodes at each context.
func (x *measurement) attention() {
	z := x.sizes
	const size = page
	part := size * z.KVHeads * z.Dim
	group, width := z.Heads/z.KVHeads, z.Heads*z.Dim
	params := func(rows, context, queries int) attnParams {
		per := (context + size - 1) / size
		start, blocks, query, lens := []int32{0}, []int32{}, []int32{0}, []int32{}
		for r := range rows {
			for i := range per {
				blocks = append(blocks, int32(r*per+i))
			}
			start, query, lens = append(start, int32(len(blocks))), append(query, int32((r+1)*queries)), append(lens, int32(context))
		}
		k := x.random(rows * per * 2 * part * 2)
		return attnParams{Out: x.random(2 * rows * queries * width), Q: x.random(2 * rows * queries * width), K: k, V: k.Add(int64(2 * part)),
			TableStart: upload(x, start), Blocks: upload(x, blocks), QueryStart: upload(x, query), SeqLens: upload(x, lens), BlockStride: int64(4 * part),
			Heads: int32(z.Heads), KVHeads: int32(z.KVHeads), Dim: int32(z.Dim), BlockSize: size, LDQ: int32(width), LDO: int32(width), Splits: 1, Scale: 0.1}
	}
	p := params(1, z.Prefill, z.Prefill)
	var work []int32
	for q := 0; q < z.Prefill; q += tileQueries(group) {
		work = append(work, 0, int32(q))
	}
	p.Work, p.N = upload(x, work), int32(len(work)/2)
	name, t := fmt.Sprint("attn_prefill_bf16_", z.Dim), float64(z.Prefill)
	x.time(name, fmt.Sprintf("1 x %d tokens, %d/%d heads", z.Prefill, z.Heads, z.KVHeads), 4*t*float64(width+z.KVHeads*z.Dim), 2*t*(t+1)*float64(width),
		prepared(x, name, p, cuda.Dim3{X: uint32(p.N), Y: uint32(z.KVHeads)}))
	n := &attentionNode{heads: z.Heads, kvHeads: z.KVHeads, dim: z.Dim}
	like := &plan{hw: x.hardware()}
	name = fmt.Sprint("attn_decode_bf16_", z.Dim)
	for _, context := range z.Contexts {
		for _, rows := range []int{1, z.Rows} {
			p := params(rows, context, 1)
			p.N, p.Splits = int32(rows), int32(like.splits(n, rows, context))
			p.Part = x.random(z.Heads * rows * int(p.Splits) * (z.Dim + 2) * 4)
			launches := []func() error{prepared(x, name, p, cuda.Dim3{X: uint32(blocksY(n)), Y: uint32(rows), Z: uint32(p.Splits)})}
			if p.Splits > 1 {
				launches = append(launches, prepared(x, "attn_merge_bf16", p, cuda.Dim3{X: uint32(z.Heads), Y: uint32(rows)}))
			}
			c := float64(rows) * float64(context)
			x.time(name, fmt.Sprintf("%d x context %d, %d splits", rows, context, p.Splits), 4*c*float64(z.KVHeads*z.Dim), 4*c*float64(width), launches...)
		}
	}
}

// rows are the kernels that only move: a residual's norm, and the gated activation.
func (x *measurement) rows() {
	z := x.sizes
	m := z.Prefill
	norm := normParams{Out: x.random(2 * m * z.Hidden), In: x.random(2 * m * z.Hidden), Residual: x.random(4 * m * z.Hidden), Weight: x.random(4 * z.Hidden),
		Rows: int32(m), Width: int32(z.Hidden), Eps: 1e-5, Alpha: 0.001}
	x.time("norm_bf16", fmt.Sprintf("residual + norm, %d x %d", m, z.Hidden), 12*float64(m)*float64(z.Hidden), 0, prepared(x, "norm_bf16", norm, cuda.Dim3{X: uint32(m)}))
	in := x.random(4 * m * z.FFN)
	gate := gatedParams{Out: x.random(2 * m * z.FFN), Gate: in, Up: in.Add(int64(2 * z.FFN)), Rows: int32(m), Width: int32(z.FFN), LD: int32(2 * z.FFN), LDO: int32(z.FFN), Act: int32(kernels.Silu)}
	x.time("gated_bf16", fmt.Sprintf("%d x %d", m, z.FFN), 6*float64(m)*float64(z.FFN), 0, prepared(x, "gated_bf16", gate, cuda.Dim3{X: ceil(z.FFN, 1024), Y: uint32(m)}))
}

// sampling with temperature and top-p. The logits are read once at least.
func (x *measurement) sampling() {
	z := x.sizes
	chunks := (z.Vocab + logitChunk - 1) / logitChunk
	rows := make([]sampleRow, z.Rows)
	for i := range rows {
		rows[i] = sampleRow{Seed: uint64(i), Temperature: 0.01, TopP: 0.9, Slot: int32(i)}
	}
	p := sampleParams{Logits: x.random(4 * z.Rows * z.Vocab), Work: x.random(4 * z.Rows * z.Vocab), Stats: x.random(chunkStatBytes * z.Rows * chunks), Row: upload(x, rows),
		IDs: x.random(64), Bias: x.random(64), Masks: x.random(64), Recent: x.random(4 * recentTokens * (z.Rows + 1)), Tokens: x.random(4 * z.Rows), Faults: x.random(4 * z.Rows),
		TopIDs: x.random(64), TopValues: x.random(64), Ranks: x.random(4 * z.Rows), Rows: int32(z.Rows), Vocab: int32(z.Vocab), Chunks: int32(chunks)}
	x.time("logits_process, sample", fmt.Sprintf("top-p 0.9, %d x %d", z.Rows, z.Vocab), 4*float64(z.Rows)*float64(z.Vocab), 0,
		prepared(x, "logits_process", p, cuda.Dim3{X: uint32(chunks), Y: uint32(z.Rows)}), prepared(x, "sample", p, cuda.Dim3{X: uint32(z.Rows)}))
}

func shapeText(m, n, k int) string { return fmt.Sprintf("%d x %d x %d", m, n, k) }
