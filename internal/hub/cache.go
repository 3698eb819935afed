package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// cache is one model's folder in huggingface_hub's layout: refs/REVISION holds a commit, snapshots/COMMIT/FILE links to
// blobs/ETAG.
type cache struct {
	root string // all models
	dir  string // this model
}

func openCache(root, repo string) cache {
	return cache{root: root, dir: filepath.Join(root, folderName(repo))}
}

func folderName(repo string) string { return "models--" + strings.ReplaceAll(repo, "/", "--") }

// commit is what the cache knows the revision to be; empty when it does not know it.
func (c cache) commit(revision string) (string, error) {
	if isCommit(revision) {
		return revision, nil
	}
	raw, err := os.ReadFile(filepath.Join(c.dir, "refs", filepath.FromSlash(revision)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read the hub cache: %w", err)
	}
	commit := strings.TrimSpace(string(raw))
	if !isCommit(commit) {
		return "", fmt.Errorf("read the hub cache: refs/%s does not hold a commit", revision)
	}
	return commit, nil
}

func (c cache) snapshot(commit string) string { return filepath.Join(c.dir, "snapshots", commit) }
func (c cache) blob(etag string) string       { return filepath.Join(c.dir, "blobs", etag) }
func (c cache) pointer(commit, name string) string {
	return filepath.Join(c.snapshot(commit), filepath.FromSlash(name))
}

// has reports whether a snapshot's file is there in full: a link whose blob is gone is not.
func (c cache) has(commit, name string) bool {
	info, err := os.Stat(c.pointer(commit, name))
	return err == nil && info.Mode().IsRegular()
}

// names lists a snapshot's files, with slashes.
func (c cache) names(commit string) ([]string, error) {
	root, names := c.snapshot(commit), []string(nil)
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err == nil {
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// link makes a snapshot's file out of a blob; where links cannot be made the file is a hard link or a copy.
func (c cache) link(commit, name, etag string) error {
	pointer := c.pointer(commit, name)
	if err := os.MkdirAll(filepath.Dir(pointer), 0o755); err != nil {
		return storing(pointer, err)
	}
	target, err := filepath.Rel(filepath.Dir(pointer), c.blob(etag))
	if err != nil {
		return storing(pointer, err)
	}
	// Through another name, so that a reader never finds half of it.
	temporary := fmt.Sprintf("%s.%d.link", pointer, os.Getpid())
	_ = os.Remove(temporary)
	if err := os.Symlink(target, temporary); err != nil {
		if err = os.Link(c.blob(etag), temporary); err != nil {
			return storing(pointer, err)
		}
	}
	if err := os.Rename(temporary, pointer); err != nil {
		_ = os.Remove(temporary)
		return storing(pointer, err)
	}
	return nil
}

// setRef remembers what a branch or tag is. It is written last: a revision with a ref was complete once.
func (c cache) setRef(revision, commit string) error {
	if isCommit(revision) {
		return nil
	}
	path := filepath.Join(c.dir, "refs", filepath.FromSlash(revision))
	if raw, err := os.ReadFile(path); err == nil && string(raw) == commit {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return storing(path, err)
	}
	// Through another file, which lies among the blobs: every file in refs counts as a revision.
	temporary, err := os.CreateTemp(filepath.Join(c.dir, "blobs"), "ref-*.incomplete")
	if err != nil {
		return storing(path, err)
	}
	_, err = temporary.WriteString(commit)
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
		return storing(path, err)
	}
	return nil
}

// tag marks the cache for backup programs, as huggingface_hub does (CACHEDIR.TAG convention).
func (c cache) tag() error {
	if err := os.MkdirAll(filepath.Join(c.dir, "blobs"), 0o755); err != nil {
		return storing(c.dir, err)
	}
	path := filepath.Join(c.root, "CACHEDIR.TAG")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.WriteFile(path, []byte("Signature: 8a477f597d28d172789f06886806bc55\n"), 0o644); err != nil {
		return storing(path, err)
	}
	return nil
}
