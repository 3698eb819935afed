package gguf_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/weights/gguf"
	"omni-engine/internal/weights/quant"
)

// The hashes were made with the Python package gguf 0.19.0: over every tensor in file order, its name, its row-major shape and
// its little-endian float32 values. Between them the two models hold Q4_1, Q5_0, Q8_0, Q4_K, Q6_K and F32.
func TestRealModelsDequantiseBitForBitAsTheReference(t *testing.T) {
	for _, c := range []struct {
		env, hash string
		tokens    int
	}{
		{"OMNI_MODEL_SMOLLM2", "e26137f27317388dae693c9de82a9f4db385886b69c6368bebddcc6501bb3fd2", 49152},
		{"OMNI_MODEL_GEMMA3", "27ed74ff35c0252ad90d58a4ee24387c1eb0459fb940b3d0b3375a1678f19085", 262144},
	} {
		t.Run(c.env, func(t *testing.T) {
			path := os.Getenv(c.env)
			if os.Getenv("OMNI_LONG") == "" || path == "" {
				t.Skipf("set OMNI_LONG=1 and %s to the file that scripts/model.sh fetches", c.env)
			}
			f, err := gguf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			v, err := f.Vocab()
			require.NoError(t, err)
			assert.Len(t, v.Tokens, c.tokens)
			sum := sha256.New()
			for _, name := range f.Names() {
				view, err := f.Tensor(name)
				require.NoError(t, err)
				values, err := quant.Float32s(view)
				require.NoError(t, err)
				fmt.Fprintf(sum, "%s %v", name, view.Shape)
				require.NoError(t, binary.Write(sum, binary.LittleEndian, values))
			}
			assert.Equal(t, c.hash, hex.EncodeToString(sum.Sum(nil)))
		})
	}
}
