package gpu

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cField is a field of a structure of src/abi.h, laid out by C's rules.
type cField struct {
	name         string
	offset, size int
}

// parseABI reads the structures of the header: fields of fixed types, pointers and arrays of them.
func parseABI(t *testing.T) map[string][]cField {
	t.Helper()
	raw, err := os.ReadFile("src/abi.h")
	require.NoError(t, err)
	text := regexp.MustCompile(`//[^\n]*`).ReplaceAllString(string(raw), "")
	sizes := map[string]int{"int32_t": 4, "uint32_t": 4, "float": 4, "int8_t": 1, "int64_t": 8, "uint64_t": 8, "double": 8, "void": 0, "struct ChunkStat": 0, "struct SampleRow": 0}
	out := map[string][]cField{}
	for _, s := range regexp.MustCompile(`(?s)struct (\w+) \{(.*?)\};`).FindAllStringSubmatch(text, -1) {
		at, widest := 0, 1
		for _, decl := range strings.Split(s[2], ";") {
			decl = strings.TrimSpace(strings.ReplaceAll(decl, "const ", ""))
			if decl == "" {
				continue
			}
			m := regexp.MustCompile(`^((?:struct )?\w+)(\*?) ?(.*)$`).FindStringSubmatch(decl)
			require.NotNil(t, m, decl)
			size, known := sizes[m[1]]
			require.True(t, known, "%s: type of %q", s[1], decl)
			for i, d := range strings.Split(m[3], ",") {
				d = strings.TrimSpace(d)
				pointer := strings.HasPrefix(d, "*") || i == 0 && m[2] == "*"
				d = strings.TrimPrefix(d, "*")
				f := cField{name: d, size: size}
				if pointer {
					f.size = 8
				}
				align := f.size
				if name, n, ok := strings.Cut(d, "["); ok {
					count, err := strconv.Atoi(strings.TrimSuffix(n, "]"))
					require.NoError(t, err)
					f.name, f.size = name, f.size*count
				}
				require.Positive(t, align, decl)
				at = (at + align - 1) / align * align
				f.offset = at
				at += f.size
				widest = max(widest, align)
				out[s[1]] = append(out[s[1]], f)
			}
		}
		out[s[1]] = append(out[s[1]], cField{"", (at + widest - 1) / widest * widest, 0})
	}
	return out
}

// The structures that Go fills are, field by field, those that the kernels read.
func TestParametersLieAsTheKernelsReadThem(t *testing.T) {
	header := parseABI(t)
	renamed := map[string]string{"kind": "outkind", "reserved": ""}
	for name, v := range map[string]any{"EmbedParams": embedParams{}, "NormParams": normParams{}, "GemmParams": gemmParams{}, "GemvQParams": gemvQParams{}, "QuantizeParams": quantizeParams{},
		"HeadsParams": headsParams{}, "AttnParams": attnParams{}, "GatedParams": gatedParams{}, "UnaryParams": unaryParams{}, "GatherParams": gatherParams{},
		"CopyBlocksParams": copyBlocksParams{}, "SampleRow": sampleRow{}, "SampleParams": sampleParams{}} {
		fields, ok := header[name]
		require.True(t, ok, name)
		typ := reflect.TypeOf(v)
		require.Equal(t, fields[len(fields)-1].offset, int(typ.Size()), "size of %s", name)
		i := 0
		for _, f := range fields[:len(fields)-1] {
			want := strings.ReplaceAll(f.name, "_", "")
			if r, ok := renamed[f.name]; ok {
				want = r
			}
			if want == "" {
				continue
			}
			for i < typ.NumField() && typ.Field(i).Name == "_" {
				i++
			}
			require.Less(t, i, typ.NumField(), "%s.%s", name, f.name)
			g := typ.Field(i)
			require.Equal(t, want, strings.ToLower(g.Name), "%s field %d", name, i)
			require.Equal(t, f.offset, int(g.Offset), "%s.%s", name, f.name)
			require.Equal(t, f.size, int(g.Type.Size()), "%s.%s", name, f.name)
			i++
		}
		for ; i < typ.NumField(); i++ {
			require.Equal(t, "_", typ.Field(i).Name, "%s has a field that the kernels do not know", name)
		}
	}
	stat := header["ChunkStat"]
	require.Equal(t, chunkStatBytes, stat[len(stat)-1].offset)
	raw, err := os.ReadFile("src/abi.h")
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		value int
	}{{"CHUNK", logitChunk}, {"MAX_LOGPROBS", maxLogprobs}, {"RECENT", recentTokens}, {"ROW_PROCESS", rowProcess}, {"ROW_ALLOWED", rowAllowed}, {"ROW_MASK", rowMask},
		{"ROW_LOGPROBS", rowLogprobs}, {"ROW_SKIP", rowSkip}, {"FAULT_NAN", faultNaN}, {"FAULT_NO_TOKEN", faultNoToken}, {"FAULT_INFINITE", faultInfinite}, {"OUT_ADD_F32", outAddF32}} {
		require.Regexp(t, `\b`+c.name+` = `+strconv.Itoa(c.value)+`\b`, string(raw))
	}
}
