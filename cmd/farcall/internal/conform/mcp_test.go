package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/stream"
)

// rightServer has everything that a case looks at.
func rightServer() *mcp.Server {
	s := mcp.NewServer(
		"right",
		"1.0.0",
		&mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler), PageSize: 2},
	)
	for n := range 5 {
		mcp.AddTool(s, mcp.Tool{Name: fmt.Sprintf("tool-%d", n), Description: "One of five."},
			func(context.Context, struct{}) (struct{ N int }, error) { return struct{ N int }{n}, nil })
	}
	s.AddResource(
		mcp.Resource{URI: "test://one", Name: "one"},
		func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{URI: uri, Text: "one"}}, nil
		},
	)
	return s
}

func mcpOverLines(s *mcp.Server) Dialer {
	return NewLines(func(ctx context.Context) (io.ReadWriteCloser, error) {
		near, far := net.Pipe()
		// it ends with the pipe
		go func() { _ = s.Serve(context.WithoutCancel(ctx), stream.New(far, stream.NDJSON, nil)) }()
		return near, nil
	})
}

func mcpOverMessages(s *mcp.Server) Dialer {
	return NewMessages(func(ctx context.Context) (farcall.Transport, error) {
		near, far := farcall.Pipe()
		go func() { _ = s.Serve(context.WithoutCancel(ctx), far) }() // it ends with the pipe
		return near, nil
	})
}

func TestMCPRightServerPasses(t *testing.T) {
	t.Parallel()
	s := rightServer()
	web := httptest.NewServer(mcphttp.NewHandler(s, nil))
	defer web.Close()
	for name, d := range map[string]Dialer{
		"lines": mcpOverLines(s), "messages": mcpOverMessages(s),
		"http": NewHTTP(web.Client(), web.URL, nil),
	} {
		report, err := RunMCP(t.Context(), d, nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, r := range report.Cases {
			revision, _, _ := strings.Cut(r.Name, "/")
			seen[revision] = true
			if r.Verdict == Fail {
				t.Errorf("%s: %s: %s\nsent %q\nreceived %q", name, r.Name, r.Finding, r.Sent, r.Received)
			}
		}
		if len(seen) != len(era.Revisions()) || report.Passed < 60 {
			t.Errorf(
				"%s: %d revisions, %d passed, %d skipped",
				name,
				len(seen),
				report.Passed,
				report.Skipped,
			)
		}
	}
}

// A broken server answers one thing in a wrong way: damage changes the request, or the
// response, and reports whether it has answered.
type damage func(method string, r *http.Request, rec *httptest.ResponseRecorder)

// replaced puts a body in place of the answer to a method.
func replaced(of, old, with string) damage {
	return func(method string, _ *http.Request, rec *httptest.ResponseRecorder) {
		if method == of {
			rec.Body = bytes.NewBufferString(strings.ReplaceAll(rec.Body.String(), old, with))
		}
	}
}

// second applies damage to the second answer to a method, and not to the first.
func second(of string, d damage) damage {
	var n atomic.Int32
	return func(method string, r *http.Request, rec *httptest.ResponseRecorder) {
		if method == of && n.Add(1) > 1 {
			d(method, r, rec)
		}
	}
}

// batching is the revision with batches.
func batching() string {
	i := slices.IndexFunc(era.Revisions(), func(r *era.Revision) bool { return r.Batch })
	return era.Revisions()[i].Name
}

// status puts a status in place of that of requests that is chosen.
func status(code int, chosen func(method string, r *http.Request) bool) damage {
	return func(method string, r *http.Request, rec *httptest.ResponseRecorder) {
		if chosen(method, r) {
			rec.Code = code
		}
	}
}

// Each fault is found by the case that is about it.
func TestMCPBrokenServerIsFound(t *testing.T) {
	t.Parallel()
	latest, legacy := era.Latest().Name, era.LatestLegacy().Name
	ping := func(method string, _ *http.Request) bool { return method == "ping" }
	for name, c := range map[string]struct {
		by     string
		damage damage
	}{
		"no serverInfo": {
			legacy + "/initialize/result",
			replaced("initialize", `"serverInfo"`, `"server"`),
		},
		"repeats any revision": {
			legacy + "/initialize/unknown-revision",
			second("initialize",
				replaced("initialize", `"protocolVersion":"`+legacy, `"protocolVersion":"`+unknownRevision)),
		},
		"ping with members": {legacy + "/ping", replaced("ping", `"result":{`, `"result":{"pong":1`)},
		"unknown is -32600": {
			latest + "/messages/unknown-method",
			replaced(noMethod, "-32601", "-32600"),
		},
		"no nextCursor string": {
			legacy + "/tools/list", replaced("tools/list", `"nextCursor":"`, `"nextCursor":7,"was":"`),
		},
		"nameless tools": {latest + "/tools/list", replaced("tools/list", `"name":`, `"label":`)},
		"no ttlMs":       {latest + "/tools/list", replaced("tools/list", `"ttlMs"`, `"ttl"`)},
		"no resultType": {
			latest + "/discover/result",
			replaced("server/discover", `"resultType"`, `"kind"`),
		},
		"no server in _meta": {
			latest + "/discover/server",
			replaced("server/discover", "/serverInfo", "/server"),
		},
		"list without end": {
			legacy + "/tools/list", replaced("tools/list", `"nextCursor":"`, `"nextCursor":"same","was":"`),
		},
		"same names": {legacy + "/tools/unique", replaced("tools/list", "tool-1", "tool-0")},
		"schema of a string": {
			latest + "/tools/schemas",
			replaced("tools/list", `"type":"object"`, `"type":"string"`),
		},
		"any cursor": {
			legacy + "/tools/list/cursor",
			replaced("tools/list", "-32602", "-32600"),
		},
		"unknown tool is -1": {latest + "/tools/unknown", replaced("tools/call", "-32602", "-1")},
		"no contents": {
			legacy + "/resources/read",
			replaced("resources/read", `"contents"`, `"content"`),
		},
		"unknown URI is -1": {
			legacy + "/resources/unknown",
			replaced("resources/read", fmt.Sprint(int(era.LatestLegacy().ResourceNotFound)), "-1"),
		},
		"tools undeclared": {legacy + "/tools/list", replaced("initialize", `"tools":`, `"tool":`)},
		"never acknowledges": {
			latest + "/subscriptions/acknowledged",
			replaced("subscriptions/listen", "acknowledged", "begun"),
		},
		"speaks any revision": {
			latest + "/versioning/unknown-revision",
			replaced("server/discover", "-32022", "-32602"),
		},
		"needs no _meta": {
			latest + "/meta/missing",
			replaced("server/discover", "-32602", "-32600"),
		},
		"mismatch is -32600": {
			latest + "/http/method-mismatch",
			replaced("server/discover", "-32020", "-32600"),
		},
		"any origin": {
			legacy + "/http/origin",
			status(http.StatusOK, func(_ string, r *http.Request) bool {
				return r.Header.Get("Origin") != ""
			}),
		},
		"text": {
			legacy + "/http/content-type",
			func(method string, _ *http.Request, rec *httptest.ResponseRecorder) {
				if method == "ping" {
					rec.Header().Set("Content-Type", "text/json")
				}
			},
		},
		"notification is 200": {
			legacy + "/http/notification",
			status(http.StatusOK, func(method string, _ *http.Request) bool {
				return method == "notifications/initialized"
			}),
		},
		"answers notifications": {
			legacy + "/http/notification",
			func(method string, _ *http.Request, rec *httptest.ResponseRecorder) {
				if method == "notifications/initialized" {
					rec.Body = bytes.NewBufferString("{}")
				}
			},
		},
		"GET is 404": {
			legacy + "/http/get",
			status(http.StatusNotFound, func(_ string, r *http.Request) bool {
				return r.Method == http.MethodGet
			}),
		},
		"session with a space": {
			legacy + "/http/session-id",
			func(method string, _ *http.Request, rec *httptest.ResponseRecorder) {
				if id := rec.Header().Get(headerSession); id != "" {
					rec.Header().Set(headerSession, id+" x")
				}
			},
		},
		"needs no session":     {legacy + "/http/session-missing", status(http.StatusOK, ping)},
		"finds what was ended": {legacy + "/http/session-ended", status(http.StatusBadRequest, ping)},
		"any version":          {legacy + "/http/version", status(http.StatusOK, ping)},
		"unknown method is 200": {
			latest + "/http/unknown-method",
			status(http.StatusOK, func(method string, _ *http.Request) bool {
				return method == noMethod
			}),
		},
		"no batch": {batching() + "/messages/batch", replaced("", `"result"`, `"results"`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := mcphttp.NewHandler(rightServer(), nil)
			web := httptest.NewServer(
				http.HandlerFunc(
					func(w http.ResponseWriter, r *http.Request) { serveDamaged(w, r, inner, c.damage) },
				),
			)
			defer web.Close()
			revision, _, _ := strings.Cut(c.by, "/")
			report, err := RunMCP(
				t.Context(),
				NewHTTP(web.Client(), web.URL, nil),
				&Options{Revisions: []*era.Revision{era.Lookup(revision)}},
			)
			if err != nil {
				t.Fatal(err)
			}
			var failed []string
			for _, r := range report.Cases {
				if r.Verdict == Fail {
					failed = append(failed, r.Name)
				}
			}
			if !slices.Contains(failed, c.by) || len(failed) > 12 {
				t.Errorf("%s does not find it; these do: %q", c.by, failed)
			}
		})
	}
}

// serveDamaged answers as inner does, and damages the answer.
func serveDamaged(w http.ResponseWriter, r *http.Request, inner http.Handler, d damage) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var m struct{ Method string }
	_ = json.Unmarshal(body, &m) // a batch has none
	if id := r.Header.Get(headerSession); strings.HasSuffix(id, " x") {
		r.Header.Set(headerSession, strings.TrimSuffix(id, " x"))
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.Clone(ctx)
	r.Body = io.NopCloser(bytes.NewReader(body))
	rec := httptest.NewRecorder()
	if m.Method == "subscriptions/listen" || r.Method == http.MethodGet { // it would go on
		rec.Header().Set("Content-Type", "text/event-stream")
		rec.Body.WriteString(
			`data: {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged",` +
				`"params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"notifications":{}}}` + "\n\n",
		)
		d(m.Method, r, rec)
	} else {
		inner.ServeHTTP(rec, r)
		d(m.Method, r, rec)
	}
	maps.Copy(w.Header(), rec.Header())
	w.Header().Del("Content-Length")
	w.WriteHeader(rec.Code)
	_, _ = w.Write(rec.Body.Bytes()) // the client sees it
}

// Each case of the text has code, and asks for properties that there are.
func TestMCPCasesAreComplete(t *testing.T) {
	t.Parallel()
	has := properties(era.Revisions()[0])
	for _, c := range mcpCases() {
		if c.run == nil || c.title == "" || c.expected == "" {
			t.Errorf("%s has no code, title or expectation", c.name)
		}
		for _, property := range c.when {
			if _, ok := has[property]; !ok {
				t.Errorf("%s: there is no property %s of revisions", c.name, property)
			}
		}
	}
}
