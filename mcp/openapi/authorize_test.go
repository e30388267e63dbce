package openapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// tokens is an Authorizer with a first token that has expired.
type tokens struct{ asked, challenged int }

func (a *tokens) Authorize(_ context.Context, r *http.Request) error {
	a.asked++
	token := "new"
	switch {
	case a.challenged == 0:
		token = "old"
	case a.challenged > 1:
		return errors.New("there is no third token")
	}
	r.Header.Set("Authorization", "Bearer "+token)
	return nil
}

func (a *tokens) Challenge(_ context.Context, r *http.Response) (bool, error) {
	a.challenged++
	return r.StatusCode == http.StatusUnauthorized, nil
}

const securedOps = `"/get":{"get":{"operationId":"get"}},"/post":{"post":{"operationId":"post","requestBody":{"content":{"text/plain":{}}}}},
	"/open":{"get":{"operationId":"open","security":[]}},"/far":{"servers":[{"url":"SERVER"}],"get":{"operationId":"far"}}`

// An Authorizer is asked for each request that credentials are for, and again when the API wants
// others.
func TestAuthorizer(t *testing.T) {
	var auth []string
	keep := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		auth = append(auth, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		if got := r.Header.Get("Authorization"); got == "Bearer old" {
			w.WriteHeader(http.StatusUnauthorized)
		} else if r.URL.Path == "/forbidden" {
			w.WriteHeader(http.StatusForbidden)
		}
	}
	api, other := serveAPI(t, keep), serveAPI(t, keep)
	call := func(a *tokens, tool, args string) *spec.CallToolResult {
		auth = nil
		o := &Options{BaseURL: api.URL, Servers: []string{other.URL}, Authorizer: a}
		return callTool(t,
			dialAPI(t, mustLoad(t, docOf(strings.Replace(securedOps, "SERVER", other.URL, 1)), o)),
			tool, args)
	}
	for _, test := range []struct{ tool, args, want string }{
		{"get", `{}`, "/get Bearer old |/get Bearer new "},
		{"post", `{"body":"text"}`, "/post Bearer old text|/post Bearer new text"},
		{"open", `{}`, "/open  "},
		{"far", `{}`, "/far  "},
	} {
		r := call(&tokens{}, test.tool, test.args)
		if got := strings.Join(auth, "|"); got != test.want || r.IsError {
			t.Errorf("%s: the API got %q, want %q; the result is an error: %v", test.tool, got, test.want,
				r.IsError)
		}
	}
	refused := &tokens{challenged: 1}
	api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	})
	r := call(refused, "get", `{}`)
	if text := r.Content[0].Text; !r.IsError || !strings.Contains(text, "there is no third token") ||
		refused.asked != 2 {
		t.Errorf("a failure of the Authorizer: %q after %d requests", text, refused.asked)
	}
}

// The origin that a document chooses gets no credentials.
func TestAuthorizerNeedsBase(t *testing.T) {
	doc := `{"openapi":"3.1.0","servers":[{"url":"https://example.com"}],"paths":{` + getOp + `}}`
	if _, err := New([]byte(doc), &Options{Authorizer: &tokens{}}); err == nil ||
		!strings.Contains(err.Error(), "BaseURL") {
		t.Errorf("the error is %v", err)
	}
}

// The trace context of a call goes to the API.
func TestTraceContext(t *testing.T) {
	got := make(http.Header)
	api := serveAPI(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	c := dialAPI(t, mustLoad(t, docOf(getOp), &Options{BaseURL: api.URL}))
	want := farcall.Trace{
		Parent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		State:  "a=b", Baggage: "k=v",
	}
	if _, err := c.CallTool(farcall.WithTrace(t.Context(), want), "op", nil); err != nil {
		t.Fatal(err)
	}
	if is := (farcall.Trace{
		Parent: got.Get("Traceparent"), State: got.Get("Tracestate"),
		Baggage: got.Get("Baggage"),
	}); is != want {
		t.Errorf("the API got %+v, want %+v", is, want)
	}
}

// Documents that differ, in the address of the API alone as well, have digests that differ.
func TestDigest(t *testing.T) {
	seen := map[string]string{}
	for _, doc := range []string{
		`{"openapi":"3.1.0","paths":{` + getOp + `}}`,
		`{"openapi":"3.1.0","servers":[{"url":"/v2"}],"paths":{` + getOp + `}}`,
	} {
		one, two := mustLoad(t, []byte(doc), nil).Digest(), mustLoad(t, []byte(doc), nil).Digest()
		if one != two || seen[one] != "" {
			t.Errorf("%s: %x and %x; %s", doc, one, two, seen[one])
		}
		seen[one] = doc
	}
}
