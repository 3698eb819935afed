package tokenizer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// prose is ordinary text: the licence-free strings are too odd to stand for it.
const prose = `The ferry left twice a day in summer and, once the storms began, whenever the captain thought it wise. Nobody on the
island complained about the timetable: people who wanted certainty had moved to the mainland years ago. It's 42 km away.

	func main() { for i := 0; i < 10; i++ { fmt.Println("line", i) } }
`

func benchText() string {
	var strs strings.Builder
	for i := range 200 {
		strs.WriteString(prose)
		strs.WriteString(strings.Repeat("word", i%3))
	}
	return strs.String()
}

func BenchmarkEncode(b *testing.B) {
	text := benchText()
	for _, name := range own(b) {
		b.Run(name, func(b *testing.B) {
			tok := loadOwn(b, name)
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				_, err := tok.Encode(text, EncodeOptions{ParseSpecial: true})
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkReal measures loading and encoding of the real tokenizers in OMNI_TOKENIZERS, on prose and on text without
// repetition (the perplexity text).
func BenchmarkReal(b *testing.B) {
	dir := os.Getenv("OMNI_TOKENIZERS")
	if dir == "" {
		b.Skip("OMNI_TOKENIZERS is not set: no folder of real tokenizers")
	}
	var strs []string
	readGzipJSON(b, "testdata/strings.json.gz", &strs)
	odd := strings.Join(strs, "\n")
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(b, err)
	for _, path := range files {
		data, err := os.ReadFile(path)
		require.NoError(b, err)
		tok, err := FromJSON(data, Config{})
		require.NoError(b, err)
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		b.Run(name+"/load", func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				_, err := FromJSON(data, Config{})
				require.NoError(b, err)
			}
		})
		for kind, text := range map[string]string{"prose": benchText(), "odd": odd} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				for b.Loop() {
					_, err := tok.Encode(text, EncodeOptions{ParseSpecial: true})
					require.NoError(b, err)
				}
			})
		}
	}
}

func BenchmarkStream(b *testing.B) {
	tok := loadOwn(b, "smollm2")
	ids, err := tok.Encode(benchText(), EncodeOptions{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		s := tok.NewStream(nil, true, true)
		for _, id := range ids {
			s.Push(id)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ids)), "ns/token")
}
