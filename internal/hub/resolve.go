package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Resolve gives the local path of a hub model, org/name[@revision][:file.gguf]: the snapshot's folder, or of a GGUF model the
// file to open. A complete model in the cache is taken without asking the hub unless Refresh is set; else what is missing is
// downloaded into the cache. Interrupted downloads are taken up where they ended. Errors wrap one of this package's Err values.
func Resolve(ctx context.Context, id string, o Options) (string, error) {
	parsed, err := ParseID(id)
	if err != nil {
		return "", err
	}
	o = o.withDefaults()
	c, err := newClient(o)
	if err != nil {
		return "", err
	}
	defer o.Client.CloseIdleConnections()
	r := &resolver{client: c, cache: openCache(o.CacheDir, parsed.Repo), id: parsed, options: o}
	found, missing, err := r.cached()
	if err != nil {
		return "", err
	}
	if found != "" && (o.Offline || !o.Refresh) {
		return found, nil
	}
	if o.Offline {
		return "", fmt.Errorf("model %s: %w: HF_HUB_OFFLINE is set and %s", parsed, ErrOffline, missing)
	}
	fetched, err := r.fetch(ctx)
	if found != "" && errors.Is(err, ErrUnreachable) {
		return found, nil // refreshing is a wish; the model that is here serves
	}
	return fetched, err
}

type resolver struct {
	client  *client
	cache   cache
	id      ID
	options Options

	progress sync.Mutex
}

// cached gives the path of a complete model in the cache, or else why there is none.
func (r *resolver) cached() (found, missing string, err error) {
	commit, err := r.cache.commit(r.id.Revision)
	if err != nil {
		return "", "", err
	}
	if commit == "" {
		return "", fmt.Sprintf("the cache %s does not have it", r.cache.root), nil
	}
	names, err := r.cache.names(commit)
	if err != nil {
		return "", "", fmt.Errorf("read the hub cache: %w", err)
	}
	chosen, err := choose(r.id, names)
	if err != nil { // an incomplete snapshot; what the model really lacks, the hub's listing will say
		return "", fmt.Sprintf("the cache %s has only a part of it", r.cache.root), nil
	}
	for _, name := range append(chosen.facts, chosen.weights...) {
		if !r.cache.has(commit, name) {
			return "", fmt.Sprintf("the cache %s lacks its %s", r.cache.root, name), nil
		}
		if absent := r.absentShard(commit, name, chosen); absent != "" {
			return "", fmt.Sprintf("the cache %s lacks its %s", r.cache.root, absent), nil
		}
	}
	return r.path(commit, chosen), "", nil
}

// absentShard names a file that a checkpoint's index or a split file's name announces and the snapshot lacks.
func (r *resolver) absentShard(commit, name string, chosen choice) string {
	parts := splitParts(name)
	if chosen.gguf != "" {
		parts = splitParts(chosen.gguf)
	}
	for _, part := range parts {
		if !r.cache.has(commit, part) {
			return part
		}
	}
	if matched, _ := path.Match("*.safetensors.index.json", path.Base(name)); !matched {
		return ""
	}
	dir, base := path.Split(name)
	if r.cache.has(commit, dir+base[:len(base)-len(".index.json")]) {
		return "" // the single file comes before shards
	}
	raw, err := os.ReadFile(r.cache.pointer(commit, name))
	if err != nil {
		return name
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(raw, &index) != nil {
		return "" // the reader of the checkpoint will tell
	}
	for _, shard := range index.WeightMap {
		if checkName(shard) == nil && !r.cache.has(commit, dir+shard) {
			return dir + shard
		}
	}
	return ""
}

// splitParts lists the files of which name, STEM-00001-of-00003.EXTENSION, is one; of another file, itself.
func splitParts(name string) []string {
	m := regexp.MustCompile(`^(.*)-\d{5}-of-(\d{5})(\.gguf|\.safetensors)$`).FindStringSubmatch(name)
	if m == nil {
		return []string{name}
	}
	count, _ := strconv.Atoi(m[2]) // five digits
	parts := make([]string, count)
	for i := range parts {
		parts[i] = fmt.Sprintf("%s-%05d-of-%05d%s", m[1], i+1, count, m[3])
	}
	return parts
}

func (r *resolver) path(commit string, chosen choice) string {
	if chosen.gguf != "" {
		return r.cache.pointer(commit, chosen.gguf)
	}
	return r.cache.snapshot(commit)
}

func (r *resolver) fetch(ctx context.Context) (string, error) {
	listing, err := r.client.list(ctx, r.id)
	if err != nil {
		return "", err
	}
	names, sizes := make([]string, len(listing.Files)), map[string]int64{}
	for i, f := range listing.Files {
		names[i], sizes[f.Name] = f.Name, f.Size
	}
	chosen, err := choose(r.id, names)
	if err != nil {
		return "", err
	}
	if err := r.cache.tag(); err != nil {
		return "", err
	}
	if err := r.room(listing.Commit, chosen, sizes); err != nil {
		return "", err
	}
	for _, files := range [][]string{chosen.facts, chosen.weights} {
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(r.options.Parallel)
		for _, name := range files {
			group.Go(func() error { return r.fetchFile(within, listing.Commit, name) })
		}
		if err := group.Wait(); err != nil {
			return "", fmt.Errorf("fetch model %s: %w", r.id, err)
		}
	}
	if err := r.cache.setRef(r.id.Revision, listing.Commit); err != nil {
		return "", err
	}
	return r.path(listing.Commit, chosen), nil
}

// room refuses to begin what cannot end: the sizes that the listing gave exceed the disk's free space.
func (r *resolver) room(commit string, chosen choice, sizes map[string]int64) error {
	var needed int64
	for _, name := range append(append([]string{}, chosen.facts...), chosen.weights...) {
		if !r.cache.has(commit, name) {
			needed += max(sizes[name], 0)
		}
	}
	free, ok := freeBytes(r.cache.dir)
	needed -= incompleteBytes(filepath.Join(r.cache.dir, "blobs"))
	if ok && needed > free {
		return fmt.Errorf("fetch model %s: %w: %d MB are needed in %s, %d MB are free; set HF_HOME to a larger disk",
			r.id, ErrDiskFull, needed/1e6, r.cache.root, free/1e6)
	}
	return nil
}

// incompleteBytes is what interrupted downloads have stored already.
func incompleteBytes(dir string) (total int64) {
	paths, _ := filepath.Glob(filepath.Join(dir, "*.incomplete")) // the pattern is well-formed
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			total += info.Size()
		}
	}
	return total
}
