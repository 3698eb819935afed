package hub

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
)

// What Resolve's errors wrap, to tell them apart.
var (
	ErrOffline     = errors.New("offline")
	ErrNotFound    = errors.New("not found on the hub")
	ErrNoAccess    = errors.New("no access")
	ErrDiskFull    = errors.New("disk full")
	ErrUnreachable = errors.New("hub not reached")
	ErrCorrupt     = errors.New("downloaded file is corrupt")
	ErrUnsupported = errors.New("unsupported model files")
)

// statusError turns a refusal into words; nil when the status is a success or a redirect.
func (c *client) statusError(r *http.Response, what string) error {
	said := r.Header.Get("X-Error-Message")
	if said != "" {
		said = " (the hub says: " + strings.TrimSpace(said) + ")"
	}
	switch code := r.Header.Get("X-Error-Code"); {
	case r.StatusCode < 400:
		return nil
	case code == "GatedRepo" || r.StatusCode == http.StatusForbidden:
		return fmt.Errorf("%s: %w: the model is gated: accept its terms on its hub page, then set HF_TOKEN to a token of that account%s",
			what, ErrNoAccess, said)
	case r.StatusCode == http.StatusUnauthorized && c.token == "":
		// The hub answers 401, not 404, to anonymous requests for what does not exist.
		return fmt.Errorf("%s: %w: no such public model; if it is private or gated, set HF_TOKEN%s", what, ErrNoAccess, said)
	case r.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s: %w: the token (HF_TOKEN) is not valid or may not read this model%s", what, ErrNoAccess, said)
	case code == "RevisionNotFound":
		return fmt.Errorf("%s: %w: the model has no such revision%s", what, ErrNotFound, said)
	case r.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w: check the name%s", what, ErrNotFound, said)
	}
	return &retryableError{err: fmt.Errorf("%s: %w: HTTP status %s%s", what, ErrUnreachable, r.Status, said),
		wanted: retryable(r.StatusCode), after: r.Header.Get("Retry-After")}
}

func retryable(status int) bool {
	return status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
}

// retryableError is a failure that may pass: a broken connection, an overloaded server.
type retryableError struct {
	err    error
	wanted bool   // false: trying again is no use
	after  string // the Retry-After header
}

func (e *retryableError) Error() string { return e.err.Error() }
func (e *retryableError) Unwrap() error { return e.err }

// storing explains a failure to write into the cache.
func storing(path string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("store %s: %w: free some space or set HF_HOME to a larger disk: %w", path, ErrDiskFull, err)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("store %s: the cache may not be written: set HF_HOME to a folder that is yours: %w", path, err)
	}
	return fmt.Errorf("store %s: %w", path, err)
}
