package openapi

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/fetch"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const getOp = `"/p":{"get":{"operationId":"op"}}`

// answer calls a tool of an API that answers in one way.
func answer(t *testing.T, status int, media, body string) *spec.CallToolResult {
	t.Helper()
	api := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = []string{media}
		w.WriteHeader(status)
		io.WriteString(w, body)
	})
	return callTool(t, dialAPI(t, mustLoad(t, docOf(getOp), &Options{BaseURL: api.URL, MaxText: 200})),
		"op", `{}`)
}

// TestResponses: rows 34 to 37.
func TestResponses(t *testing.T) {
	items := `[` + strings.TrimSuffix(strings.Repeat(`{"n":12345678},`, 50), ",") + `]`
	for _, test := range []struct {
		row    string
		status int
		media  string
		body   string
		text   string
		json   string
		failed bool
	}{
		{
			"34 JSON", 200, "application/json", ` {"a":1.10,"b":9007199254740993} `,
			`{"a":1.10,"b":9007199254740993}`, `{"a":1.10,"b":9007199254740993}`, false,
		},
		{"34 JSON of any type", 201, "application/vnd.x+json; charset=utf-8", `[1]`, `[1]`, `[1]`, false},
		{"34 JSON that says it is text", 200, "text/plain", `{"a":1}`, `{"a":1}`, `{"a":1}`, false},
		{"34 invalid JSON", 200, "application/json", `{"a":`, `{"a":`, ``, false},
		{"no content", 204, "", "", "204 No Content", "", false},
		{"text", 200, "text/csv", "a,b\n", "a,b\n", "", false},
		{
			"text that is long", 200, "text/plain", strings.Repeat("ü", 150),
			strings.Repeat("ü", 100) + "\n… the rest of 300 bytes is left out", "", false,
		},
		{
			"an array that is long", 200, "application/json", items,
			`[` + strings.TrimSuffix(strings.Repeat(`{"n":12345678},`, 13), ",") +
				"]\n… 37 of 50 items left out; narrow the request, or ask for another page",
			`[` + strings.TrimSuffix(strings.Repeat(`{"n":12345678},`, 13), ",") + `]`, false,
		},
		{
			"an array within", 200, "application/json", `{"more":true,"data":` + items + `}`,
			`{"more":true,"data":[` + strings.TrimSuffix(strings.Repeat(`{"n":12345678},`, 11), ",") +
				"]}\n… 39 of 50 items left out; narrow the request, or ask for another page",
			`{"more":true,"data":[` + strings.TrimSuffix(strings.Repeat(`{"n":12345678},`, 11), ",") + `]}`,
			false,
		},
		{
			"an array that a text repeats", 200, "application/json",
			`{"s":"` + strings.Repeat("[1]", 1) + `","a":[1],"b":[` + strings.Repeat("12345678,", 30) +
				`1]}`,
			`{"s":"[1]","a":[1],"b":[` + strings.TrimSuffix(strings.Repeat("12345678,", 19), ",") +
				"]}\n… 12 of 31 items left out; narrow the request, or ask for another page",
			`{"s":"[1]","a":[1],"b":[` + strings.TrimSuffix(strings.Repeat("12345678,", 19), ",") + `]}`,
			false,
		},
		{
			"an object that is long", 200, "application/json", `{"a":"` + strings.Repeat("x", 300) + `"}`,
			`{"a":"` + strings.Repeat("x", 194) + "\n… the rest of 308 bytes is left out", "", false,
		},
		{
			"37 not found", 404, "application/json", `{"message":"no pet"}`,
			"404 Not Found\n{\"message\":\"no pet\"}", "", true,
		},
		{
			"37 a problem", 409, "application/problem+json",
			`{"type":"about:blank","title":"Taken","detail":"The name is taken.","status":409,"name":"Rex"}`,
			"409 Conflict\nTaken\nThe name is taken.\nname: \"Rex\"", "", true,
		},
		{
			"37 a page", 502, "text/html", "<html><h1>Bad</h1>gateway</html>",
			"502 Bad Gateway\nBad gateway", "", true,
		},
		{
			"37 a long error", 500, "text/plain", strings.Repeat("x", 5000),
			"500 Internal Server Error\n" + strings.Repeat("x", maxProblem), "", true,
		},
		{
			"an unexpected status", 302, "", "", "302 Found: the API redirects to , which is not followed",
			"", true,
		},
	} {
		t.Run(test.row, func(t *testing.T) {
			r := answer(t, test.status, test.media, test.body)
			if textOf(r) != test.text || string(r.StructuredContent) != test.json ||
				r.IsError != test.failed {
				t.Errorf("%v\n%s\n%s", r.IsError, textOf(r), r.StructuredContent)
			}
		})
	}
	t.Run("35 media", func(t *testing.T) {
		png := "\x89PNG\x00\xff"
		if c := answer(t, 200, "image/png", png).Content[0]; c.Type != "image" || string(c.Data) != png ||
			c.MIMEType != "image/png" {
			t.Errorf("%+v", c)
		}
		if c := answer(t, 200, "audio/wav", png).Content[0]; c.Type != "audio" {
			t.Errorf("%+v", c)
		}
		if c := answer(t, 200, "application/pdf", png).Content[0]; c.Type != "resource" ||
			string(c.Resource.Blob) != png || c.Resource.MIMEType != "application/pdf" {
			t.Errorf("%+v", c)
		}
		if r := answer(t, 200, "image/png", strings.Repeat("\xff", maxBinaryBody+1)); !r.IsError ||
			!strings.Contains(textOf(r), "more than 8388608 bytes") {
			t.Errorf("%s", textOf(r))
		}
	})
}

// TestHints: what an API complains about is described again.
func TestHints(t *testing.T) {
	api := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusUnprocessableEntity)
		io.WriteString(w, `{"errors":{"colour":["is none"],"id":["valid"]}}`)
	})
	doc := docOf(
		`"/p":{"post":{"operationId":"op",` +
			`"requestBody":{"content":{"application/json":{"schema":{"type":"object",` +
			`"properties":{"colour":{"enum":["red"]},"size":{"type":"integer"}}}}}}}}`)
	r := callTool(t, dialAPI(t, mustLoad(t, doc, &Options{BaseURL: api.URL})), "op", `{"size":1}`)
	if want := "422 Unprocessable Entity (retry after 7)\n{\"errors\":{\"colour\":[\"is none\"]," +
		"\"id\":[\"valid\"]}}\nThe argument colour: {\"enum\":[\"red\"]}"; textOf(r) != want {
		t.Errorf("%s", textOf(r))
	}
}

// TestEvents: row 36. The events of a stream are progress, and together the result.
func TestEvents(t *testing.T) {
	api := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, ": hello\ndata: one\ndata: more\n\nevent: x\ndata:two\n\n")
	})
	c := dialAPI(t, mustLoad(t, docOf(getOp), &Options{BaseURL: api.URL}))
	events := make(chan string, 10)
	ctx := mcp.OnProgress(t.Context(), func(p spec.ProgressNotificationParams) { events <- p.Message })
	r, err := c.CallTool(ctx, "op", nil)
	if err != nil || !strings.Contains(textOf(r), "data:two") {
		t.Fatal(err, textOf(r))
	}
	if a, b := <-events, <-events; a != "one more" || b != "two" {
		t.Errorf("%q %q", a, b)
	}
}

// TestCredentials: they go to the origin of the API, and to no other.
func TestCredentials(t *testing.T) {
	evil := serveAPI(t, echo)
	api := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/p/away":
			http.Redirect(w, r, evil.URL+"/stolen", http.StatusFound)
		case "/p/here":
			http.Redirect(w, r, "/p/there", http.StatusFound)
		case "/p/round":
			http.Redirect(w, r, "/p/round", http.StatusFound)
		default:
			echo(w, r)
		}
	})
	elsewhere := strings.Replace(evil.URL, "127.0.0.1", "localhost", 1)
	doc := docOf(
		`"/p/{v}":{"parameters":[{"in":"path","name":"v"}],"get":{"operationId":"get"},"post":{"operationId":"post"},"put":{"operationId":"open","security":[]},
		"delete":{"operationId":"other","servers":[{"url":"`+elsewhere+
			`"}]},"patch":{"operationId":"cookie","parameters":[{"in":"cookie","name":"c",`+
			`"required":true}]}}`,
		`"security":[{"k":[]}]`)
	header := http.Header{"Authorization": {"Bearer hunter2"}, "Cookie": {"s=1"}}
	c := dialAPI(t,
		mustLoad(t, doc, &Options{BaseURL: api.URL, Servers: []string{elsewhere}, Header: header}))
	header.Set("Authorization", "changed")
	for _, test := range []struct{ tool, args, want string }{
		{"get", `{"v":"x"}`, "GET /p/x\nAuthorization: Bearer hunter2\nCookie: s=1\n"},
		{
			"get", `{"v":"here"}`,
			"GET /p/there\nAuthorization: Bearer hunter2\nCookie: s=1\nReferer: " + api.URL + "/p/here\n",
		},
		{
			"get", `{"v":"away"}`,
			"302 Found: the API redirects to " + evil.URL + "/stolen, which is not followed",
		},
		{"get", `{"v":"round"}`, "302 Found: the API redirects to /p/round, which is not followed"},
		{"post", `{"v":"here"}`, "302 Found: the API redirects to /p/there, which is not followed"},
		{"open", `{"v":"x"}`, "PUT /p/x\n"},
		{"other", `{"v":"x"}`, "DELETE /p/x\n"},
		{"cookie", `{"v":"x","c":"2"}`, "PATCH /p/x\nAuthorization: Bearer hunter2\nCookie: s=1; c=2\n"},
	} {
		if got := textOf(callTool(t, c, test.tool, test.args)); got != test.want {
			t.Errorf("%s %s: got\n%s\nwant\n%s", test.tool, test.args, got, test.want)
		}
	}
}

// TestDialled: of a server that the document chose, what its name leads to is checked when it is
// dialled.
func TestDialled(t *testing.T) {
	api, err := New(docOf(getOp, `"servers":[{"url":"https://api.example.test"}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := api.sender.client.Transport.(*http.Transport)
	for _, address := range []string{
		"127.0.0.1:1", "10.0.0.1:1", "169.254.169.254:80", "[::1]:1",
		"0.0.0.0:1",
	} {
		if _, err := transport.DialContext(t.Context(), "tcp", address); !errors.Is(err,
			fetch.ErrAddress) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if transport.Proxy != nil {
		t.Error("a proxy would look names up unchecked")
	}
	err = api.sender.failure(t.Context(),
		&url.Error{
			URL: "https://api.example.test/?key=hunter2",
			Err: fmt.Errorf("dial: %w", fetch.ErrAddress),
		})
	if err.Error() != "the API at https://api.example.test may not be reached: its name leads to an "+
		"address that is not public" {
		t.Error(err)
	}
}

// TestLimits: a response is read as far as the limits go, unpacked.
func TestLimits(t *testing.T) {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(bytes.Repeat([]byte("x"), 4<<20))
	z.Close()
	api := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Content-Type", "application/json")
		w.Write(bomb.Bytes())
	})
	r := callTool(t, dialAPI(t, mustLoad(t, docOf(getOp), &Options{BaseURL: api.URL})), "op", `{}`)
	if got := textOf(r); len(got) > 26_000 ||
		!strings.HasSuffix(got, "… the rest of 1048576 bytes is left out") {
		t.Errorf("%d bytes: %s", len(got), got[max(0, len(got)-100):])
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRetries: what may be repeated is sent once more, after a while; nothing else is.
func TestRetries(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, test := range []struct {
		name, method, after string
		status              int
		err                 error
		sent                int
		took                time.Duration
	}{
		{"cannot be reached", "get", "", 0, refused, 2, retryWait},
		{"broken", "get", "", 0, io.ErrUnexpectedEOF, 1, 0},
		{"cannot be reached, not repeatable", "post", "", 0, refused, 1, 0},
		{"busy", "put", "", 503, nil, 2, retryWait},
		{"busy for a while", "get", "3", 503, nil, 2, 3 * time.Second},
		{"busy for long", "get", "60", 503, nil, 1, 0},
		{"too many", "delete", "1", 429, nil, 2, time.Second},
		{"too many, for how long?", "get", "", 429, nil, 1, 0},
		{"not repeatable", "patch", "", 503, nil, 1, 0},
		{"an error", "get", "", 500, nil, 1, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sent := 0
				client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
					sent++
					if body, _ := io.ReadAll(r.Body); test.method == "put" && string(body) != `{"a":1}` {
						t.Errorf("attempt %d has the body %q", sent, body)
					}
					if test.err != nil {
						return nil, test.err
					}
					return &http.Response{
						StatusCode: test.status, Status: "x",
						Header: http.Header{"Retry-After": {test.after}}, Body: http.NoBody, Request: r,
					}, nil
				})}
				body := `"requestBody":{"content":{"application/json":{"schema":{"type":"object",` +
					`"properties":{"a":{}}}}}}`
				a := mustLoad(t, docOf(`"/p":{"`+test.method+`":{`+body+`}}`),
					&Options{Client: client, BaseURL: "https://a.test"})
				start := time.Now()
				only(t, a).plan.call(t.Context(), []byte(`{"a":1}`))
				if took := time.Since(start); sent != test.sent || took != test.took {
					t.Errorf("sent %d times in %v", sent, took)
				}
			})
		})
	}
}

// TestTimeout: an API that does not answer ends the call after a while, and so does its caller.
func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}
		tool := only(t, mustLoad(t, docOf(getOp), &Options{Client: client, BaseURL: "https://a.test"}))
		start := time.Now()
		if _, err := tool.plan.call(t.Context(), nil); err == nil ||
			err.Error() != "the API did not answer within 30s" || time.Since(start) != 30*time.Second {
			t.Error(err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, err := tool.plan.call(ctx, nil); err == nil {
			t.Error("the call outlived its caller")
		}
	})
}

// FuzzCutItems: what is cut is JSON within the limit.
func FuzzCutItems(f *testing.F) {
	f.Add([]byte(`{"a":[1,2,3],"b":[[],[]]}`), 20)
	f.Add([]byte(`[{"a":"b"},2]`), 10)
	f.Add([]byte(`{"s":"[1,2,3]","a":[1,2,3]}`), 24)
	f.Fuzz(func(t *testing.T, body []byte, limit int) {
		body = bytes.TrimSpace(body)
		if _, fault := scan.Text(body, 64); fault != scan.OK || len(body) == 0 || limit < 0 {
			return
		}
		out, left, all := cutItems(body, limit)
		if out == nil {
			return
		}
		if _, fault := scan.Text(out, 64); fault != scan.OK || len(out) > limit || left > all {
			t.Errorf("%s: %s (%d of %d)", body, out, left, all)
		}
	})
}
