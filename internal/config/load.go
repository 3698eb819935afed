package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Origin says where a value came from.
type Origin string

// The origins, in falling precedence.
const (
	FromFlag    Origin = "flag"
	FromEnv     Origin = "environment"
	FromFile    Origin = "file"
	FromDefault Origin = "default"
)

// Loader fills a Serve from flags, environment and file.
type Loader struct {
	serve   Serve
	opts    []option
	origins map[string]Origin
}

// NewLoader returns a loader with the defaults.
func NewLoader() *Loader {
	l := &Loader{serve: Default(), origins: map[string]Origin{}}
	l.opts = options(&l.serve)
	return l
}

// Register adds the flags to fs; names may be spelled with underscores, as in vLLM.
func (l *Loader) Register(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	for _, o := range l.opts {
		f := fs.VarPF(o.value, o.name, "", o.help)
		if o.value.kind == "bool" {
			f.NoOptDefVal = "true"
		}
		if o.neg {
			n := fs.VarPF(negated(o.value), "no-"+o.name, "", "the opposite of --"+o.name)
			n.NoOptDefVal, n.Hidden = "true", true
		}
	}
}

func negated(v value) value {
	return value{func(s string) error {
		if strings.EqualFold(s, "false") {
			return v.set("true")
		}
		return v.set("false")
	}, v.get, v.kind, false}
}

// Load completes the configuration after fs was parsed: args may name the model. All errors come at once.
func (l *Loader) Load(fs *pflag.FlagSet, args []string, getenv func(string) string) (*Serve, error) {
	var errs []error
	for _, o := range l.opts {
		if fs.Changed(o.name) || (o.neg && fs.Changed("no-"+o.name)) {
			l.origins[o.name] = FromFlag
		}
	}
	if len(args) > 1 {
		errs = append(errs, fmt.Errorf("one model can be served, got %q", args))
	}
	if len(args) == 1 {
		l.serve.Model, l.origins["model"] = args[0], FromFlag
	}
	errs = append(errs, l.fromEnv(getenv)...)
	if l.serve.File != "" {
		errs = append(errs, l.fromFile(l.serve.File)...)
	}
	l.serve.TokensByDevice, l.serve.SeqsByDevice = l.origins["max-num-batched-tokens"] == "", l.origins["max-num-seqs"] == ""
	errs = append(errs, check(&l.serve)...)
	return &l.serve, errors.Join(errs...)
}

func (l *Loader) fromEnv(getenv func(string) string) (errs []error) {
	for _, o := range l.opts {
		if l.origins[o.name] != "" {
			continue
		}
		for _, name := range o.env {
			if s := getenv(name); s != "" {
				if err := o.value.Set(s); err != nil {
					errs = append(errs, fmt.Errorf("environment %s: %w", name, err))
				}
				l.origins[o.name] = FromEnv
				break
			}
		}
	}
	return errs
}

func (l *Loader) fromFile(path string) []error {
	data, err := os.ReadFile(path)
	if err != nil {
		return []error{fmt.Errorf("--config: %w", err)}
	}
	var entries map[string]yaml.Node
	if err := yaml.Unmarshal(data, &entries); err != nil {
		return []error{fmt.Errorf("--config %s: %w", path, err)}
	}
	var errs []error
	for key, node := range entries {
		name := strings.ReplaceAll(key, "_", "-")
		i := slices.IndexFunc(l.opts, func(o option) bool { return o.name == name })
		if i < 0 || name == "config" {
			errs = append(errs, fmt.Errorf("--config %s, line %d: %w", path, node.Line, unknown(name)))
			continue
		}
		if l.origins[name] != "" {
			continue
		}
		l.origins[name] = FromFile
		if err := setNode(l.opts[i].value, &node); err != nil {
			errs = append(errs, fmt.Errorf("--config %s, line %d, %s: %w", path, node.Line, key, err))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

func setNode(v value, n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode && v.multi {
		for _, e := range n.Content {
			if err := v.Set(e.Value); err != nil {
				return err
			}
		}
		return nil
	}
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("needs one value")
	}
	return v.Set(n.Value)
}

// Print writes every value with its origin.
func (l *Loader) Print(w io.Writer) error {
	for _, o := range l.opts {
		origin := l.origins[o.name]
		if origin == "" {
			origin = FromDefault
		}
		shown := o.value.String()
		if o.name == "api-key" && shown != "" {
			shown = "(set)"
		}
		if _, err := fmt.Fprintf(w, "%-36s %-28s # %s\n", o.name+":", shown, origin); err != nil {
			return err
		}
	}
	return nil
}
