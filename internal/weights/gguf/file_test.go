package gguf

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"omni-engine/internal/tensor"
)

// recorded is what the Python package gguf 0.19.0 reads from testdata/plain-al64.gguf, which it also wrote.
type recorded struct {
	Name, Type, SHA256 string
	Shape              []int
}

func readRecorded(t *testing.T) []recorded {
	raw, err := os.ReadFile("testdata/tensors.json")
	require.NoError(t, err)
	var want []recorded
	require.NoError(t, json.Unmarshal(raw, &want))
	require.Len(t, want, 7)
	return want
}

func assertTensors(t *testing.T, f *File) {
	var names []string
	for _, want := range readRecorded(t) {
		v, err := f.Tensor(want.Name)
		require.NoError(t, err)
		assert.Equal(t, want.Type, v.DType.String(), want.Name)
		assert.Equal(t, want.Shape, v.Shape, want.Name)
		sum := sha256.Sum256(v.Data)
		assert.Equal(t, want.SHA256, hex.EncodeToString(sum[:]), want.Name)
		names = append(names, want.Name)
	}
	assert.Equal(t, names, f.Names())
}

func open(t *testing.T, path string) *File {
	f, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}

func TestTensorsAreViewedAsTheReferenceReadsThem(t *testing.T) {
	f := open(t, "testdata/plain-al64.gguf")
	assertTensors(t, f)
	require.NoError(t, f.DropPages())
	assertTensors(t, f) // views outlive dropped pages

	_, err := f.Tensor("absent")
	assert.ErrorIs(t, err, ErrNoTensor)
	assert.Equal(t, "llama", f.Architecture())
	assert.EqualValues(t, 3, f.Version)
}

func TestSplitModelOpensFromAnyPart(t *testing.T) {
	for _, part := range []string{"1", "2", "3"} {
		f := open(t, "testdata/split-0000"+part+"-of-00003.gguf")
		assertTensors(t, f)
		assert.Equal(t, "llama", f.Architecture(), "metadata is the first part's")
	}
}

func TestSplitModelWithAWrongPartIsRefused(t *testing.T) {
	dir := t.TempDir()
	copyTo := func(from, to string) {
		src, err := os.Open(filepath.Join("testdata", from))
		require.NoError(t, err)
		defer src.Close()
		dst, err := os.Create(filepath.Join(dir, to))
		require.NoError(t, err)
		_, err = io.Copy(dst, src)
		require.NoError(t, err)
		require.NoError(t, dst.Close())
	}
	refused := func(name, why string) {
		_, err := Open(filepath.Join(dir, name))
		assert.ErrorContains(t, err, why)
	}
	copyTo("split-00001-of-00003.gguf", "m-00001-of-00003.gguf")
	refused("m-00001-of-00003.gguf", "part 2 of 3") // missing
	copyTo("split-00003-of-00003.gguf", "m-00002-of-00003.gguf")
	copyTo("split-00003-of-00003.gguf", "m-00003-of-00003.gguf")
	refused("m-00001-of-00003.gguf", "expected part 2 of 3")
	refused("m-00002-of-00003.gguf", "says within that it is part 3 of 3")
	copyTo("split-00001-of-00003.gguf", "renamed.gguf")
	refused("renamed.gguf", "-00001-of-00003.gguf")
}

func TestMetadataKeepsEveryType(t *testing.T) {
	m := open(t, "testdata/plain-al64.gguf").Meta
	for key, want := range map[string]any{
		"t.u8": uint8(200), "t.i8": int8(-3), "t.u16": uint16(60000), "t.i16": int16(-300), "t.u32": uint32(4e9),
		"t.i32": int32(-70000), "t.u64": uint64(1<<63 + 5), "t.i64": int64(-1 << 40), "t.f32": float32(0.1), "t.f64": 0.1,
		"t.yes": true, "t.no": false, "t.str": "grüße ☃", "t.ints": []int32{1, -2, 3}, "t.floats": []float32{0.5, -1.25},
		"t.strs": []string{"", "a", "ééé"}, "t.bools": []bool{true, false}, "t.nested": []any{[]int32{1, 2}, []int32{3}},
	} {
		got, ok := m.Value(key)
		assert.True(t, ok, key)
		assert.Equal(t, want, got, key)
	}
	assert.Equal(t, "general.architecture", m.Keys()[0])
	assert.Len(t, m.Keys(), 31)
}

func TestMetadataGettersConvertOnlyWhatFits(t *testing.T) {
	m := open(t, "testdata/plain-al64.gguf").Meta
	n, ok := m.Int("t.u8")
	assert.True(t, ok)
	assert.EqualValues(t, 200, n)
	_, ok = m.Int("t.u64")
	assert.False(t, ok, "does not fit")
	_, ok = m.Int("t.f32")
	assert.False(t, ok)
	x, ok := m.Float("t.i8")
	assert.True(t, ok)
	assert.EqualValues(t, -3, x)
	list, ok := m.Ints("t.ints")
	assert.True(t, ok)
	assert.Equal(t, []int64{1, -2, 3}, list)
	list, ok = m.Ints("t.bools")
	assert.True(t, ok)
	assert.Equal(t, []int64{1, 0}, list)
	_, ok = m.Ints("t.strs")
	assert.False(t, ok)
	_, ok = m.String("absent")
	assert.False(t, ok)
}

func TestVocabularyGathersTheTokenizersFacts(t *testing.T) {
	v, err := open(t, "testdata/plain-al64.gguf").Vocab()
	require.NoError(t, err)
	yes, no := true, false
	assert.Equal(t, Vocab{
		Model: "gpt2", Pre: "smollm", Tokens: []string{"<s>", "</s>", "a", "b", "ab"}, Scores: []float32{0, 0, -1, -2, -3},
		Types: []int32{3, 3, 1, 1, 1}, Merges: []string{"a b"}, BOS: 0, EOS: 1, UNK: NoToken, PAD: NoToken, SEP: NoToken,
		MASK: NoToken, EOT: NoToken, EOM: NoToken, AddBOS: &yes, AddSpacePrefix: &no, ChatTemplate: "{{ x }}",
	}, v)
}

func TestVocabularyThatContradictsItselfIsRefused(t *testing.T) {
	base := map[string]any{"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": []string{"a", "b"}}
	for _, c := range []struct {
		key   string
		value any
		why   string
	}{
		{"tokenizer.ggml.scores", []float32{1}, "1 scores for 2 tokens"},
		{"tokenizer.ggml.scores", []int32{1, 2}, "[]int32"},
		{"tokenizer.ggml.token_type", []int32{1, 1, 1}, "3 token types for 2 tokens"},
		{"tokenizer.ggml.bos_token_id", uint32(2), "outside the vocabulary of 2"},
		{"tokenizer.ggml.tokens", []string{}, "no tokenizer.ggml.tokens"},
		{"tokenizer.ggml.model", uint8(1), "no tokenizer.ggml.model"},
	} {
		values := map[string]any{}
		for k, v := range base {
			values[k] = v
		}
		values[c.key] = c.value
		_, err := vocabOf(Metadata{values: values})
		assert.ErrorContains(t, err, c.why)
	}
	base["tokenizer.ggml.eos_token_id"] = uint32(1<<32 - 1)
	v, err := vocabOf(Metadata{values: base})
	require.NoError(t, err)
	assert.Equal(t, NoToken, v.EOS, "the unsigned -1 names no token")
}

func TestWrongFilesAreRefusedWithTheReason(t *testing.T) {
	huge := uint64(1) << 60
	for name, c := range map[string]struct {
		b   *builder
		why string
	}{
		"empty":                {&builder{}, "file ends at byte 0"},
		"magic":                {&builder{b: []byte("GGML\x03\x00\x00\x00")}, "not a GGUF file"},
		"version 1":            {(&builder{b: []byte("GGUF")}).u32(1).u64(0), "version 1 is not supported"},
		"big-endian":           {(&builder{b: []byte("GGUF")}).u32(3 << 24).u64(0), "big-endian"},
		"giant tensor count":   {header(huge, 0), "the tensor count is 1152921504606846976"},
		"giant metadata count": {header(0, huge), "the metadata count"},
		"giant string":         {header(0, 1).u64(huge).u64(0), "a metadata key, which needs"},
		"giant array":          {header(0, 1).str("k").u32(typeArray).u32(typeU8).u64(huge), "an array's length is"},
		"giant string array":   {header(0, 1).str("k").u32(typeArray).u32(typeString).u64(4).u64(0), "an array's length is 4"},
		"deep nesting":         {deep(5), "nested deeper"},
		"value type":           {header(0, 1).str("k").u32(13).u64(0), "unknown value type 13"},
		"array element type":   {header(0, 1).str("k").u32(typeArray).u32(99).u64(0), "unknown array element type 99"},
		"boolean":              {header(0, 1).str("k").u32(typeBool).u32(2), "boolean with byte value 2"},
		"empty key":            {header(0, 1).kvU32("", 1), "key of 0 bytes"},
		"key twice":            {header(0, 2).kvU32("k", 1).kvU32("k", 2), `"k" occurs twice`},
		"alignment 0":          {header(0, 1).kvU32("general.alignment", 0), "not a power of two"},
		"alignment 48":         {header(0, 1).kvU32("general.alignment", 48), "not a power of two"},
		"alignment type":       {header(0, 1).str("general.alignment").u32(typeU64).u64(32), "is a uint64"},
		"tensor twice":         {header(2, 0).tensor("w", 0, 0, 8).tensor("w", 0, 32, 8).data(64), `tensor "w" occurs twice`},
		"five dimensions":      {header(1, 0).tensor("w", 0, 0, 1, 1, 1, 1, 1).data(4), "5 dimensions"},
		"huge dimension":       {header(1, 0).tensor("w", 0, 0, 1<<63).data(4), "dimension 0"},
		"overflowing shape":    {header(1, 0).tensor("w", 0, 0, 1<<40, 1<<40).data(4), "overflows"},
		"overflowing size":     {header(1, 0).tensor("w", 28, 0, 1<<60).data(4), "overflows"},
		"unsupported type":     {header(1, 0).tensor("w", 20, 0, 32).data(64), "IQ4_NL is not supported"},
		"unknown type":         {header(1, 0).tensor("w", 77, 0, 32).data(64), "unknown element type 77"},
		"partial block":        {header(1, 0).tensor("w", 2, 0, 16, 2).data(64), "do not fill Q4_0 blocks"},
		"misaligned":           {header(1, 0).tensor("w", 0, 4, 8).data(64), "not a multiple of the alignment"},
		"beyond the end":       {header(1, 0).tensor("w", 0, 32, 8).data(63), "beyond the file's end"},
		"offset beyond":        {header(1, 0).tensor("w", 0, 1<<62, 8).data(64), "beyond the file's end"},
		"overlap":              {header(2, 0).tensor("v", 0, 0, 9).tensor("w", 0, 32, 8).data(64), `"v" and "w" overlap`},
		"split numbers":        {header(0, 2).kvU32("split.no", 2).kvU32("split.count", 2), "not below split.count"},
		"split count":          {header(0, 1).kvU32("split.count", 1<<20), "out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Open(c.b.file(t))
			require.ErrorContains(t, err, c.why)
			assert.Nil(t, f)
		})
	}
}

func deep(levels int) *builder {
	b := header(0, 1).str("k").u32(typeArray)
	for range levels {
		b.u32(typeArray).u64(1)
	}
	return b.u32(typeU8).u64(0)
}

func TestFileCutAnywhereIsRefused(t *testing.T) {
	whole, err := os.ReadFile("testdata/plain-al64.gguf")
	require.NoError(t, err)
	// The last tensor's 24 bytes are followed by padding, which readers do not need.
	end := len(whole)
	for end > 0 && whole[end-1] == 0 {
		end--
	}
	for n := range end {
		_, err := parse(slices.Clip(whole[:n]))
		require.Error(t, err, "cut at byte %d", n)
	}
}

func TestEmptyAndScalarTensorsAreAllowed(t *testing.T) {
	f := open(t, header(3, 0).tensor("none", 0, 0, 0).tensor("one", 0, 0).tensor("two", 0, 32, 2).data(40).file(t))
	for name, shape := range map[string][]int{"none": {0}, "one": {}, "two": {2}} {
		v, err := f.Tensor(name)
		require.NoError(t, err)
		assert.Equal(t, shape, v.Shape)
		assert.Equal(t, tensor.F32, v.DType)
	}
	onlyMeta := open(t, header(0, 1).kvU32("k", 1).file(t))
	assert.Empty(t, onlyMeta.Names())
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"plain-al64.gguf", "split-00002-of-00003.gguf"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(header(1, 1).kvU32("general.alignment", 1).tensor("w", 2, 0, 32, 2).data(36).b)
	f.Add(deep(3).b)
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parse(data)
		if err != nil {
			return
		}
		for _, tensor := range p.tensors {
			if n, err := tensor.view.DType.Bytes(elems(tensor.view.Shape)); err != nil || n != int64(len(tensor.view.Data)) {
				t.Fatalf("tensor %q %v: %d bytes, want %d (%v)", tensor.name, tensor.view.Shape, len(tensor.view.Data), n, err)
			}
		}
		_, _ = vocabOf(p.meta)
		_, _ = splitOf(p.meta)
	})
}

func elems(shape []int) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= int64(d)
	}
	return n
}
