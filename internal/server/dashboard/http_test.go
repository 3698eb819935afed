package dashboard

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const hostile = `"><img src=x onerror=alert(1)><script>alert(1)</script>`

func serve(d *Dashboard, target string) *httptest.ResponseRecorder {
	u, err := url.Parse(target)
	if err != nil {
		panic(err)
	}
	w := httptest.NewRecorder()
	d.Routes()[u.Path].ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}})
	return w
}

func TestEveryAnswerForbidsWhatIsNotOurs(t *testing.T) {
	b := newBench(Options{})
	for path := range b.Routes() {
		w := serve(b.Dashboard, path)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'; script-src 'self'", path)
		require.NotContains(t, w.Header().Get("Content-Security-Policy"), "unsafe", path)
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), path)
		require.NotEmpty(t, w.Header().Get("Content-Type"), path)
	}
}

func TestHostileIdsAreDataOnly(t *testing.T) {
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	sink.Finished(course{id: hostile, trace: hostile[:32], start: b.now, queued: 1, scheduled: 2, first: 3, last: 4}.record())
	for _, target := range []string{"/dashboard/requests", "/dashboard/requests?query=" + url.QueryEscape(hostile), "/dashboard/request?key=1"} {
		w := serve(b.Dashboard, target)
		require.Equal(t, http.StatusOK, w.Code, target)
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.NotContains(t, w.Body.String(), "<", "not even read as a page could it run")
		require.True(t, json.Valid(w.Body.Bytes()))
	}
	require.Equal(t, hostile, b.Requests(hostile, 1).Requests[0].ID)
}

// The page itself: texts reach it by textContent, and it asks nobody but its server.
func TestAssetsHaveNoWayForMarkupAndNoOutsideAddress(t *testing.T) {
	b := newBench(Options{})
	markup := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|new Function|javascript:`)
	address := regexp.MustCompile(`(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}`)
	inline := regexp.MustCompile(`(?i)<[^>]*\s(?:on[a-z]+|style)\s*=|<style|<script(?:[^>]*)>[^<]`)
	for path, f := range b.files {
		text := strings.ReplaceAll(string(f.data), "http://www.w3.org/2000/svg", "") // a name, not an address
		require.NotRegexp(t, markup, text, path)
		require.NotRegexp(t, address, text, path)
		if path == "/dashboard" {
			require.NotRegexp(t, inline, text, path)
			for _, ref := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(text, -1) {
				require.Contains(t, b.files, "/"+ref[1], "the page names a file that is there")
			}
		}
		for _, ref := range regexp.MustCompile(`from '\./([^']+)'`).FindAllStringSubmatch(text, -1) {
			require.Contains(t, b.files, "/dashboard/"+ref[1], path)
		}
	}
}

func TestAssetsAreRevalidated(t *testing.T) {
	b := newBench(Options{})
	w := serve(b.Dashboard, "/dashboard")
	require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
	r := httptest.NewRequest(http.MethodGet, "/dashboard", nil)
	r.Header.Set("If-None-Match", w.Header().Get("Etag"))
	again := httptest.NewRecorder()
	b.Routes()["/dashboard"].ServeHTTP(again, r)
	require.Equal(t, http.StatusNotModified, again.Code)
	require.Empty(t, again.Body.String())
}

func TestBadQuestionsAreRefusedWithTheReason(t *testing.T) {
	b := newBench(Options{})
	for target, want := range map[string]struct {
		status int
		text   string
	}{
		"/dashboard/state?window=61":                            {http.StatusBadRequest, "60, 300 or 900"},
		"/dashboard/state?window=x":                             {http.StatusBadRequest, "60, 300 or 900"},
		"/dashboard/state?since=now":                            {http.StatusBadRequest, "since"},
		"/dashboard/requests?limit=0":                           {http.StatusBadRequest, "between 1 and 200"},
		"/dashboard/requests?limit=201":                         {http.StatusBadRequest, "between 1 and 200"},
		"/dashboard/requests?query=" + strings.Repeat("x", 513): {http.StatusBadRequest, "512"},
		"/dashboard/request":                                    {http.StatusBadRequest, "key"},
		"/dashboard/request?key=-1":                             {http.StatusBadRequest, "key"},
		"/dashboard/request?key=12":                             {http.StatusNotFound, "no longer kept"},
	} {
		w := serve(b.Dashboard, target)
		require.Equal(t, want.status, w.Code, target)
		var e struct{ Error string }
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
		require.Contains(t, e.Error, want.text, target)
	}
}

func FuzzQuestions(f *testing.F) {
	f.Add("requests", "query=%3Cscript%3E&limit=3")
	f.Add("state", "window=60&since=-9223372036854775808")
	f.Add("request", "key=1")
	f.Add("requests", "query=%ff%fe;&limit=1;")
	b := newBench(Options{})
	_, sink := b.replica(0, 0)
	sink.Finished(course{id: "a\xff\u202e", start: b.now, queued: 1, scheduled: 2, first: 3, last: 4}.record())
	routes := b.Routes()
	f.Fuzz(func(t *testing.T, what, query string) {
		h, ok := routes["/dashboard/"+what]
		if !ok {
			return
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/dashboard/" + what, RawQuery: query}, Header: http.Header{}})
		require.Less(t, w.Code, http.StatusInternalServerError)
		if w.Header().Get("Content-Type") == "application/json" {
			require.True(t, json.Valid(w.Body.Bytes()))
		}
	})
}
