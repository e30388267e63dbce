package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A journal counts what arrives at a server over HTTP.
type journal struct {
	mu        sync.Mutex
	methods   map[string]int // of HTTP other than POST, and of requests and notifications
	ids       []string       // of requests
	lastEvent []string       // Last-Event-ID of each GET
}

func (j *journal) around(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var m struct {
			ID     json.RawMessage
			Method string
		}
		_ = json.Unmarshal(body, &m) // other HTTP methods have no body
		j.mu.Lock()
		if j.methods == nil {
			j.methods = map[string]int{}
		}
		switch {
		case r.Method == http.MethodGet:
			j.lastEvent = append(j.lastEvent, r.Header.Get("Last-Event-Id"))
		case r.Method != http.MethodPost:
			m.Method = r.Method
		case m.ID != nil && m.Method != "":
			j.ids = append(j.ids, string(m.ID))
		}
		j.methods[m.Method]++
		j.mu.Unlock()
		h.ServeHTTP(w, r)
	})
}

func (j *journal) count(method string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.methods[method]
}

// resumeServer serves a tool that logs, and a resource, and counts what arrives.
func resumeServer(t *testing.T, o *ServerOptions) (s *Server, j *journal, url string) {
	t.Helper()
	s = NewServer("kept", "3", o)
	AddTool(s, Tool{Name: "talk"}, func(ctx context.Context, _ struct{}) (string, error) {
		return "done", errors.Join(Log(ctx, "info", "", "quiet"), Log(ctx, "error", "", "loud"))
	})
	s.AddResource(Resource{URI: "test:a", Name: "a"},
		func(_ context.Context, uri string) ([]ResourceContents, error) {
			return []ResourceContents{{URI: uri, Text: "A"}}, nil
		})
	h := mcphttp.NewHandler(s, nil)
	j = new(journal)
	web := httptest.NewServer(j.around(h))
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = h.Shutdown(ctx)
		web.CloseClientConnections()
		web.Close()
	})
	return s, j, web.URL + "/mcp?key=secret"
}

func next[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(10 * time.Second):
		t.Fatalf("no %s", what)
		panic("unreachable")
	}
}

// In each revision a second client goes on where the first one ends: with its tools, log level and
// subscription, without another handshake, and with the events in between where streams are
// resumable.
func TestResume(t *testing.T) {
	t.Parallel()
	for _, rev := range era.Revisions() {
		for kind, keys := range map[string][][]byte{"memory": nil, "sealed": sealKeys("k")} {
			t.Run(rev.Name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				s, j, url := resumeServer(t, &ServerOptions{Keys: keys})
				updated, logged := make(chan string, 10), make(chan string, 10)
				listening := make(chan struct{}, 1)
				o := ClientOptions{
					Era: rev.Name,
					HTTP: &mcphttp.DialOptions{
						Header: http.Header{"Authorization": {"Bearer secret"}},
					},
					OnResourceUpdated: func(uri string) { updated <- uri },
					OnLog:             func(p *spec.LoggingMessageNotificationParams) { logged <- p.Level },
					OnListening:       func(spec.SubscriptionFilter) { listening <- struct{}{} },
				}
				c := mustDial(t, url, &o)
				var done sync.WaitGroup
				defer done.Wait()
				listen := func(c *Client) {
					done.Go(func() {
						// Close ends it
						_ = c.Listen(t.Context(), spec.SubscriptionFilter{ResourceSubscriptions: []string{"test:a"}})
					})
					next(t, "subscription", listening)
				}
				listen(c)
				if err := c.SetLogLevel(t.Context(), "error"); err != nil {
					t.Fatal(err)
				}
				s.ResourceUpdated("test:a")
				next(t, "update", updated)
				before := c.Server()
				var saved []byte
				for { // the event of the update counts as handled a moment after the callback
					var err error
					if saved, err = c.Session(); err != nil {
						t.Fatal(err)
					}
					if s, err := parseSession(saved); err != nil || s.LastEvent != "" || !rev.ResumableStreams {
						break
					}
					runtime.Gosched()
				}
				if bytes.Contains(saved, []byte("secret")) {
					t.Errorf("credentials are saved: %s", saved)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}

				if rev.ResumableStreams {
					s.ResourceUpdated("test:a") // kept for Last-Event-ID
				}
				o.Resume = saved
				c = mustDial(t, strings.Replace(url, "secret", "other", 1), &o)
				if !rev.Handshake {
					listen(c) // there is no session that has the subscription
				}
				if !rev.ResumableStreams {
					s.ResourceUpdated("test:a")
				}
				if got := next(t, "update", updated); got != "test:a" {
					t.Error(got)
				}
				if got, err := CallTool[string](t.Context(), c, "talk", nil); err != nil || got != "done" {
					t.Error(got, err)
				}
				if got := next(t, "log", logged); got != "error" {
					t.Errorf("a message of level %s arrived", got)
				}
				after, err := json.Marshal(c.Server())
				if want, _ := json.Marshal(before); err != nil || !bytes.Equal(after, want) {
					t.Errorf("%s, %v; want %s", after, err, want)
				}
				if j.count("DELETE") != 0 {
					t.Error("the session was ended")
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}

				handshakes := map[string]int{"initialize": 1, "notifications/initialized": 1, "DELETE": 1}
				if !rev.Handshake {
					handshakes = map[string]int{"server/discover": 1}
				}
				for _, method := range []string{
					"initialize", "notifications/initialized", "server/discover",
					"DELETE",
				} {
					if j.count(method) != handshakes[method] {
						t.Errorf("%s was sent %d times; want %d", method, j.count(method), handshakes[method])
					}
				}
				if rev.ResumableStreams && (len(j.lastEvent) != 2 || j.lastEvent[1] == "") {
					t.Errorf("Last-Event-ID is %q", j.lastEvent)
				}
				j.mustDiffer(t)
			})
		}
	}
}

// mustDiffer wants no id of a request to be used twice.
func (j *journal) mustDiffer(t *testing.T) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	used := map[string]bool{}
	for _, id := range j.ids {
		if used[id] {
			t.Errorf("the id %s is used twice in %q", id, j.ids)
		}
		used[id] = true
	}
}

// No id is used twice in a session, also when clients make calls after Session, and several clients
// resume the same bytes.
func TestResumeIDs(t *testing.T) {
	t.Parallel()
	_, j, url := resumeServer(t, nil)
	o := ClientOptions{Era: "legacy", RPC: &farcall.Options{FirstID: 7}}
	for range 5 {
		c := mustDial(t, url, &o)
		for n := range 20 {
			if n == 10 && o.Resume == nil {
				var err error
				if o.Resume, err = c.Session(); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Request(t.Context(), spec.MethodPing, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	j.mustDiffer(t)
	if n := len(j.ids); n != 101 { // with initialize
		t.Errorf("%d requests have arrived", n)
	}
}

// A session that the server does not know any more is replaced by a new one, which Close ends: at
// the first call or, with a callback for what the server sends, when the stream for that is opened.
func TestResumeLost(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusNotFound, http.StatusBadRequest} {
		for name, listed := range map[string]func(string){"call": nil, "stream": func(string) {}} {
			t.Run(strconv.Itoa(status)+" "+name, func(t *testing.T) {
				t.Parallel()
				s := NewServer("forgets", "1", nil)
				AddTool(s, Tool{Name: "talk"}, func(context.Context, struct{}) (string, error) {
					return "done", nil
				})
				h := mcphttp.NewHandler(s, nil)
				var gone atomic.Value // the session that is not known any more
				gone.Store("none")
				j := new(journal)
				web := httptest.NewServer(
					j.around(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if r.Header.Get("Mcp-Session-Id") == gone.Load() {
							http.Error(w, "Bad Request: No valid session ID provided", status)
							return
						}
						h.ServeHTTP(w, r)
					})))
				t.Cleanup(web.Close)
				o := ClientOptions{Era: "legacy", OnListChanged: listed}
				c := mustDial(t, web.URL, &o)
				first := c.cur.id
				var err error
				if o.Resume, err = c.Session(); err != nil {
					t.Fatal(err)
				}
				mustClose(t, c)
				gone.Store(first)
				lost := make(chan struct{}, 1)
				o.OnSessionLost = func() { lost <- struct{}{} }
				c = mustDial(t, web.URL, &o)
				if listed != nil {
					<-lost // the stream's goroutine has begun a new one
				}
				if got, err := CallTool[string](t.Context(), c, "talk", nil); err != nil || got != "done" ||
					j.count("initialize") != 2 {
					t.Errorf("%q, %v; %d handshakes", got, err, j.count("initialize"))
				}
				if listed == nil && len(lost) != 1 {
					t.Error("OnSessionLost was not called")
				}
				raw, err := c.Session()
				if err != nil || bytes.Contains(raw, []byte(first)) {
					t.Errorf("%s, %v", raw, err)
				}
				// first: it would begin a third session when the second one ends
				mustClose(t, c)
				// ends the second one
				mustClose(t, mustDial(t, web.URL, &ClientOptions{Era: "legacy", Resume: raw}))
				if j.count("DELETE") != 1 {
					t.Errorf("DELETE was sent %d times; want 1", j.count("DELETE"))
				}
				if _, err := c.Session(); !errors.Is(err, farcall.ErrClosed) {
					t.Error(err)
				}
			})
		}
	}
}

// The server at the address may speak other revisions by now than the session has.
func TestResumeOtherRevisions(t *testing.T) {
	t.Parallel()
	for _, test := range [][2]string{
		{"legacy", "modern"},
		{"modern", "legacy"},
		{spec.Revision20250326, spec.Revision20251125},
	} {
		t.Run(test[0]+" to "+test[1], func(t *testing.T) {
			t.Parallel()
			var now atomic.Pointer[mcphttp.Handler]
			serve := func(eras string) {
				s := NewServer(eras, "1", &ServerOptions{Eras: eras})
				AddTool(s, Tool{Name: "talk"}, func(context.Context, struct{}) (string, error) {
					return eras, nil
				})
				now.Store(mcphttp.NewHandler(s, nil))
			}
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				now.Load().ServeHTTP(w, r)
			}))
			t.Cleanup(web.Close)
			serve(test[0])
			c := mustDial(t, web.URL, nil)
			saved, err := c.Session()
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, c)
			serve(test[1])
			c = mustDial(t, web.URL, &ClientOptions{Resume: saved})
			if c.Server().Name != test[0] {
				t.Error(c.Server())
			}
			if got, err := CallTool[string](t.Context(), c, "talk", nil); err != nil || got != test[1] ||
				c.Server().Name != test[1] {
				t.Error(got, err, c.Server())
			}
		})
	}
}

// Session keeps the session that it returns, not the one that replaces it.
func TestSessionOfAnother(t *testing.T) {
	t.Parallel()
	_, j, url := resumeServer(t, nil)
	c := mustDial(t, url, &ClientOptions{Era: "legacy"})
	saved, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, mustDial(t, url, &ClientOptions{Era: "legacy", Resume: saved}))
	if _, err := CallTool[string](t.Context(), c, "talk", nil); err != nil {
		t.Fatal(err)
	}
	mustClose(t, c)
	if j.count("DELETE") != 2 {
		t.Errorf("DELETE was sent %d times; want 2", j.count("DELETE"))
	}
}

func mustClose(t *testing.T, c *Client) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// What cannot be resumed fails, before anything is sent, with an error that says why.
func TestResumeRefused(t *testing.T) {
	t.Parallel()
	_, j, url := resumeServer(t, nil)
	c := mustDial(t, url, &ClientOptions{Era: "legacy"})
	raw, err := c.Session()
	if err != nil {
		t.Fatal(err)
	}
	saved := string(raw)
	asked := j.count("initialize") + j.count("server/discover")
	for name, test := range map[string]struct{ url, era, saved, want string }{
		"version": {
			url, "", strings.Replace(saved, `"version":1`, `"version":2`, 1),
			"reads version 1; dial without it",
		},
		"none":    {url, "", `{}`, "it has version 0"},
		"no JSON": {url, "", "session", "it is not what Client.Session returns"},
		"unknown": {
			url, "", strings.Replace(saved, `"version":1`, `"version":1,"x":1`, 1),
			"it is not what Client.Session returns",
		},
		"too long": {url, "", saved + strings.Repeat(" ", maxSaved), "at most 1048576"},
		"level": {
			url, "", strings.Replace(saved, `"level":""`, `"level":"x"`, 1),
			"log level",
		},
		"no server": {
			url, "", strings.Replace(saved, `"server":{`, `"unknown":{`, 1),
			"it is not what Client.Session returns",
		},
		"nothing known of it": {url, "", `{"version":1}`, "the server's capabilities"},
		"long address": {
			url, "",
			strings.Replace(saved, `"address":"`, `"address":"`+strings.Repeat("a", 1<<16), 1),
			"it is a session of",
		},
		"long revision": {
			url, "",
			strings.Replace(saved, `"Revision":"`, `"Revision":"`+strings.Repeat("a", 1<<16), 1),
			"see ClientOptions.Era",
		},
		"id": {url, "", strings.Replace(saved, `"id":"`, `"id":" `, 1), "visible ASCII"},
		"event": {
			url, "", strings.Replace(saved, `"lastEvent":"`, `"lastEvent":"\n`, 1),
			"printable ASCII",
		},
		"path": {
			strings.Replace(url, "/mcp", "/other", 1), "", saved,
			`it is a session of "http://127.0.0.1:`,
		},
		"server": {
			"http://localhost:1/mcp", "", saved,
			`/mcp", not of "http://localhost:1/mcp"; dial that address, or`,
		},
		"revision": {url, "modern", saved, "see ClientOptions.Era"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Dial(t.Context(), test.url, &ClientOptions{Era: test.era, Resume: []byte(test.saved)})
			if err == nil {
				c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 1000 ||
				!strings.Contains(err.Error(), "ClientOptions.Resume") {
				t.Errorf("%v; want %q", err, test.want)
			}
		})
	}
	if now := j.count("initialize") + j.count("server/discover"); now != asked ||
		j.count("DELETE") != 0 {
		t.Errorf("the server was asked %d times, and to end the session %d times", now-asked,
			j.count("DELETE"))
	}
	near, _ := farcall.Pipe()
	if _, err := Connect(t.Context(), near, &ClientOptions{Resume: raw}); !errors.Is(err,
		errNotResumable) {
		t.Error(err)
	}
}

// Session refuses what another client cannot resume, and Close ends the session as before.
func TestSessionRefused(t *testing.T) {
	t.Parallel()
	_, j, url := resumeServer(t, &ServerOptions{Instructions: strings.Repeat("x", maxSaved)})
	c := mustDial(t, url, &ClientOptions{Era: "legacy"})
	if _, err := c.Session(); err == nil ||
		!strings.Contains(err.Error(), "at most "+strconv.Itoa(maxSaved)) {
		t.Error(err)
	}
	mustClose(t, c)
	if j.count("DELETE") != 1 {
		t.Error("the session was not ended")
	}

	s := NewServer("s", "1", nil)
	h := mcphttp.NewHandler(s, nil)
	mux := http.NewServeMux()
	mux.HandleFunc("/sse", h.ServeSSE)
	mux.HandleFunc("/messages", h.ServeMessages)
	web := httptest.NewServer(mux)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	c = mustDial(t, web.URL+"/sse", &ClientOptions{Era: "legacy"})
	if _, err := c.Session(); !errors.Is(err, errNotResumable) {
		t.Error(err)
	}
}

// What is accepted can be saved again, and is the same then.
func FuzzParseSession(f *testing.F) {
	s := savedSession{
		Version: savedVersion, Address: "http://h/mcp", ID: "1", LastEvent: "2-3", Level: "info",
		Server: ServerInfo{
			Name: "s", Revision: revLegacy,
			Capabilities: &spec.ServerCapabilities{Logging: spec.JSONObject{}},
			Supported:    []string{revLegacy},
		},
	}
	raw, err := s.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"version":1,"server":{"Capabilities":{}}}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"server":{"` + strings.Repeat("=", 4000) + `":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parseSession(raw)
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			return
		}
		first, err := s.marshal()
		if err != nil {
			return // the same value may take more bytes
		}
		again, err := parseSession(first)
		if err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		if second, err := again.marshal(); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s, %v; want %s", second, err, first)
		}
	})
}
