package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxListing bounds the answer to a listing; the largest public repositories stay below a tenth.
const maxListing = 64 << 20

// client speaks the hub's protocol. Redirects are followed by hand: the token goes to the endpoint's host alone.
type client struct {
	http     *http.Client
	endpoint *url.URL
	token    string
	retries  int
	delay    time.Duration
	retrying func(error, time.Duration)
}

func newClient(o Options) (*client, error) {
	u, err := url.Parse(o.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("hub endpoint %q (HF_ENDPOINT) is not an http or https address", o.Endpoint)
	}
	byHand := *o.Client
	byHand.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client{http: &byHand, endpoint: u, token: o.Token, retries: o.Retries, delay: o.RetryDelay, retrying: o.Retrying}, nil
}

// listing is a revision's commit and its files; Size and SHA256 are known of large files only, and not from every server.
type listing struct {
	Commit string   `json:"sha"`
	Files  []listed `json:"siblings"`
}

type listed struct {
	Name string `json:"rfilename"`
	Size int64  `json:"size"`
	LFS  *struct {
		SHA256 string `json:"sha256"`
	} `json:"lfs"`
}

func (c *client) list(ctx context.Context, id ID) (l listing, err error) {
	what := fmt.Sprintf("look up model %s", ID{Repo: id.Repo, Revision: id.Revision})
	address := c.endpoint.JoinPath("api", "models", id.Repo, "revision")
	address.RawPath = address.EscapedPath() + "/" + url.PathEscape(id.Revision)
	address.Path += "/" + id.Revision
	address.RawQuery = "blobs=true"
	err = c.retry(ctx, func() (progressed bool, err error) {
		r, err := c.follow(ctx, http.MethodGet, address, nil, true)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		defer r.Body.Close()
		if err := c.statusError(r, what); err != nil {
			return false, err
		}
		raw, err := io.ReadAll(io.LimitReader(r.Body, maxListing+1))
		switch {
		case err != nil:
			return false, &retryableError{err: fmt.Errorf("%s: %w: %w", what, ErrUnreachable, err), wanted: true}
		case len(raw) > maxListing:
			return false, fmt.Errorf("%s: the answer exceeds %d bytes", what, maxListing)
		}
		l, err = parseListing(raw)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		return true, nil
	})
	return l, err
}

// parseListing checks the server's answer: every name is refused that could lead out of the model's folder.
func parseListing(raw []byte) (l listing, err error) {
	if err := json.Unmarshal(raw, &l); err != nil {
		return listing{}, fmt.Errorf("the answer is not a hub's (is HF_ENDPOINT right?): %w", err)
	}
	if !isCommit(l.Commit) {
		return listing{}, fmt.Errorf("the answer has no commit (is HF_ENDPOINT right?): %q", l.Commit)
	}
	for _, f := range l.Files {
		if err := checkName(f.Name); err != nil {
			return listing{}, fmt.Errorf("the hub lists a file whose %w", err)
		}
	}
	return l, nil
}

func isCommit(s string) bool { return regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(s) }

// blob is what a HEAD request tells of a file.
type blob struct {
	etag string
	size int64 // -1: not said
}

// sha256 is the content's hash when the etag is one, as for every LFS file; else empty.
func (b blob) sha256() string {
	if regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(b.etag) {
		return b.etag
	}
	return ""
}

func (c *client) resolveURL(repo, commit, name string) *url.URL {
	return c.endpoint.JoinPath(repo, "resolve", commit).JoinPath(strings.Split(name, "/")...)
}

func (c *client) head(ctx context.Context, repo, commit, name string) (b blob, err error) {
	what := fmt.Sprintf("look up %s of model %s", name, repo)
	err = c.retry(ctx, func() (bool, error) {
		// A redirect to another host ends here: its headers describe the file behind it.
		r, err := c.follow(ctx, http.MethodHead, c.resolveURL(repo, commit, name), nil, false)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		_ = r.Body.Close()
		if err := c.statusError(r, what); err != nil {
			return false, err
		}
		b, err = blobOf(r, commit)
		if err != nil {
			return false, fmt.Errorf("%s: %w", what, err)
		}
		return true, nil
	})
	return b, err
}

func blobOf(r *http.Response, commit string) (blob, error) {
	if got := r.Header.Get("X-Repo-Commit"); got != "" && got != commit {
		return blob{}, fmt.Errorf("the server answers for commit %q, not %s", got, commit)
	}
	b := blob{etag: r.Header.Get("X-Linked-Etag"), size: -1}
	if b.etag == "" {
		b.etag = r.Header.Get("ETag")
	}
	b.etag = strings.Trim(strings.TrimPrefix(b.etag, "W/"), `"`)
	if !regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`).MatchString(b.etag) { // it names a file of the cache
		return blob{}, fmt.Errorf("the server's etag %q is not usable (is HF_ENDPOINT right?)", b.etag)
	}
	size := r.Header.Get("X-Linked-Size")
	if size == "" && r.StatusCode < 300 {
		size = r.Header.Get("Content-Length")
	}
	if n, err := strconv.ParseInt(size, 10, 64); err == nil && n >= 0 {
		b.size = n
	}
	return b, nil
}

// follow sends a request and follows redirects: within the host always, to another only when across is set, without the token.
func (c *client) follow(ctx context.Context, method string, address *url.URL, header http.Header, across bool) (*http.Response, error) {
	for range 10 {
		r, err := c.send(ctx, method, address, header)
		if err != nil {
			return nil, err
		}
		location := r.Header.Get("Location")
		if r.StatusCode < 300 || r.StatusCode >= 400 || location == "" {
			return r, nil
		}
		next, err := address.Parse(location)
		if err != nil {
			_ = r.Body.Close()
			return nil, fmt.Errorf("redirect to %q: %w", location, err)
		}
		if !across && (next.Host != address.Host || next.Scheme != address.Scheme) {
			return r, nil
		}
		_ = r.Body.Close()
		if next.Scheme != "https" && (next.Scheme != "http" || address.Scheme == "https") {
			return nil, fmt.Errorf("redirect from %s to %s is refused", address.Scheme, next.Scheme)
		}
		address = next
	}
	return nil, errors.New("more than 10 redirects")
}

func (c *client) send(ctx context.Context, method string, address *url.URL, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, address.String(), nil)
	if err != nil {
		return nil, err
	}
	for key, values := range header {
		request.Header[key] = values
	}
	request.Header.Set("Accept-Encoding", "identity") // sizes and ranges are those of the file itself
	request.Header.Set("User-Agent", "omni-engine")
	if c.token != "" && address.Host == c.endpoint.Host && address.Scheme == c.endpoint.Scheme {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	r, err := c.http.Do(request)
	if err != nil {
		return nil, c.unreached(ctx, err)
	}
	return r, nil
}

// unreached wraps a transport failure; one that our own caller caused is not worth another try.
func (c *client) unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// The error's URL may be a signed one: it is as good as a password.
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	return &retryableError{err: fmt.Errorf("%w at %s (network, proxy or HF_ENDPOINT?): %w", ErrUnreachable, c.endpoint.Host, err), wanted: true}
}

// retry calls try until it succeeds, fails for good, or fails often in a row without progress.
func (c *client) retry(ctx context.Context, try func() (progressed bool, err error)) error {
	for failures := 0; ; {
		progressed, err := try()
		if err == nil {
			return nil
		}
		var passing *retryableError
		if !errors.As(err, &passing) || !passing.wanted || ctx.Err() != nil {
			return err
		}
		if failures++; progressed {
			failures = 1
		}
		if failures > c.retries {
			return fmt.Errorf("given up after %d attempts: %w", failures, err)
		}
		wait := c.delay << min(failures-1, 6)
		if seconds, err := strconv.Atoi(passing.after); err == nil && seconds >= 0 && seconds <= 300 {
			wait = time.Duration(seconds) * time.Second
		}
		if c.retrying != nil {
			c.retrying(err, wait)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}
