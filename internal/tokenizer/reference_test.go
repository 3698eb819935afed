package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// corpus names the folder of third-party data; tests that need it are left out without it.
func corpus(t testing.TB) string {
	dir := os.Getenv("OMNI_TESTDATA")
	if dir == "" {
		t.Skip("OMNI_TESTDATA is not set: reference data is not at hand")
	}
	return dir
}

func readGzip(t testing.TB, path string) []byte {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

func readGzipJSON(t testing.TB, path string, into any) {
	require.NoError(t, json.Unmarshal(readGzip(t, path), into))
}

// idLists takes a list of id lists and a map from index to list.
type idLists map[int][]int32

func (l *idLists) UnmarshalJSON(b []byte) error {
	*l = idLists{}
	if b[0] == '[' {
		var all [][]int32
		if err := json.Unmarshal(b, &all); err != nil {
			return err
		}
		for i, ids := range all {
			(*l)[i] = ids
		}
		return nil
	}
	var all map[string][]int32
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for k, ids := range all {
		i, err := strconv.Atoi(k)
		if err != nil {
			return err
		}
		(*l)[i] = ids
	}
	return nil
}

// reference is what the reference implementation made of strings.json.
type reference struct {
	IDs         idLists        `json:"ids"`
	Keep        map[int]string `json:"decode_keep_special"` // where it differs from the text
	Skip        map[int]string `json:"decode_skip_special"` // where it differs from Keep
	WithSpecial idLists        `json:"with_special"`        // where they differ from IDs, of the first 400 and each 25th
}

func (r *reference) keep(i int, text string) string {
	if s, ok := r.Keep[i]; ok {
		return s
	}
	return text
}

func (r *reference) skip(i int, text string) string {
	if s, ok := r.Skip[i]; ok {
		return s
	}
	return r.keep(i, text)
}

// olderUnicode are strings with U+0EBA (a mark), U+061D and U+0A76 (punctuation), which the reference's WordPiece
// pipeline, whose Unicode tables are older than Go's, takes for ordinary characters.
var olderUnicode = []int{1302, 1624, 1629, 1728}

// holdToReference compares ids, ids with special tokens, both decodings and streams, on every string.
func holdToReference(t *testing.T, tok *Tokenizer, strs []string, ref reference) {
	require.NotEmpty(t, ref.IDs)
	if _, ok := tok.model.(*wordPiece); ok {
		for _, i := range olderUnicode {
			delete(ref.IDs, i)
		}
	}
	bad := 0
	wrong := func(what string, i int, want, got any) {
		if bad++; bad <= 5 {
			t.Errorf("%s of string %d %q: want %v, got %v", what, i, strs[i], want, got)
		}
	}
	for i, want := range ref.IDs {
		got, err := tok.Encode(strs[i], EncodeOptions{ParseSpecial: true})
		require.NoError(t, err)
		if !equalIDs(want, got) {
			wrong("ids", i, want, got)
		}
		if s := tok.Decode(want, false); s != ref.keep(i, strs[i]) {
			wrong("text", i, strconv.Quote(ref.keep(i, strs[i])), strconv.Quote(s))
		}
		if s := tok.Decode(want, true); s != ref.skip(i, strs[i]) {
			wrong("text without special tokens", i, strconv.Quote(ref.skip(i, strs[i])), strconv.Quote(s))
		}
		whole, ok := ref.WithSpecial[i]
		if !ok {
			continue
		}
		got, err = tok.Encode(strs[i], EncodeOptions{AddSpecial: true, ParseSpecial: true})
		require.NoError(t, err)
		if !equalIDs(whole, got) {
			wrong("ids with special tokens", i, whole, got)
		}
	}
	if bad > 0 {
		t.Errorf("%d of %d strings' results differ", bad, len(ref.IDs))
	}
}

func equalIDs(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// own are the tokenizers whose description is in testdata.
func own(t testing.TB) []string {
	refs, err := filepath.Glob("testdata/ref-*.json.gz")
	require.NoError(t, err)
	require.NotEmpty(t, refs)
	for i, r := range refs {
		refs[i] = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(r), "ref-"), ".json.gz")
	}
	return refs
}

func loadOwn(t testing.TB, name string) *Tokenizer {
	tok, err := FromJSON(readGzip(t, "testdata/"+name+".json.gz"), Config{})
	require.NoError(t, err)
	return tok
}

func TestSmallTokenizersEqualTheReference(t *testing.T) {
	var strs []string
	readGzipJSON(t, "testdata/strings.json.gz", &strs)
	for _, name := range own(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ref reference
			readGzipJSON(t, "testdata/ref-"+name+".json.gz", &ref)
			holdToReference(t, loadOwn(t, name), strs, ref)
		})
	}
}

func TestFurtherSmallTokenizersEqualTheReference(t *testing.T) {
	dir := filepath.Join(corpus(t), "textdata", "tokenizers")
	var strs []string
	readGzipJSON(t, filepath.Join(dir, "strings.json.gz"), &strs)
	refs, err := filepath.Glob(filepath.Join(dir, "mini", "ref-*.json.gz"))
	require.NoError(t, err)
	require.NotEmpty(t, refs)
	for _, path := range refs {
		name := strings.TrimPrefix(filepath.Base(path), "ref-")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok, err := FromJSON(readGzip(t, filepath.Join(dir, "mini", name)), Config{})
			require.NoError(t, err)
			var ref reference
			readGzipJSON(t, path, &ref)
			holdToReference(t, tok, strs, ref)
		})
	}
}

// TestRealTokenizersEqualTheReference reads NAME.json files from the folder named by OMNI_TOKENIZERS.
func TestRealTokenizersEqualTheReference(t *testing.T) {
	dir := filepath.Join(corpus(t), "textdata", "tokenizers")
	real := os.Getenv("OMNI_TOKENIZERS")
	if real == "" {
		t.Skip("OMNI_TOKENIZERS is not set: no folder of real tokenizers")
	}
	var strs []string
	readGzipJSON(t, filepath.Join(dir, "strings.json.gz"), &strs)
	files, err := filepath.Glob(filepath.Join(real, "*.json"))
	require.NoError(t, err)
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		refPath := filepath.Join(dir, "ref-"+name+".json.gz")
		if _, err := os.Stat(refPath); err != nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			tok, err := FromJSON(data, Config{})
			require.NoError(t, err)
			var ref reference
			readGzipJSON(t, refPath, &ref)
			holdToReference(t, tok, strs, ref)
		})
	}
}
