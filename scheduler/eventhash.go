package scheduler

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// HashAlgo names how block hashes in KV events are computed, as vLLM's --prefix-caching-hash-algo.
type HashAlgo string

// The supported algorithms.
const (
	SHA256     HashAlgo = "sha256"      // over Python's pickle, protocol 5
	SHA256CBOR HashAlgo = "sha256_cbor" // over canonical CBOR
)

// defaultHashSeed is the text that vLLM hashes into the first parent when PYTHONHASHSEED is not set.
const defaultHashSeed = "vllm-none-hash"

// extraKey is one extra key of a block: a tuple of strings.
type extraKey []string

// hasher computes vLLM's block hashes: H((parent, tokens, extra keys)).
type hasher struct {
	serialize func(buf []byte, parent []byte, tokens []int32, extra []extraKey) []byte
	none      []byte
	buf       []byte
}

func newHasher(algo HashAlgo, seed string) (*hasher, error) {
	if seed == "" {
		seed = defaultHashSeed
	}
	h := &hasher{}
	var text []byte
	switch algo {
	case SHA256:
		h.serialize, text = pickleBlock, pickleText(seed)
	case SHA256CBOR:
		h.serialize, text = cborBlock, cborText(nil, seed)
	default:
		return nil, fmt.Errorf("unsupported prefix caching hash algorithm %q (sha256 and sha256_cbor are known)", algo)
	}
	sum := sha256.Sum256(text)
	h.none = sum[:]
	return h, nil
}

// block hashes one block after its parent; parent nil is the start.
func (h *hasher) block(parent []byte, tokens []int32, extra []extraKey) []byte {
	if parent == nil {
		parent = h.none
	}
	h.buf = h.serialize(h.buf[:0], parent, tokens, extra)
	sum := sha256.Sum256(h.buf)
	return sum[:]
}

// pickler writes Python pickle, protocol 5, for the few shapes that block hashes are made of.
type pickler struct{ bytes.Buffer }

// memoize follows each text, byte string and tuple, as Python's pickler writes it.
func (p *pickler) memoize() { p.WriteByte(0x94) }

func (p *pickler) int(v int64) {
	switch {
	case v >= 0 && v < 1<<8:
		p.Write([]byte{'K', byte(v)})
	case v >= 0 && v < 1<<16:
		p.WriteByte('M')
		p.Write(binary.LittleEndian.AppendUint16(nil, uint16(v)))
	default:
		p.WriteByte('J')
		p.Write(binary.LittleEndian.AppendUint32(nil, uint32(v)))
	}
}

func (p *pickler) text(s string) {
	if len(s) < 256 {
		p.Write([]byte{0x8c, byte(len(s))})
	} else {
		p.WriteByte('X')
		p.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(s))))
	}
	p.WriteString(s)
	p.memoize()
}

// tuple writes a tuple's end; short ones have an opcode of their own, longer ones a mark in front.
func (p *pickler) tuple(n int, items func()) {
	if n > 3 {
		p.WriteByte('(')
	}
	items()
	switch n {
	case 1, 2, 3:
		p.WriteByte(0x84 + byte(n))
	default:
		p.WriteByte('t')
	}
	p.memoize()
}

// framed is the pickle: a frame holds everything but the two bytes of the protocol; a content under 4 bytes would have no frame.
func (p *pickler) framed(dst []byte) []byte {
	p.WriteByte('.')
	dst = append(dst, 0x80, 5, 0x95)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(p.Len()))
	return append(dst, p.Bytes()...)
}

func pickleText(s string) []byte {
	var p pickler
	p.text(s)
	return p.framed(nil)
}

func pickleBlock(dst, parent []byte, tokens []int32, extra []extraKey) []byte {
	var p pickler
	p.tuple(3, func() {
		p.Write([]byte{'C', byte(len(parent))})
		p.Write(parent)
		p.memoize()
		p.tuple(len(tokens), func() {
			for _, t := range tokens {
				p.int(int64(t))
			}
		})
		if len(extra) == 0 {
			p.WriteByte('N')
			return
		}
		p.tuple(len(extra), func() {
			for _, k := range extra {
				p.tuple(len(k), func() {
					for _, s := range k {
						p.text(s)
					}
				})
			}
		})
	})
	return p.framed(dst)
}

func cborHead(dst []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

func cborText(dst []byte, s string) []byte { return append(cborHead(dst, 3, uint64(len(s))), s...) }

func cborBlock(dst, parent []byte, tokens []int32, extra []extraKey) []byte {
	dst = cborHead(dst, 4, 3)
	dst = append(cborHead(dst, 2, uint64(len(parent))), parent...)
	dst = cborHead(dst, 4, uint64(len(tokens)))
	for _, t := range tokens {
		if t < 0 {
			dst = cborHead(dst, 1, uint64(-1-int64(t)))
		} else {
			dst = cborHead(dst, 0, uint64(t))
		}
	}
	if len(extra) == 0 {
		return append(dst, 0xf6)
	}
	dst = cborHead(dst, 4, uint64(len(extra)))
	for _, k := range extra {
		dst = cborHead(dst, 4, uint64(len(k)))
		for _, s := range k {
			dst = cborText(dst, s)
		}
	}
	return dst
}
