// Command mkhf makes a Hugging Face model folder out of a GGUF file, for tests that compare with programs that read only such
// folders: the weights dequantised into model.safetensors, config.json, and the tokenizer with the GGUF's own pre-tokenizer.
// It knows the llama architecture with a byte-level BPE vocabulary (SmolLM2) and gemma3 with a SentencePiece one.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"omni-engine/internal/tensor"
	"omni-engine/internal/weights/gguf"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mkhf:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("mkhf", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: mkhf [-dtype f32|f16|bf16] MODEL.gguf OUTDIR [-dtype f32|f16|bf16]")
		flags.PrintDefaults()
	}
	name := flags.String("dtype", "f32", "element type of the weights: f32, f16 or bf16")
	var names []string
	for rest := args; ; { // flags may stand after the names too
		if err := flags.Parse(rest); err != nil {
			return err
		}
		if flags.NArg() == 0 {
			break
		}
		names = append(names, flags.Arg(0))
		rest = flags.Args()[1:]
	}
	if len(names) != 2 {
		flags.Usage()
		return errors.New("a GGUF file and a folder are needed")
	}
	d, ok := map[string]tensor.DType{"f32": tensor.F32, "f16": tensor.F16, "bf16": tensor.BF16}[*name]
	if !ok {
		return fmt.Errorf("dtype %q is none of f32, f16, bf16", *name)
	}
	return convert(names[0], names[1], d)
}

// convert writes the folder's files; the weights come last, so that a folder with weights is whole.
func convert(path, dir string, d tensor.DType) (err error) {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	arch, err := architectureOf(f)
	if err != nil {
		return err
	}
	vocab, err := f.Vocab()
	if err != nil {
		return err
	}
	files, err := tokenizerFiles(vocab, arch.maxPositions())
	if err != nil {
		return err
	}
	if files["config.json"], err = arch.config(vocab, d); err != nil {
		return err
	}
	files["generation_config.json"] = generationConfig(vocab)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := writeJSON(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return writeWeights(filepath.Join(dir, "model.safetensors"), f, arch, d)
}

func writeJSON(path string, content any) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(content); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
