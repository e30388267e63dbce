package inspect

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
	"github.com/farcall-dev/farcall/wsrpc"
)

// Each way in which a foreign page has got into MCP Inspector, or into a server of an SDK,
// ends here.
func TestForeignPages(t *testing.T) {
	t.Parallel()
	i, err := New(t.Context(), &Options{AnyServer: true})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	const host, token = "127.0.0.1:7333", "farcall.inspect.1, token."
	for name, test := range map[string]struct {
		method, url, host string
		header            map[string]string
		want              int
	}{
		"CVE-2025-49596: no credentials": {"GET", "/api", host, nil, 401},
		"CVE-2025-49596: 0.0.0.0 from a foreign page": {
			"GET", "/api", "0.0.0.0:7333",
			map[string]string{"Origin": "http://evil.example", "Sec-WebSocket-Protocol": token + i.Token()},
			403,
		},
		"CVE-2025-49596: a command in a query": {"GET", "/api?transportType=stdio&comm" +
			"and=touch&args=/tmp/x", host, nil, 401},
		"CVE-2025-66414: a rebound name": {
			"GET", "/api", "evil.example:7333",
			map[string]string{"Sec-WebSocket-Protocol": token + i.Token()},
			403,
		},
		"CVE-2025-66416: a rebound name, its own page": {
			"GET", "/api", "evil.example",
			map[string]string{"Origin": "http://evil.example", "Sec-WebSocket-Protocol": token + i.Token()},
			403,
		},
		"CVE-2026-42559: the page at a rebound name": {"GET", "/", "evil.example", nil, 403},
		"CVE-2026-34742: a rebound name with a port": {"POST", "/api", "evil.example:80", nil, 403},
		"CVE-2026-33252: a simple request": {"POST", "/api", host, map[string]string{
			"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Content-Type": "text/plain",
		}, 403},
		"CVE-2026-33252: without metadata": {
			"POST", "/api", host,
			map[string]string{"Origin": "https://evil.example", "Content-Type": "text/plain"},
			403,
		},
		"a rebound name with a last dot": {"GET", "/", "evil.example.", nil, 403},
		"a foreign page's WebSocket": {
			"GET", "/api", host,
			map[string]string{
				"Origin": "https://evil.example", "Upgrade": "websocket",
				"Connection": "Upgrade", "Sec-WebSocket-Protocol": token + i.Token(),
			},
			403,
		},
		"a page of another port": {
			"GET", "/api", host,
			map[string]string{
				"Origin":                 "http://127.0.0.1:8080",
				"Sec-WebSocket-Protocol": token + i.Token(),
			},
			403,
		},
		"a sandboxed frame": {"GET", "/api", host, map[string]string{
			"Origin": "null", "Sec-WebSocket-Protocol": token + i.Token(),
		}, 403},
		"an image of a foreign page": {"GET", "/api", host, map[string]string{
			"Sec-Fetch-Site": "cross-site",
		}, 403},
		"two origins": {
			"GET", "/api", host,
			map[string]string{"Origin": "http://127.0.0.1:7333 http://evil.example"},
			403,
		},
		"a form": {
			"POST", "/api", host,
			map[string]string{
				"Origin":       "https://evil.example",
				"Content-Type": "application/x-www-form-urlencoded",
			},
			403,
		},
		"a form without an origin": {"POST", "/api", host, map[string]string{
			"Content-Type": "text/plain",
		}, 401},
		"a wrong token": {"GET", "/api", host, map[string]string{
			"Sec-WebSocket-Protocol": token + "AAAAAAAAAAAAAAAAAAAAAAAAAA",
		}, 401},
		"an empty token": {"GET", "/api", host, map[string]string{
			"Sec-WebSocket-Protocol": token,
		}, 401},
		"the beginning of the token": {"GET", "/api", host, map[string]string{
			"Sec-WebSocket-Protocol": token + i.Token()[:8],
		}, 401},
		"the token in a query": {
			"GET", "/api?token=" + i.Token(), host,
			nil, 401,
		},
		"the token in a cookie": {"GET", "/api", host, map[string]string{
			"Cookie": "token=" + i.Token(),
		}, 401},
		"a post to the page":         {"POST", "/", host, nil, 405},
		"an upload without a ticket": {"POST", "/open?ticket=", host, nil, 403},
		"a download with the token":  {"GET", "/save?ticket=" + i.Token(), host, nil, 403},
		"a form that uploads": {
			"POST", "/open?ticket=x", host, map[string]string{"Origin": "https://evil.example"}, 403,
		},
		"another path": {"GET", "/../etc/passwd", host, nil, 404},
		"the page":     {"GET", "/", host, nil, 200},
		"a link of another page to the page": {"GET", "/", host, map[string]string{
			"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
		}, 200},
	} {
		r := httptest.NewRequestWithContext(t.Context(), test.method, test.url, nil)
		r.Host = test.host
		for k, v := range test.header {
			r.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		i.ServeHTTP(w, r)
		if w.Code != test.want {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, test.want)
		}
		h := w.Header()
		if w.Code == 200 &&
			(h.Get("Content-Security-Policy") != policy || h.Get(
				"X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer") {
			t.Errorf("%s: the headers are %v", name, h)
		}
		if h.Get("Access-Control-Allow-Origin") != "" || h.Get("Set-Cookie") != "" {
			t.Errorf("%s: the headers are %v", name, h)
		}
	}
	if strings.Contains(policy, "unsafe") ||
		!strings.HasPrefix(framePolicy, "sandbox allow-scripts;") ||
		strings.Contains(framePolicy, "allow-same-origin") ||
		strings.Contains(framePolicy, "connect-src") {
		t.Error("a policy is too weak")
	}
}

// A page that is not allowed to name servers cannot start programs.
func TestOnly(t *testing.T) {
	t.Parallel()
	_, p, _ := inspector(t, &Options{Servers: []Server{{InProcess: playground()}}})
	p.fails("add", serverParams{Command: []string{"touch", "x"}}, "were not allowed")
	p.fails("add", serverParams{Target: "http://127.0.0.1:1"}, "were not allowed")
}

// Behind a guard no token is needed.
func TestOpen(t *testing.T) {
	t.Parallel()
	i, err := New(t.Context(), &Options{Open: true})
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	s := httptest.NewServer(http.StripPrefix("/inspect", i))
	defer s.Close()
	tr, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(s.URL, "http")+"/inspect/api", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := farcall.NewPeer(tr, nil, nil)
	defer p.Close()
	var h helloResult
	if err := p.Call(t.Context(), "hello", none{}, &h); err != nil || h.AnyServer {
		t.Errorf("%+v, %v", h, err)
	}
	for path, want := range map[string]int{
		"/inspect": http.StatusTemporaryRedirect, "/inspect/": 200, "/inspect/main.js": 200,
		"/inspect/none.js": 404,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want ||
			want == http.StatusTemporaryRedirect && resp.Header.Get("Location") != "inspect/" {
			t.Errorf("%s: %d %v", path, resp.StatusCode, resp.Header)
		}
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
}

// The page is small, whole, and without anything that the policy forbids.
func TestPage(t *testing.T) {
	t.Parallel()
	files, err := onhttp.ReadAssets(assets, "assets")
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for name, f := range files {
		var w counter
		z, _ := gzip.NewWriterLevel(&w, gzip.BestCompression)
		_, _ = z.Write(f.Body) // w takes all
		_ = z.Close()
		size += int(w)
		if name == frameFile {
			continue // it has another policy
		}
		if bad := regexp.MustCompile(`(?i)<script>|\sstyle="|\son[a-z]+="|innerHTML|outerHTML|` +
			`insertAdjacentHTML|document\.write|\beval\(|new Function|https?://[a-z]+\.[a-z]`).
			Find(f.Body); bad != nil &&
			name != pageFile &&
			!strings.HasSuffix(name, ".svg") &&
			!regexp.MustCompile(`http://localhost`).Match(bad) {
			t.Errorf("%s has %s", name, bad)
		}
		for _, m := range regexp.MustCompile(`from '\./([a-z]+\.js)'`).FindAllSubmatch(f.Body, -1) {
			if _, ok := files[string(m[1])]; !ok {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
	}
	t.Logf("%d files, %d bytes in gzip", len(files), size)
	if size > 250_000 {
		t.Errorf("the page has %d bytes in gzip, 250,000 allowed", size)
	}
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// hostile is a server that answers what no server should.
func hostile(
	t *testing.T,
	answers map[string]string,
) func(context.Context) (farcall.Transport, error) {
	t.Helper()
	return func(context.Context) (farcall.Transport, error) {
		near, far := farcall.Pipe()
		farcall.NewPeer(
			far,
			farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
				if a, ok := answers[r.Method]; ok {
					return jsonrpc.Raw(a), nil
				}
				return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found")
			}),
			nil,
		)
		return near, nil
	}
}

const initialized = `{"protocolVersion":"` + spec.Revision20251125 + `","capabilities":{` +
	`"tools":{}},"serverInfo":{"name":"x","version":"1"}}`

// 50,000 tools, one twice, are listed in parts.
func TestManyTools(t *testing.T) {
	t.Parallel()
	many := race.Fewer(50_000)
	var b strings.Builder
	b.WriteString(`{"tools":[{"name":"t0","inputSchema":{}}`)
	for n := range many {
		fmt.Fprintf(
			&b,
			`,{"name":"t%d","description":"\u202e\u001b[31m<img src=x onerror=alert(1)>",`+
				`"inputSchema":{"type":"object"}}`,
			n,
		)
	}
	b.WriteString(`]}`)
	_, p, _ := inspector(
		t,
		&Options{
			Servers: []Server{
				{
					Dial: hostile(
						t,
						map[string]string{"initialize": initialized, "tools/list": b.String()},
					),
					Protocol: "mcp",
					Era:      "legacy",
				},
			},
			Connect: true,
		},
	)
	p.state(1, stateReady)
	var got int
	for from := 0; ; {
		var l listResult
		p.call("list", listParams{Conn: 1, Kind: kindTool, From: from}, &l)
		from += len(l.Items)
		got += len(l.Items)
		if l.Total != many || !strings.Contains(l.Note, "more than once") {
			t.Fatalf("%d tools, %q", l.Total, l.Note)
		}
		if len(l.Items) == 0 {
			break
		}
	}
	if got != many {
		t.Errorf("%d tools are listed", got)
	}
}

// Text of 10 MB reaches the page in parts: in the answer of a tool, in its description, and as a
// frame.
func TestLargeText(t *testing.T) {
	race.Skip(t, "other texts take the same way")
	t.Parallel()
	size := 10 << 20
	if race.Enabled {
		size = maxResult + 1<<20
	}
	large := strings.Repeat("\u202e<b>", size/6)
	_, p, _ := inspector(
		t,
		&Options{
			Servers: []Server{
				{
					Dial: hostile(t, map[string]string{
						"initialize": initialized,
						"tools/list": `{"tools":[{"name":"big","description":"` + large + `","inputSchema":{}}]}`,
						"tools/call": `{"content":[{"type":"text","text":"` + large + `"}]}`,
					}),
					Protocol: "mcp",
					Era:      "legacy",
				},
			},
			Connect: true,
		},
	)
	p.state(1, stateReady)
	var l listResult
	p.call("list", listParams{Conn: 1, Kind: kindTool}, &l)
	if len(l.Items) != 1 || len(l.Items[0].Description) > 1<<10 {
		t.Errorf("%d tools, the description has %d bytes", len(l.Items), len(l.Items[0].Description))
	}
	o := p.tool("big", "{}")
	if !o.Cut || len(o.Result) > 1<<17 || o.Size < size {
		t.Errorf("the result has %d of %d bytes, cut %t", len(o.Result), o.Size, o.Cut)
	}
	var f frameResult
	p.call("frame", frameParams{Seq: o.To - 1}, &f)
	if len(f.Text) > 1<<20 || f.Size < size {
		t.Errorf("a part of the frame has %d of %d bytes", len(f.Text), f.Size)
	}
}

// A server that asks without end is refused, and what it says of itself is cut.
func TestTooManyQuestions(t *testing.T) {
	t.Parallel()
	long := strings.Replace(initialized, `"name":"x"`, `"name":"`+strings.Repeat("x", 1<<20)+`"`, 1)
	i, p, _ := inspector(
		t,
		&Options{
			Servers: []Server{
				{
					Dial:     hostile(t, map[string]string{"initialize": long}),
					Protocol: "mcp",
					Era:      "legacy",
				},
			},
			Connect: true,
		},
	)
	if v := p.state(1, stateReady); len(v.Info.Name) > 300 {
		t.Errorf("the name has %d bytes", len(v.Info.Name))
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, maxQuestions+1)
	for range maxQuestions + 1 {
		go func() {
			_, err := i.ask(ctx, questionView{Conn: 1, Method: "x"})
			ended <- err
		}()
	}
	if err := <-ended; !errors.Is(err, errTooMany) {
		t.Errorf("one more question: %v", err)
	}
	cancel()
	for range maxQuestions {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	large := questionView{Conn: 1, Method: "x", Params: make(jsonrpc.Raw, maxQuestionBytes+1)}
	if _, err := i.ask(t.Context(), large); err == nil {
		t.Error("a question of any size is taken")
	}
	if n := len(i.questions.views()); n > 0 {
		t.Errorf("%d questions are left", n)
	}
}

// Events are bounded in number and bytes.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	var e events
	for range maxEvents + 10 {
		e.add(eventLog, 1, "", "x")
	}
	if len(e.list) > maxEvents {
		t.Errorf("%d events are kept", len(e.list))
	}
	for range 2000 {
		e.add(eventLog, 1, "", strings.Repeat("x", maxEventText))
	}
	if e.bytes > maxEventBytes {
		t.Errorf("%d bytes are kept", e.bytes)
	}
	list, next, _ := e.since(0)
	if len(list) != maxBatch && len(list) == 0 || next != list[len(list)-1].N+1 {
		t.Errorf("%d events, the next is %d", len(list), next)
	}
}

func TestServers(t *testing.T) {
	t.Parallel()
	for want, s := range map[string]Server{
		"2 of Target": {Target: "x:1", Command: []string{"x"}}, "0 of Target": {}, "no protocol": {
			Target: "x:1", Protocol: "soap",
		}, "cannot use": {Target: "x"},
	} {
		if _, err := New(
			t.Context(),
			&Options{Servers: []Server{s}},
		); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", s, err, want)
		}
	}
}
