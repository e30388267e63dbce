package mcp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/seal"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func sealKeys(letters string) [][]byte {
	var keys [][]byte
	for _, c := range []byte(letters) {
		keys = append(keys, bytes.Repeat([]byte{c}, seal.KeySize))
	}
	return keys
}

// A replica is one of several servers that share keys.
func replica(tb testing.TB, o ServerOptions, h mcphttp.Options) (*Server, *mcphttp.Handler) {
	tb.Helper()
	o.HTTP = &h
	o.Complete = func(context.Context, *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
		return &spec.CompleteResult{}, nil
	}
	s := askServer(tb, func(ctx context.Context) (string, error) {
		a, err := Elicit[askForm](ctx, "Who?")
		return a.Name, err
	}, &o)
	s.AddTool(Tool{Name: "who", InputSchema: jsonrpc.Raw(`{"type":"object"}`)},
		func(ctx context.Context, _ jsonrpc.Raw) (*ToolResult, error) {
			return &ToolResult{
				Content: []Content{
					Text(fmt.Sprintf("%s %t", ClientFrom(ctx).Name,
						ClientFrom(ctx).Capabilities.Elicitation != nil)),
				},
			}, nil
		})
	s.AddResource(Resource{URI: "test:a", Name: "a"},
		func(_ context.Context, uri string) ([]ResourceContents, error) {
			return []ResourceContents{{URI: uri, Text: "A"}}, nil
		})
	s.AddPrompt(Prompt{Name: "p"}, func(context.Context, map[string]string) (*PromptResult, error) {
		return &PromptResult{Messages: []PromptMessage{{Role: "user", Content: Text("P")}}}, nil
	})
	m := mcphttp.NewHandler(s, nil)
	tb.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		m.Shutdown(ctx)
	})
	return s, m
}

// A cluster is replicas behind a round robin.
type cluster struct {
	replicas []*httptest.Server
	servers  []*Server
	url      string
	next     atomic.Int64
	dead     [3]atomic.Bool
}

func newCluster(t *testing.T, advertise bool) *cluster {
	c := &cluster{}
	var handlers []*mcphttp.Handler
	for range c.dead {
		var h atomic.Pointer[mcphttp.Handler]
		web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.Load().ServeHTTP(w, r)
		}))
		o := mcphttp.Options{}
		if advertise {
			o.Advertise = web.URL
		}
		s, handler := replica(t, ServerOptions{Keys: sealKeys("k")}, o)
		h.Store(handler)
		t.Cleanup(func() { web.CloseClientConnections(); web.Close() })
		c.replicas, c.servers, handlers = append(c.replicas, web), append(c.servers, s),
			append(handlers, handler)
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for {
			if i := c.next.Add(1) % int64(len(handlers)); !c.dead[i].Load() {
				handlers[i].ServeHTTP(w, r)
				return
			}
		}
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	c.url = front.URL + "/mcp"
	return c
}

// An httpHead is what an answer has beside its body.
type httpHead struct {
	StatusCode int
	Status     string
	Header     http.Header
}

// fetch makes a request with "Name: value" headers and returns its status and what is answered.
func fetch(t *testing.T, url, method, body string, headers ...string) (httpHead, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return httpHead{resp.StatusCode, resp.Status, resp.Header}, string(text)
}

// Each request of each revision is answered by a replica that the session did not begin at.
func TestReplicasServeEveryRequest(t *testing.T) {
	c := newCluster(t, false)
	for _, rev := range era.Revisions() {
		if !rev.Handshake {
			continue
		}
		t.Run(rev.Name, func(t *testing.T) {
			resp, _ := fetch(t, c.replicas[0].URL, "POST",
				strings.Replace(hello(rev.Name), `"capabilities":{}`, canElicit, 1))
			session := "Mcp-Session-Id: " + resp.Header.Get("Mcp-Session-Id")
			for _, tt := range []struct{ method, params, want string }{
				{"notifications/initialized", `{}`, ""},
				{"ping", `{}`, `"result":{}`},
				{"tools/list", `{}`, `"who"`},
				{"tools/call", `{"name":"who"}`, `t ` + fmt.Sprint(rev.Elicitation)},
				{"resources/list", `{}`, `"test:a"`},
				{"resources/templates/list", `{}`, `"resourceTemplates"`},
				{"resources/read", `{"uri":"test:a"}`, `"A"`},
				{"resources/unsubscribe", `{"uri":"test:a"}`, `"result":{}`},
				{"prompts/list", `{}`, `"p"`},
				{"prompts/get", `{"name":"p"}`, `"P"`},
				{
					"completion/complete",
					`{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"x","value":""}}`, `"values"`,
				},
				{"logging/setLevel", `{"level":"error"}`, `"result":{}`},
				{"none", `{}`, `-32601`},
			} {
				for _, other := range c.replicas[1:] {
					body := legacyFrame("1", tt.method, tt.params)
					if tt.want == "" {
						body = initialized
					}
					resp, got := fetch(t, other.URL, "POST", body, session)
					if resp.StatusCode/100 != 2 || !strings.Contains(got, tt.want) {
						t.Errorf("%s: %s %s", tt.method, resp.Status, got)
					}
				}
			}
			if resp, _ := fetch(t, c.replicas[1].URL, "DELETE", "",
				session); resp.StatusCode != http.StatusNoContent {
				t.Errorf("DELETE: %s", resp.Status)
			}
			if resp, got := fetch(t, c.replicas[1].URL, "POST", legacyFrame("1", "ping", `{}`),
				session); resp.StatusCode != http.StatusNotFound {
				t.Errorf("after DELETE: %s %s", resp.Status, got)
			}
		})
	}
}

const canElicit = `"capabilities":{"elicitation":{}}`

// Clients of every revision work behind a round robin, and go on when a replica is gone.
func TestReplicasBehindRoundRobin(t *testing.T) {
	c := newCluster(t, true)
	var clients []*Client
	for _, rev := range era.Revisions() {
		client, err := Dial(t.Context(), c.url, &ClientOptions{
			Era: rev.Name,
			Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				return &spec.ElicitResult{Action: spec.ElicitAccept, Content: jsonrpc.Raw(`{"name":"ada"}`)},
					nil
			},
		})
		if err != nil {
			t.Fatal(rev.Name, err)
		}
		t.Cleanup(func() { client.Close() })
		clients = append(clients, client)
	}
	use := func() {
		t.Helper()
		for i, rev := range era.Revisions() {
			for range 4 { // each replica has its turn
				r, err := clients[i].CallTool(t.Context(), "ask", nil)
				switch {
				case !rev.Elicitation:
					if err == nil && !r.IsError {
						t.Errorf("%s cannot be asked, and is: %v", rev.Name, r)
					}
				case err != nil:
					t.Errorf("%s: %v", rev.Name, err)
				case len(r.Content) != 1 || r.Content[0].Text != "ada":
					t.Errorf("%s: %v", rev.Name, r.Content)
				}
				if all, err := clients[i].Tools(t.Context()); err != nil || len(all) != 2 {
					t.Errorf("%s: %d tools, %v", rev.Name, len(all), err)
				}
				if _, err := clients[i].Read(t.Context(), "test:a"); err != nil {
					t.Errorf("%s: %v", rev.Name, err)
				}
				if _, err := clients[i].Prompt(t.Context(), "p", nil); err != nil {
					t.Errorf("%s: %v", rev.Name, err)
				}
			}
		}
	}
	use()
	c.dead[1].Store(true)
	c.replicas[1].CloseClientConnections()
	use()
}

// An answer to a question of another replica is forwarded where that is known, and refused where
// not.
func TestReplicasForwardAnswers(t *testing.T) {
	for _, advertise := range []bool{true, false} {
		t.Run(fmt.Sprint(advertise), func(t *testing.T) {
			c := newCluster(t, advertise)
			name := era.LatestLegacy().Name
			resp, _ := fetch(t, c.replicas[0].URL, "POST",
				strings.Replace(hello(name), `"capabilities":{}`, canElicit, 1))
			session := resp.Header.Get("Mcp-Session-Id")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.replicas[1].URL+"/mcp",
				strings.NewReader(legacyFrame("7", "tools/call", `{"name":"ask"}`)))
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{
				"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
				"Mcp-Session-Id": {session},
			}
			asked, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer asked.Body.Close()
			events := sse.NewReader(asked.Body, 0, nil)
			id := ""
			for id == "" {
				ev, err := events.Next()
				if err != nil {
					t.Fatal(err)
				}
				_, rest, _ := strings.Cut(string(ev.Data), `"id":"`)
				id, _, _ = strings.Cut(rest, `"`)
			}
			answer := `{"jsonrpc":"2.0","id":"` + id +
				`","result":{"action":"accept","content":{"name":"ada"}}}`
			resp, text := fetch(t, c.replicas[2].URL+"/mcp", "POST", answer, "Mcp-Session-Id: "+session)
			if !advertise {
				if resp.StatusCode != http.StatusMisdirectedRequest ||
					!strings.Contains(text, "another replica") {
					t.Errorf("%s %s", resp.Status, text)
				}
				return
			}
			ev, err := events.Next()
			if resp.StatusCode != http.StatusAccepted || err != nil ||
				!strings.Contains(string(ev.Data), "ada") {
				t.Errorf("%s %s; then %s, %v", resp.Status, text, ev.Data, err)
			}
		})
	}
}

// What a session is here for, nothing is left of when its client is away.
func TestSealedSessionsLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := replica(t, ServerOptions{Keys: sealKeys("k")}, mcphttp.Options{})
		post := func(session, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			if session != "" {
				r.Header.Set("Mcp-Session-Id", session)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w
		}
		heap := func() int64 {
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		const n = 2000
		name := era.LatestLegacy().Name
		use := func() {
			for range n {
				id := post("", hello(name)).Header().Get("Mcp-Session-Id")
				if w := post(id, legacyFrame("1", "ping", `{}`)); w.Code != http.StatusOK {
					t.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			if h.Sessions() != n {
				t.Errorf("%d sessions are in memory", h.Sessions())
			}
			<-time.After(time.Minute)
			synctest.Wait()
		}
		use()
		before := heap()
		use()
		if left := float64(heap()-before) / n; h.Sessions() != 0 || len(s.listeners.sessions) != 0 ||
			left > 20 {
			t.Errorf("%d sessions, %d listeners, %.0f bytes are left of each", h.Sessions(),
				len(s.listeners.sessions), left)
		}
		// One with its own level is kept.
		id := post("", hello(name)).Header().Get("Mcp-Session-Id")
		post(id, legacyFrame("1", "logging/setLevel", `{"level":"error"}`))
		<-time.After(20 * time.Minute)
		synctest.Wait()
		if h.Sessions() != 1 {
			t.Errorf("%d sessions are in memory, of one that has a log level", h.Sessions())
		}
		<-time.After(11 * time.Minute)
		synctest.Wait()
		if w := post(id, legacyFrame("1", "ping", `{}`)); h.Sessions() != 1 || w.Code != http.StatusOK {
			t.Errorf("%d sessions, %d %s", h.Sessions(), w.Code, w.Body)
		}
		<-time.After(8 * 24 * time.Hour)
		if w := post(id, legacyFrame("1", "ping", `{}`)); w.Code != http.StatusNotFound {
			t.Errorf("after a week: %d %s", w.Code, w.Body)
		}
	})
}

// An id is a session for the owner that it was given, while its key is there, and in no other
// spelling.
func TestSealedIDs(t *testing.T) {
	who := func(r *http.Request) string { return r.Header.Get("X-User") }
	open := func(keys string) string {
		_, h := replica(t, ServerOptions{Keys: sealKeys(keys)}, mcphttp.Options{Owner: who})
		web := httptest.NewServer(h)
		t.Cleanup(web.Close)
		return web.URL
	}
	old, both, fresh := open("a"), open("ba"), open("b")
	begin := func(url, user string) string {
		resp, text := fetch(t, url, "POST", hello(era.LatestLegacy().Name), "X-User: "+user)
		id := resp.Header.Get("Mcp-Session-Id")
		if id == "" || strings.ContainsFunc(id, func(r rune) bool { return r < 0x21 || r > 0x7e }) {
			t.Fatalf("%q %s", id, text)
		}
		return id
	}
	status := func(url, user, id string) int {
		resp, _ := fetch(t, url, "POST", legacyFrame("1", "ping", `{}`), "X-User: "+user,
			"Mcp-Session-Id: "+id)
		return resp.StatusCode
	}
	id := begin(old, "ann")
	for _, tt := range []struct {
		what, url, user, id string
		want                int
	}{
		{"its owner", old, "ann", id, 200},
		{"another owner", old, "bob", id, 404},
		{"no owner", old, "", id, 404},
		{"an owner, of one without", old, "ann", begin(old, ""), 404},
		{"the old key", both, "ann", id, 200},
		{"the new key", fresh, "ann", begin(both, "ann"), 200},
		{"a key that is gone", fresh, "ann", id, 404},
		{"empty", old, "ann", "", 404},
		{"twice", old, "ann", id + id, 404},
		{"huge", old, "ann", strings.Repeat("A", 10_000), 404},
	} {
		if got := status(tt.url, tt.user, tt.id); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
	for i := 0; i < len(id); i += 7 {
		if got := status(old, "ann", id[:i]+string(id[i]^1)+id[i+1:]); got != http.StatusNotFound {
			t.Errorf("character %d changed: %d", i, got)
		}
		if got := status(old, "ann", id[:max(1, i)]); got != http.StatusNotFound {
			t.Errorf("cut off at %d: %d", i, got)
		}
	}
}

// Foreign texts never make an id that is too long.
func TestSealedIDsAreBounded(t *testing.T) {
	_, h := replica(t, ServerOptions{Keys: sealKeys("k")}, mcphttp.Options{})
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	long := strings.Repeat("é", 5000)
	for name, tt := range map[string]struct {
		body string
		want int
	}{
		"info": {
			`"clientInfo":{"name":"` + long + `","version":"` + long + `","icons":[{"src":"data:` + long +
				`"}]},"capabilities":{}`, 200,
		},
		"experimental": {
			`"clientInfo":{"name":"x","version":"1"},"capabilities":{"experimental":{"x":{"y":"` + long +
				`"}}}`, 200,
		},
		"extensions": {
			`"clientInfo":{"name":"x","version":"1"},"capabilities":{"extensions":{"x":{"y":"` + long +
				`"}}}`, 400,
		},
	} {
		resp, text := fetch(t, web.URL, "POST",
			legacyFrame("0", "initialize", `{"protocolVersion":"`+era.LatestLegacy().Name+`",`+tt.body+`}`))
		id := resp.Header.Get("Mcp-Session-Id")
		if refused := strings.Contains(text, "fewer extensions"); refused != (tt.want == 400) ||
			len(id) > 4096 || (id == "") != refused {
			t.Errorf("%s: %s, an id of %d bytes, %.200s", name, resp.Status, len(id), text)
		}
	}
}

// A subscription works where the stream of its client is, and is refused elsewhere.
func TestReplicasRefuseSubscriptions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, false)
	resp, _ := fetch(t, c.replicas[0].URL, "POST", hello(era.LatestLegacy().Name))
	session := resp.Header.Get("Mcp-Session-Id")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.replicas[1].URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Accept": {"text/event-stream"}, "Mcp-Session-Id": {session}}
	stream, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	events := sse.NewReader(stream.Body, 0, nil)
	body := legacyFrame("1", "resources/subscribe", `{"uri":"test:a"}`)
	if _, text := fetch(t, c.replicas[2].URL, "POST", body,
		"Mcp-Session-Id: "+session); !strings.Contains(text, "not open at this replica") {
		t.Errorf("at another replica: %s", text)
	}
	if _, text := fetch(t, c.replicas[1].URL, "POST", body,
		"Mcp-Session-Id: "+session); !strings.Contains(text, `"result":{}`) {
		t.Errorf("at the replica of the stream: %s", text)
	}
	c.servers[1].ResourceUpdated("test:a")
	for {
		ev, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(ev.Data), "test:a") {
			break
		}
	}
}

// Without sessions each request of each revision stands alone.
func TestNoSessions(t *testing.T) {
	_, h := replica(t, ServerOptions{}, mcphttp.Options{Sessions: "none"})
	web := httptest.NewServer(h)
	t.Cleanup(web.Close)
	for _, rev := range era.Revisions() {
		if !rev.Handshake {
			continue
		}
		resp, text := fetch(t, web.URL, "POST", hello(rev.Name))
		if resp.Header.Get("Mcp-Session-Id") != "" || !strings.Contains(text, rev.Name) {
			t.Errorf("%s: %v %s", rev.Name, resp.Header, text)
		}
		if resp, text := fetch(t, web.URL, "POST", initialized); resp.StatusCode != http.StatusAccepted {
			t.Errorf("%s: %s %s", rev.Name, resp.Status, text)
		}
		if _, text := fetch(t, web.URL, "POST", legacyFrame("1", "tools/call", `{"name":"who"}`),
			"MCP-Protocol-Version: "+rev.Name); !strings.Contains(text, ` false"`) {
			t.Errorf("%s: %s", rev.Name, text)
		}
		if _, text := fetch(t, web.URL, "POST", legacyFrame("1", "tools/call", `{"name":"ask"}`),
			"MCP-Protocol-Version: "+rev.Name); !strings.Contains(text, "elicit") {
			t.Errorf("%s: %s", rev.Name, text)
		}
	}
	if resp, _ := fetch(t, web.URL, "GET", "", "Accept: text/event-stream"); resp.StatusCode !=
		http.StatusMethodNotAllowed {
		t.Errorf("GET: %s", resp.Status)
	}
	if h.Sessions() > 16 {
		t.Errorf("%d sessions are in memory", h.Sessions())
	}
}
