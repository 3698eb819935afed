package hub

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestIDsParse(t *testing.T) {
	for text, want := range map[string]ID{
		"org/name":                 {"org/name", "main", ""},
		"gpt2":                     {"gpt2", "main", ""},
		"org/name@v1.0":            {"org/name", "v1.0", ""},
		"org/name@refs/pr/3":       {"org/name", "refs/pr/3", ""},
		"org/name:Q4_K_M":          {"org/name", "main", "Q4_K_M"},
		"o/n@b:sub/m-Q4.gguf":      {"o/n", "b", "sub/m-Q4.gguf"},
		"Qwen/Qwen2.5-0.5B_x.y-z1": {"Qwen/Qwen2.5-0.5B_x.y-z1", "main", ""},
	} {
		got, err := ParseID(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got)
		again, err := ParseID(got.String())
		require.NoError(t, err)
		assert.Equal(t, want, again)
	}
	for _, text := range []string{"", "/", "a/b/c", "../x", "a/..", "./x", "a b", "a/b@", "a/b@../x", "a/b:", "a/b:../x.gguf", "a/b:/x", "a--b/c", "-a/b", "a/b.git",
		"a/b\x00", "https://host/a", "a/" + string(make([]byte, 97))} {
		_, err := ParseID(text)
		assert.Error(t, err, "%q", text)
	}
}

func TestFilesForServingAreChosen(t *testing.T) {
	for name, c := range map[string]struct {
		id             string
		names          []string
		facts, weights []string
		err            error
	}{
		"usual": {"o/n", []string{".gitattributes", "README.md", "LICENSE", "config.json", "generation_config.json", "tokenizer.json", "tokenizer.model",
			"merges.txt", "notes.txt", "chat_template.jinja", "additional_chat_templates/tool.jinja", "model.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json", "original/params.json"},
			[]string{"additional_chat_templates/tool.jinja", "chat_template.jinja", "config.json", "generation_config.json", "merges.txt", "tokenizer.json", "tokenizer.model"},
			[]string{"model.safetensors"}, nil},
		"shards and a consolidated copy": {"o/n", []string{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "consolidated.safetensors"},
			[]string{"config.json", "model.safetensors.index.json"}, []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, nil},
		"diffusion pipeline": {"o/n", []string{"model_index.json", "vae/config.json", "vae/diffusion_pytorch_model.safetensors", "vae/diffusion_pytorch_model.fp16.safetensors",
			"text_encoder/config.json", "text_encoder/model-00001-of-00001.safetensors", "scheduler/scheduler_config.json", "assets/deep/x.json"},
			[]string{"model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json", "vae/config.json"},
			[]string{"text_encoder/model-00001-of-00001.safetensors", "vae/diffusion_pytorch_model.safetensors"}, nil},
		"safetensors before GGUF": {"o/n", []string{"config.json", "model.safetensors", "m.gguf"}, []string{"config.json"}, []string{"model.safetensors"}, nil},
		"only a GGUF":             {"o/n", []string{"config.json", "m.gguf", "mmproj.gguf"}, nil, []string{"m.gguf"}, nil},
		"only .bin":               {"o/n", []string{"config.json", "pytorch_model.bin"}, nil, nil, ErrUnsupported},
		"no config":               {"o/n", []string{"model.safetensors"}, nil, nil, ErrUnsupported},
		"nothing":                 {"o/n", nil, nil, nil, ErrUnsupported},
		"ambiguous":               {"o/n:q4", []string{"m-q4_0.gguf", "m-q4_1.gguf"}, nil, nil, ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := ParseID(c.id)
			require.NoError(t, err)
			got, err := choose(id, c.names)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.facts, got.facts)
			assert.Equal(t, c.weights, got.weights)
		})
	}
}

func FuzzParseID(f *testing.F) {
	for _, s := range []string{"org/name@rev:file.gguf", "../x", "a/b:..", "a@b@c", ":", "@"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseID(s)
		if err != nil {
			return
		}
		if folderName(id.Repo) == "models--" || checkName(folderName(id.Repo)) != nil || checkName(id.Revision) != nil {
			t.Fatalf("%q leads elsewhere: %+v", s, id)
		}
	})
}

func FuzzParseListing(f *testing.F) {
	f.Add([]byte(`{"sha":"0123456789abcdef0123456789abcdef01234567","siblings":[{"rfilename":"config.json","size":3,"lfs":{"sha256":"x"}}]}`))
	f.Add([]byte(`{"sha":"0123456789abcdef0123456789abcdef01234567","siblings":[{"rfilename":"../x"},{"rfilename":"a/b.safetensors"}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := parseListing(raw)
		if err != nil {
			return
		}
		var names []string
		for _, file := range l.Files {
			names = append(names, file.Name)
		}
		c, err := choose(ID{Repo: "o/n", Revision: "main"}, names)
		if err != nil {
			return
		}
		for _, name := range append(c.facts, c.weights...) {
			if checkName(name) != nil {
				t.Fatalf("%q was chosen", name)
			}
		}
	})
}
