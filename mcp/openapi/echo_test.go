package openapi

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// echo answers each request with what it was: its line, the headers that clients of HTTP do not
// send on their own, and its body, with multipart taken apart.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprintf(w, "%s %s\n", r.Method, r.RequestURI)
	var names []string
	for name := range r.Header {
		if !slices.Contains([]string{"Accept", "Accept-Encoding", "User-Agent", "Content-Length"}, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	multipart := strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/")
	for _, name := range names {
		if name != "Content-Type" || !multipart {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Join(r.Header[name], " | "))
		}
	}
	if !multipart {
		io.Copy(w, r.Body)
		return
	}
	parts, err := r.MultipartReader()
	for err == nil {
		var part interface {
			io.Reader
			FormName() string
			FileName() string
		}
		p, e := parts.NextPart()
		if err = e; e != nil {
			break
		}
		part = p
		data, _ := io.ReadAll(part)
		fmt.Fprintf(w, "part %s (%s) %s: %s\n", part.FormName(), part.FileName(),
			p.Header.Get("Content-Type"), data)
	}
}

// serveAPI starts an API.
func serveAPI(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// docOf is a document with paths and what else it has.
func docOf(paths string, more ...string) []byte {
	var rest strings.Builder
	for _, m := range more {
		rest.WriteString("," + m)
	}
	version := `"openapi":"3.0.3"`
	if strings.Contains(rest.String(), `"openapi":`) || strings.Contains(rest.String(), `"swagger":`) {
		return fmt.Appendf(nil, `{"info":{"title":"t","version":"1"},"paths":{%s}%s}`, paths,
			rest.String())
	}
	return fmt.Appendf(nil, `{%s,"info":{"title":"t","version":"1"},"paths":{%s}%s}`, version, paths,
		rest.String())
}

func mustLoad(t *testing.T, doc []byte, o *Options) *API {
	t.Helper()
	if o == nil {
		o = &Options{}
	}
	if o.BaseURL == "" && o.Client == nil && !o.AllowPrivate {
		o.BaseURL = "https://api.example.test/v1"
	}
	api, err := New(doc, o)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// dialAPI returns a client of a server that has the tools.
func dialAPI(t *testing.T, api *API) *mcp.Client {
	t.Helper()
	s := mcp.NewServer("api", "1", &mcp.ServerOptions{Arguments: mcp.Strict})
	api.AddTo(s)
	a, b := farcall.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), b) }()
	c, err := mcp.Connect(t.Context(), a, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); <-done; s.Close() })
	return c
}

func callTool(t *testing.T, c *mcp.Client, name, args string) *spec.CallToolResult {
	t.Helper()
	r, err := c.CallTool(t.Context(), name, jsonrpc.Raw(args))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func textOf(r *spec.CallToolResult) string {
	var all []string
	for _, c := range r.Content {
		all = append(all, c.Text)
	}
	return strings.Join(all, "\n")
}

// problemOf returns the problem of an operation.
func problemOf(api *API, operation string) string {
	var all []string
	for _, p := range api.Problems() {
		if p.Operation == operation {
			all = append(all, p.String())
		}
	}
	return strings.Join(all, "; ")
}
