package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"omni-engine/engine/request"
	"omni-engine/stages"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func hello() *scripted {
	return &scripted{scripts: []script{{updates: []stages.Update{said("Hel", 1), last(said("lo", 2), request.FinishStop)}}}}
}

const completion, chatting = `{"prompt":"Hi","max_tokens":4}`, `{"messages":[{"role":"user","content":"Hi"}],"max_tokens":4}`

func TestRoutesAnswerAsVLLMsRouterDoes(t *testing.T) {
	h := newTestServer(t, hello(), spelled{}, nil)
	for _, c := range []struct {
		method, path string
		status       int
		body, allow  string
	}{
		{"GET", "/nowhere", 404, `{"detail":"Not Found"}`, ""},
		{"POST", "/v1/nowhere", 404, `{"detail":"Not Found"}`, ""},
		{"GET", "/v1/completions", 405, `{"detail":"Method Not Allowed"}`, "POST"},
		{"DELETE", "/v1/models", 405, `{"detail":"Method Not Allowed"}`, "GET"},
		{"GET", "/health", 200, "", ""},
		{"GET", "/ping", 200, "", ""},
		{"POST", "/ping", 200, "", ""},
		{"GET", "/version", 200, `{"version":"0.32.0"}`, ""},
		{"GET", "/load", 200, `{"server_load":0}`, ""},
		{"GET", "/metrics", 200, "# metrics\n", ""},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		assert.Equal(t, c.status, w.Code, c.path)
		assert.Equal(t, c.body, w.Body.String(), c.path)
		assert.Equal(t, c.allow, w.Header().Get("Allow"), c.path)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/v1/models/?a=b%20c", nil))
	assert.Equal(t, http.StatusTemporaryRedirect, w.Code)
	assert.Equal(t, "/v1/models?a=b%20c", w.Header().Get("Location"))
	assert.Empty(t, w.Body.String())
}

func TestKeysGuardTheAPI(t *testing.T) {
	h := newTestServer(t, &scripted{}, spelled{}, func(o *Options, _ *Model, _ *stages.Options) { o.APIKeys = []string{"first", "second"} })
	for _, c := range []struct {
		path, header string
		status       int
	}{
		{"/v1/models", "", 401}, {"/v1/models", "Bearer wrong", 401}, {"/v1/models", "first", 401}, {"/v1/models", "Basic first", 401},
		{"/v1/models", "Bearer first", 200}, {"/v1/models", "bearer second", 200}, {"/v1/models", "Bearer ", 401},
		{"/v1/nowhere", "", 401}, {"/health", "", 200}, {"/metrics", "", 200}, {"/load", "", 200}, {"/version", "", 200},
	} {
		r := httptest.NewRequest("GET", c.path, nil)
		if c.header != "" {
			r.Header.Set("Authorization", c.header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, c.status, w.Code, "%s %q", c.path, c.header)
		if c.status == 401 {
			assert.Equal(t, `{"error":"Unauthorized"}`, w.Body.String())
		}
	}
}

func TestPreflightsAreAnsweredAsRecorded(t *testing.T) {
	for name, change := range map[string]func(*Options, *Model, *stages.Options){
		"nolog/cors_preflight.json": nil,
		"f32/options_cors.json": func(o *Options, _ *Model, _ *stages.Options) {
			o.CORS = CORS{Methods: []string{"*"}, Headers: []string{"*"}}
		},
	} {
		g := goldens(t, name)[0]
		h := newTestServer(t, &scripted{}, spelled{}, change)
		r := httptest.NewRequest(g.Request.Method, g.Request.Path, nil)
		for k, v := range g.Request.Headers {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, g.Response.Status, w.Code, name)
		assert.Equal(t, g.Response.BodyRaw, w.Body.String(), name)
		for k, v := range g.Response.Headers {
			if k != "date" && k != "server" && k != "content-length" {
				assert.Equal(t, v, w.Header().Get(k), "%s: %s", name, k)
			}
		}
		for k := range w.Header() {
			assert.Contains(t, g.Response.Headers, strings.ToLower(k), name)
		}
	}
}

func TestAllowedOriginsAreNamed(t *testing.T) {
	h := newTestServer(t, &scripted{}, spelled{}, func(o *Options, _ *Model, _ *stages.Options) {
		o.CORS = CORS{Origins: []string{"https://a.example"}, Methods: []string{"GET"}, Headers: []string{"X-A"}, Credentials: true}
	})
	for origin, want := range map[string]string{"https://a.example": "https://a.example", "https://b.example": ""} {
		r := httptest.NewRequest("GET", "/version", nil)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		assert.Equal(t, 200, w.Code)
		assert.Equal(t, want, w.Header().Get("Access-Control-Allow-Origin"), origin)
	}
}

func TestRequestIDsComeBack(t *testing.T) {
	h := newTestServer(t, hello(), spelled{}, func(o *Options, _ *Model, _ *stages.Options) { o.RequestIDHeaders = true })
	w := post(t, h, "/v1/completions", completion, "X-Request-Id", "mine\x01")
	require.Equal(t, 200, w.Code, w.Body.String())
	assert.Equal(t, "mine", w.Header().Get("X-Request-Id"))
	assert.Contains(t, w.Body.String(), `"id":"cmpl-mine"`)
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/version", nil))
	assert.Regexp(t, "^[0-9a-f]{32}$", w.Header().Get("X-Request-Id"))
}

func TestRepeatedRequestIDsDoNotCollideInTheEngine(t *testing.T) {
	r := hello()
	r.scripts = append(r.scripts, r.scripts[0])
	h := newTestServer(t, r, spelled{}, nil)
	for range 2 {
		require.Equal(t, 200, post(t, h, "/v1/completions", completion, "X-Request-Id", "same").Code)
	}
	got := r.requests()
	assert.Equal(t, got[0].External, got[1].External)
	assert.NotEqual(t, got[0].ID, got[1].ID)
}

func TestContentTypesOtherThanJSONAreRefused(t *testing.T) {
	h := newTestServer(t, &scripted{}, spelled{}, nil)
	for _, ct := range []string{"", "text/plain", "multipart/form-data", "application/jsonx", ";"} {
		w := post(t, h, "/v1/completions", completion, "Content-Type", ct)
		assert.Equal(t, 400, w.Code, ct)
		assert.Contains(t, w.Body.String(), "Unsupported Media Type", ct)
	}
	w := post(t, newTestServer(t, hello(), spelled{}, nil), "/v1/completions", completion, "Content-Type", "application/json; charset=utf-8")
	assert.Equal(t, 200, w.Code, w.Body.String())
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return copy(b, bytes.Repeat([]byte(" "), len(b))), nil }

func TestBodiesAreBounded(t *testing.T) {
	h := newTestServer(t, &scripted{}, spelled{}, nil)
	r := httptest.NewRequest("POST", "/v1/completions", io.MultiReader(strings.NewReader(`{"prompt":"`), endless{}))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
}

// A client that is still sending when the answer is ready must read the answer, not a reset connection.
func TestTooLargeABodyIsAnsweredToTheClientThatSendsIt(t *testing.T) {
	server := httptest.NewServer(newTestServer(t, &scripted{}, spelled{}, nil))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	const size = maxBody + 20<<20
	_, err = fmt.Fprintf(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
	require.NoError(t, err)
	_, err = io.Copy(conn, io.LimitReader(endless{}, size))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	assert.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode)
}

func TestClientThatLeavesEndsItsRequest(t *testing.T) {
	for _, body := range []string{`{"prompt":"Hi","max_tokens":4,"stream":true}`, completion} {
		r := &scripted{scripts: []script{{updates: []stages.Update{said("Hel", 1)}, open: true}}}
		server := httptest.NewServer(newTestServer(t, r, spelled{}, nil))
		ctx, leave := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/completions", strings.NewReader(body))
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		answered := make(chan error, 1)
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			answered <- err
		}()
		require.Eventually(t, func() bool { return len(r.requests()) == 1 }, 10*time.Second, time.Millisecond)
		leave()
		select {
		case <-r.ended[0]:
		case <-time.After(10 * time.Second):
			t.Error("the engine's request outlived its client")
		}
		require.Error(t, <-answered)
		server.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestEndedAnswerEndsTheRequestsContext(t *testing.T) {
	r := hello()
	require.Equal(t, 200, post(t, newTestServer(t, r, spelled{}, nil), "/v1/completions", completion).Code)
	select {
	case <-r.ended[0]:
	case <-time.After(10 * time.Second):
		t.Fatal("the context leaks")
	}
}

func TestPanicOfAHandlerIsAnErrorOfThatRequestAlone(t *testing.T) {
	r := hello()
	h := newTestServer(t, r, spelled{encode: func(text string) []int32 {
		if text == "bad" {
			panic("a bug")
		}
		return nil
	}}, nil)
	w := post(t, h, "/v1/completions", `{"prompt":"bad"}`)
	assert.Equal(t, 500, w.Code)
	assert.JSONEq(t, `{"error":{"message":"internal error","type":"InternalServerError","param":null,"code":500}}`, w.Body.String())
	assert.Equal(t, 200, post(t, h, "/v1/completions", completion).Code)
}

func TestPanicInsideTheEngineDoesNotLockTheServer(t *testing.T) {
	r := hello()
	r.panics = true
	h := newTestServer(t, r, spelled{}, nil)
	assert.Equal(t, 500, post(t, h, "/v1/completions", completion).Code)
	r.panics = false
	assert.Equal(t, 200, post(t, h, "/v1/completions", completion).Code)
}

func TestIdleStreamsAreKeptAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pause := make(chan struct{})
		r := hello()
		r.scripts[0].pause = pause
		h := newTestServer(t, r, spelled{}, func(o *Options, _ *Model, _ *stages.Options) { o.KeepAlive = time.Second })
		go func() { time.Sleep(3500 * time.Millisecond); close(pause) }()
		w := post(t, h, "/v1/completions", `{"prompt":"Hi","stream":true}`)
		body := w.Body.String()
		assert.Equal(t, 3, strings.Count(body, ": keep-alive\n\n"), body)
		assert.Less(t, strings.Index(body, `"Hel"`), strings.Index(body, ": keep-alive"))
		assert.True(t, strings.HasSuffix(body, "data: [DONE]\n\n"), body)
	})
}

func TestFullQueueIsServiceUnavailable(t *testing.T) {
	g := goldens(t, "misc/n_over_queue_limit_chat.json")[0]
	h := newTestServer(t, &scripted{}, spelled{}, func(_ *Options, _ *Model, s *stages.Options) { s.MaxQueuedRequests = 2 })
	w := post(t, h, g.Request.Path, string(g.body()))
	assert.Equal(t, 503, w.Code)
	assert.JSONEq(t, g.Response.BodyRaw, w.Body.String())
}

func TestDeadEngineIsUnhealthy(t *testing.T) {
	r := &scripted{health: stages.ErrDead, submit: stages.ErrDead}
	h := newTestServer(t, r, spelled{}, nil)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/health", nil))
	assert.Equal(t, 503, w.Code)
	assert.Equal(t, 503, post(t, h, "/v1/completions", completion).Code)
}

func TestEngineFaultIsAnErrorEventAndThenDone(t *testing.T) {
	fault := last(said(""), request.FinishError)
	fault.Output.Err = "a NaN in the logits"
	faulty := func() *scripted {
		return &scripted{scripts: []script{{updates: []stages.Update{said("Hel", 1), fault}}}}
	}
	const want = `{"error":{"message":"a NaN in the logits","type":"InternalServerError","param":null,"code":500}}`
	for path, body := range map[string]string{"/v1/completions": completion, "/v1/chat/completions": chatting} {
		w := post(t, newTestServer(t, faulty(), spelled{}, nil), path, body)
		assert.Equal(t, 500, w.Code)
		assert.JSONEq(t, want, w.Body.String())

		w = post(t, newTestServer(t, faulty(), spelled{}, nil), path, strings.Replace(body, "{", `{"stream":true,`, 1))
		assert.Equal(t, 200, w.Code)
		events := strings.Split(strings.TrimSpace(w.Body.String()), "\n\n")
		require.GreaterOrEqual(t, len(events), 3)
		assert.JSONEq(t, want, strings.TrimPrefix(events[len(events)-2], "data: "))
		assert.Equal(t, "data: [DONE]", events[len(events)-1])
	}
}

func TestStreamThatBreaksIsAnError(t *testing.T) {
	r := &scripted{scripts: []script{{updates: []stages.Update{said("Hel", 1)}}}} // ends without an end
	w := post(t, newTestServer(t, r, spelled{}, nil), "/v1/completions", completion)
	assert.Equal(t, 500, w.Code, w.Body.String())
}

func TestSubmitErrorIsTheAnswersStatus(t *testing.T) {
	r := &scripted{submit: errors.New("boom")}
	w := post(t, newTestServer(t, r, spelled{}, nil), "/v1/chat/completions", strings.Replace(chatting, "{", `{"stream":true,`, 1))
	assert.Equal(t, 500, w.Code)
	assert.True(t, json.Valid(w.Body.Bytes()))
}

func TestLoadCountsRequestsInFlight(t *testing.T) {
	pause := make(chan struct{})
	r := hello()
	r.scripts[0].pause = pause
	h := newTestServer(t, r, spelled{}, func(o *Options, _ *Model, _ *stages.Options) { o.LoadTracking = true })
	load := func() string {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/load", nil))
		return w.Body.String()
	}
	done := make(chan int)
	go func() { done <- post(t, h, "/v1/completions", completion).Code }()
	require.Eventually(t, func() bool { return len(r.requests()) == 1 }, 10*time.Second, time.Millisecond)
	assert.Equal(t, `{"server_load":1}`, load())
	close(pause)
	require.Equal(t, 200, <-done)
	assert.Equal(t, `{"server_load":0}`, load())
}
