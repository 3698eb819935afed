package scheduler

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBlockHashesAreVLLMs(t *testing.T) {
	b, err := os.ReadFile("testdata/hash_vectors.json")
	require.NoError(t, err)
	var f struct {
		Seed  string `json:"none_hash_seed"`
		Cases []struct {
			Algo      HashAlgo `json:"algo"`
			BlockSize int      `json:"block_size"`
			Tokens    []int32  `json:"tokens"`
			Salt      string   `json:"cache_salt"`
			None      string   `json:"none_hash"`
			First     string   `json:"first_block_serialized"`
			Hashes    []string `json:"hashes"`
		} `json:"cases"`
	}
	require.NoError(t, json.Unmarshal(b, &f))
	require.NotEmpty(t, f.Cases)
	for _, c := range f.Cases {
		h, err := newHasher(c.Algo, f.Seed)
		require.NoError(t, err)
		require.Equal(t, c.None, hex.EncodeToString(h.none))
		var extra []extraKey
		if c.Salt != "" {
			extra = []extraKey{{"cache_salt", c.Salt}}
		}
		require.Equal(t, c.First, hex.EncodeToString(h.serialize(nil, h.none, c.Tokens[:c.BlockSize], extra)), "%s", c.Algo)
		var parent []byte
		for i, want := range c.Hashes {
			parent = h.block(parent, c.Tokens[i*c.BlockSize:(i+1)*c.BlockSize], extra)
			extra = nil
			require.Equal(t, want, hex.EncodeToString(parent), "%s block %d", c.Algo, i)
		}
	}
}

func TestUnknownHashAlgorithmIsRefused(t *testing.T) {
	_, err := newHasher("xxhash", "")
	require.ErrorContains(t, err, `unsupported prefix caching hash algorithm "xxhash"`)
}
