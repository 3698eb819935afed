package hub

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// choice is what to fetch of a model: facts first, then weights, so that weights in place mean that all is.
type choice struct {
	facts, weights []string
	gguf           string // the one to open, of a GGUF model
}

// choose picks the files that serving needs out of a model's.
func choose(id ID, names []string) (choice, error) {
	if id.File != "" {
		return chooseGGUF(id, names)
	}
	var c choice
	pipeline := slices.Contains(names, "model_index.json") // its components lie in folders
	folders := map[string][]string{}
	for _, name := range names {
		dir, base := path.Split(name)
		depth := strings.Count(name, "/")
		switch {
		case depth > 1, depth == 1 && !pipeline && dir != "additional_chat_templates/":
		case strings.HasSuffix(base, ".safetensors"):
			folders[dir] = append(folders[dir], base)
		case isFact(base):
			c.facts = append(c.facts, name)
		}
	}
	for dir, weights := range folders {
		for _, base := range chooseWeights(weights) {
			c.weights = append(c.weights, dir+base)
		}
	}
	slices.Sort(c.facts)
	slices.Sort(c.weights)
	if len(c.weights) > 0 {
		if !pipeline && !slices.Contains(c.facts, "config.json") {
			return c, fmt.Errorf("%w: %s has weights but no config.json", ErrUnsupported, id)
		}
		return c, nil
	}
	return chooseGGUF(id, names)
}

func isFact(base string) bool {
	switch path.Ext(base) {
	case ".json":
		return !strings.HasSuffix(base, ".bin.index.json")
	case ".jinja", ".model", ".tiktoken":
		return true
	}
	return base == "merges.txt" || base == "vocab.txt"
}

// chooseWeights picks one folder's checkpoint: the single file before shards, the plain one before its variants (fp16) and
// before the consolidated copy that some publishers add.
func chooseWeights(bases []string) []string {
	for _, single := range []string{"model.safetensors", "diffusion_pytorch_model.safetensors"} {
		if slices.Contains(bases, single) {
			return []string{single}
		}
	}
	plain := slices.DeleteFunc(slices.Clone(bases), func(base string) bool {
		stem := strings.TrimSuffix(base, ".safetensors")
		return strings.HasPrefix(base, "consolidated") || strings.HasSuffix(stem, ".fp16") || strings.Contains(stem, ".fp16-")
	})
	if len(plain) > 0 {
		return plain
	}
	return bases
}

func chooseGGUF(id ID, names []string) (choice, error) {
	sets := map[string][]string{} // by the file to open: a split model is one set
	split := regexp.MustCompile(`^(.*)-\d{5}(-of-\d{5}\.gguf)$`)
	for _, name := range names {
		if !strings.HasSuffix(name, ".gguf") {
			continue
		}
		first := name
		if m := split.FindStringSubmatch(name); m != nil {
			first = m[1] + "-00001" + m[2]
		}
		sets[first] = append(sets[first], name)
	}
	var found []string
	for first, parts := range sets {
		if id.File == "" && !isProjector(first) || slices.Contains(parts, id.File) ||
			id.File != "" && !strings.HasSuffix(id.File, ".gguf") && strings.Contains(strings.ToLower(first), strings.ToLower(id.File)) && !isProjector(first) {
			found = append(found, first)
		}
	}
	slices.Sort(found)
	switch {
	case len(found) == 1:
		parts := sets[found[0]]
		slices.Sort(parts)
		return choice{weights: parts, gguf: found[0]}, nil
	case len(found) > 1:
		return choice{}, fmt.Errorf("%w: %s has several GGUF files; name one as %s:FILE out of %s",
			ErrUnsupported, id, id.Repo, strings.Join(found, ", "))
	case id.File != "":
		return choice{}, fmt.Errorf("%w: model %s has no file %q", ErrNotFound, id.Repo, id.File)
	}
	return choice{}, fmt.Errorf("%w: %s has neither safetensors nor GGUF weights%s", ErrUnsupported, id, insteadOf(names))
}

// isProjector recognises the vision or audio half that accompanies some GGUF models: it is never the model.
func isProjector(name string) bool {
	return strings.HasPrefix(strings.ToLower(path.Base(name)), "mmproj")
}

func insteadOf(names []string) string {
	for _, name := range names {
		switch ext := path.Ext(name); ext {
		case ".bin", ".pt", ".pth", ".ckpt", ".onnx", ".h5", ".msgpack":
			return fmt.Sprintf(" but %s files, which are not read", ext)
		}
	}
	return ""
}
