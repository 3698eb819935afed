package hub

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// fetchFile brings one file of the commit into the snapshot. A commit never changes: a file that is there is right.
func (r *resolver) fetchFile(ctx context.Context, commit, name string) error {
	if r.cache.has(commit, name) {
		return nil
	}
	b, err := r.client.head(ctx, r.id.Repo, commit, name)
	if err != nil {
		return err
	}
	unlock, err := r.cache.lock(ctx, b.etag)
	if err != nil {
		return err
	}
	defer unlock()
	path := r.cache.blob(b.etag)
	if info, err := os.Stat(path); err != nil || b.size >= 0 && info.Size() != b.size {
		t := &transfer{resolver: r, commit: commit, name: name, blob: b, path: path + ".incomplete"}
		if err := t.run(ctx); err != nil {
			return err
		}
		if err := os.Rename(t.path, path); err != nil {
			return storing(path, err)
		}
	}
	return r.cache.link(commit, name, b.etag)
}

// transfer fills blobs/ETAG.incomplete, over as many connections as it takes.
type transfer struct {
	*resolver
	commit, name string
	blob         blob
	path         string

	file *os.File
	sum  hash.Hash // of the file so far
	done int64
	last time.Time // of the last progress call
}

func (t *transfer) run(ctx context.Context) (err error) {
	if err := t.open(); err != nil {
		return err
	}
	defer func() {
		if closing := t.file.Close(); err == nil && closing != nil {
			err = storing(t.path, closing)
		}
	}()
	resumed := t.done > 0
	for {
		if err := t.client.retry(ctx, func() (bool, error) { return t.attempt(ctx) }); err != nil {
			return fmt.Errorf("download %s: %w", t.name, err)
		}
		err := t.verify()
		if err == nil {
			break
		}
		if restart := t.restart(); restart != nil {
			return errors.Join(err, restart)
		}
		if !resumed { // bytes that an earlier run left may be the wrong ones: those get a second chance
			return fmt.Errorf("download %s: %w", t.name, err)
		}
		resumed = false
	}
	if err := t.file.Sync(); err != nil {
		return storing(t.path, err)
	}
	t.report(true)
	return nil
}

// open takes up what an earlier run left; its bytes are hashed again.
func (t *transfer) open() error {
	file, err := os.OpenFile(t.path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return storing(t.path, err)
	}
	t.file, t.sum = file, sha256.New()
	if t.done, err = io.Copy(t.sum, file); err != nil {
		_ = file.Close()
		return fmt.Errorf("read %s: %w", t.path, err)
	}
	if t.blob.size >= 0 && t.done > t.blob.size {
		if err := t.restart(); err != nil {
			_ = file.Close()
			return err
		}
	}
	return nil
}

func (t *transfer) restart() error {
	if err := t.file.Truncate(0); err != nil {
		return storing(t.path, err)
	}
	if _, err := t.file.Seek(0, io.SeekStart); err != nil {
		return storing(t.path, err)
	}
	t.sum.Reset()
	t.done = 0
	return nil
}

// attempt asks for the bytes that are missing and stores what comes; it says whether any came.
func (t *transfer) attempt(ctx context.Context) (progressed bool, err error) {
	if t.blob.size >= 0 && t.done == t.blob.size {
		return true, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	header := http.Header{}
	if t.done > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", t.done))
	}
	response, err := t.client.follow(ctx, http.MethodGet, t.client.resolveURL(t.id.Repo, t.commit, t.name), header, true)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if err := t.accept(response); err != nil {
		return false, err
	}
	before := t.done
	silent := &retryableError{err: fmt.Errorf("%w: no byte for %s", ErrUnreachable, t.options.Stall), wanted: true}
	watchdog := time.AfterFunc(t.options.Stall, func() { cancel(silent) })
	defer watchdog.Stop()
	err = t.copy(response.Body, func() { watchdog.Reset(t.options.Stall) })
	var broken *readError
	if errors.As(err, &broken) {
		return t.done > before, t.client.unreached(ctx, broken.err)
	}
	if err == nil && t.blob.size >= 0 && t.done < t.blob.size {
		err = &retryableError{err: fmt.Errorf("%w: the connection ended after %d of %d bytes", ErrUnreachable, t.done, t.blob.size), wanted: true}
	}
	return t.done > before, err
}

// accept judges the answer's status and from where its bytes begin.
func (t *transfer) accept(r *http.Response) error {
	switch r.StatusCode {
	case http.StatusOK: // the server does not resume, or was not asked to
		if t.done > 0 {
			return t.restart()
		}
		return nil
	case http.StatusPartialContent:
		var from int64
		if _, err := fmt.Sscanf(r.Header.Get("Content-Range"), "bytes %d-", &from); err != nil || from != t.done {
			return errors.Join(t.restart(), &retryableError{wanted: true,
				err: fmt.Errorf("%w: asked from byte %d, got %q", ErrUnreachable, t.done, r.Header.Get("Content-Range"))})
		}
		return nil
	case http.StatusRequestedRangeNotSatisfiable: // what is here is not a beginning of the file
		if t.done > 0 {
			return errors.Join(t.restart(), &retryableError{err: fmt.Errorf("%w: range refused", ErrUnreachable), wanted: true})
		}
	}
	if err := t.client.statusError(r, "download"); err != nil {
		return err
	}
	return fmt.Errorf("unexpected HTTP status %s", r.Status)
}

// readError marks a failure of the connection, as against one of the disk.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

func (t *transfer) copy(body io.Reader, alive func()) error {
	buffer := make([]byte, 256<<10)
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			alive()
			if t.blob.size >= 0 && t.done+int64(n) > t.blob.size {
				return errors.Join(t.restart(), fmt.Errorf("%w: more than the %d bytes announced", ErrCorrupt, t.blob.size))
			}
			if _, err := t.file.Write(buffer[:n]); err != nil {
				return storing(t.path, err)
			}
			_, _ = t.sum.Write(buffer[:n]) // never fails
			t.done += int64(n)
			t.report(false)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &readError{err}
		}
	}
}

func (t *transfer) verify() error {
	want := t.blob.sha256()
	if got := hex.EncodeToString(t.sum.Sum(nil)); want != "" && got != want {
		return fmt.Errorf("%w: SHA-256 %s, the hub says %s", ErrCorrupt, got, want)
	}
	return nil
}

func (t *transfer) report(end bool) {
	now := time.Now()
	if t.options.Progress == nil || !end && now.Sub(t.last) < 100*time.Millisecond {
		return
	}
	t.last = now
	t.progress.Lock()
	defer t.progress.Unlock()
	size := t.blob.size
	if end {
		size = t.done
	}
	t.options.Progress(Progress{File: t.name, Done: t.done, Size: size})
}

// lock keeps others, huggingface_hub included, from fetching the same blob at the same time.
func (c cache) lock(ctx context.Context, etag string) (unlock func(), err error) {
	path := filepath.Join(c.root, ".locks", filepath.Base(c.dir), etag+".lock")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, storing(path, err)
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, storing(path, err)
	}
	for {
		got, err := tryLock(file)
		if err != nil {
			_ = file.Close()
			return nil, storing(path, err)
		}
		if got {
			return func() { _ = file.Close() }, nil // closing lets go
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
