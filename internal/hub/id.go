package hub

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
)

// ID names a model on the hub, or one file of it.
type ID struct {
	Repo     string // "org/name", or "name" for the hub's oldest models
	Revision string // branch, tag or commit; "main" when not given
	File     string // a GGUF file, or a part of its name such as "Q4_K_M"; empty for the whole model
}

// ParseID reads org/name[@revision][:file.gguf].
func ParseID(s string) (ID, error) {
	id := ID{Repo: s, Revision: "main"}
	if repo, file, ok := strings.Cut(id.Repo, ":"); ok {
		if file == "" || checkName(file) != nil {
			return ID{}, fmt.Errorf("model id %q: %q does not name a file of the model", s, file)
		}
		id.Repo, id.File = repo, file
	}
	if repo, revision, ok := strings.Cut(id.Repo, "@"); ok {
		if revision == "" || checkName(revision) != nil {
			return ID{}, fmt.Errorf("model id %q: %q is not a revision", s, revision)
		}
		id.Repo, id.Revision = repo, revision
	}
	// The hub's own rule: 96 characters of letters, digits, "-", "_" and ".", no "--" or "..", no "-" or "." at an end.
	segment := `[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?`
	valid := regexp.MustCompile(`^(?:` + segment + `/)?` + segment + `$`)
	if len(id.Repo) > 96 || !valid.MatchString(id.Repo) || strings.Contains(id.Repo, "--") || strings.Contains(id.Repo, "..") ||
		strings.HasSuffix(id.Repo, ".git") {
		return ID{}, fmt.Errorf("model id %q is neither a folder here nor of the form org/name[@revision][:file.gguf]", s)
	}
	return id, nil
}

func (id ID) String() string {
	s := id.Repo
	if id.Revision != "main" {
		s += "@" + id.Revision
	}
	if id.File != "" {
		s += ":" + id.File
	}
	return s
}

// checkName refuses a name that could lead out of the folder it is joined to: names come from a server or a user.
func checkName(name string) error {
	bad := name == "" || len(name) > 1024 || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' })
	for part := range strings.SplitSeq(name, "/") {
		bad = bad || part == "" || part == "." || part == ".."
	}
	if bad || !filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("name %q is refused: it could lead outside of the model's folder", name)
	}
	return nil
}
