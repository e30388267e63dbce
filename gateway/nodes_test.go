package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/store"
)

// node is a gateway with a shared store, before a server of the legacy era that asks its client.
func node(t *testing.T, shared store.Store) *lab {
	t.Helper()
	s := mcp.NewServer("behind", "1", &mcp.ServerOptions{Eras: "legacy"})
	mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		answer, err := mcp.Elicit[struct{ Name string }](ctx, "Who?")
		return answer.Name, err
	})
	return newLabOf(t, &gateway.Options{Shared: shared},
		&gateway.Config{Upstreams: []*gateway.Upstream{over(t, "u", s)}})
}

func memory(t *testing.T) *store.Memory {
	t.Helper()
	m := store.NewMemory(nil)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// A session is served by each node with the store. Where the store was made again, it is not found,
// and its client begins another one.
func TestSessionsOfNodes(t *testing.T) {
	kept := memory(t)
	first, second, again := node(t, kept), node(t, kept), node(t, memory(t))
	hello, err := first.post(t.Context(), "/mcp", initialize)
	if err != nil {
		t.Fatal(err)
	}
	id := hello.header.Get("Mcp-Session-Id")
	for l, want := range map[*lab]int{
		first: http.StatusOK, second: http.StatusOK,
		again: http.StatusNotFound,
	} {
		got, err := l.post(t.Context(), "/mcp", `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
			"Mcp-Session-Id: "+id, "MCP-Protocol-Version: "+legacy)
		if err != nil || got.status != want {
			t.Errorf("%v, %v, want %d", got, err, want)
		}
	}
}

// What a client has subscribed to at a node that has ended goes on at the node where it opens its
// stream again, and nothing that it had unsubscribed from.
func TestSubscriptionsOfNodes(t *testing.T) {
	t.Parallel()
	kept := memory(t)
	node := func(shared store.Store) (*lab, *mcp.Server) {
		s := mcp.NewServer("behind", "1", &mcp.ServerOptions{Eras: "legacy"})
		for _, uri := range []string{"note://a", "note://b", "note://c"} {
			s.AddResource(mcp.Resource{URI: uri, Name: uri},
				func(context.Context, string) ([]mcp.ResourceContents, error) { return nil, nil })
		}
		return newLabOf(t, &gateway.Options{Shared: shared}, &gateway.Config{
			Upstreams: []*gateway.Upstream{over(t, "u", s)},
		}), s
	}
	first, _ := node(kept)
	second, behind := node(&failsFirst{Store: kept})
	hello, err := first.post(t.Context(), "/mcp/u", initialize)
	if err != nil {
		t.Fatal(err)
	}
	headers := []string{
		"Mcp-Session-Id: " + hello.header.Get("Mcp-Session-Id"),
		"MCP-Protocol-Version: " + legacy,
	}
	stream := first.listen(t, "/mcp/u", headers)
	for i, uri := range []string{"note://a", "note://b", "note://c"} {
		got, err := first.post(t.Context(), "/mcp/u", fmt.Sprintf(
			`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, i, uri),
			headers...)
		if err != nil || got.err != nil {
			t.Fatal(got, err)
		}
	}
	got, err := first.post(t.Context(), "/mcp/u",
		`{"jsonrpc":"2.0","id":9,"method":"resources/unsubscribe","params":{"uri":"note://b"}}`,
		headers...)
	if err != nil || got.err != nil {
		t.Fatal(got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := errors.Join(first.Shutdown(ctx), stream.Close()); err != nil {
		t.Error(err)
	}

	stream = second.listen(t, "/mcp/u", headers)
	told := make(chan string, 100)
	go func() {
		defer close(told)
		for in := bufio.NewScanner(stream); in.Scan(); {
			if data, ok := strings.CutPrefix(in.Text(), "data: "); ok &&
				strings.Contains(data, "resources/updated") {
				told <- scan.StringMember(scan.Member([]byte(data), "params"), "uri")
			}
		}
	}()
	seen := map[string]bool{}
	for tick := time.NewTicker(10 * time.Millisecond); !seen["note://a"] || !seen["note://c"]; {
		select {
		case uri := <-told:
			seen[uri] = true
		case <-tick.C: // it subscribes again meanwhile
			for _, uri := range []string{"note://b", "note://a", "note://c"} {
				behind.ResourceUpdated(uri)
			}
		case <-ctx.Done():
			t.Fatalf("told of %v", seen)
		}
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	for uri := range told {
		seen[uri] = true
	}
	if seen["note://b"] {
		t.Error("told of what it had unsubscribed from")
	}
}

// failsFirst is a store that does not find the values of a session at first.
type failsFirst struct {
	store.Store

	asked atomic.Int64
}

func (f *failsFirst) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	if strings.HasPrefix(id, "session-values") && f.asked.Add(1) < 3 {
		return nil, errors.New("no quorum")
	}
	return f.Store.Get(ctx, owner, id)
}

// listen opens the event stream of a session.
func (l *lab) listen(t *testing.T, path string, headers []string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, l.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	got, err := l.web.Do(r)
	if err != nil || got.StatusCode != http.StatusOK {
		t.Fatal(got, err)
	}
	return got.Body
}

// A call that a node has answered after its client had gone is answered by another node, when that
// one has ended: the events of streams are shared.
func TestEventsOfNodes(t *testing.T) {
	kept, finish := memory(t), make(chan struct{})
	slow := func() *lab {
		s := mcp.NewServer("behind", "1", &mcp.ServerOptions{Eras: "legacy"})
		mcp.AddTool(s, mcp.Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
			if err := mcp.Progress(ctx, 1, 2, "begun"); err != nil {
				return "", err
			}
			<-finish
			return "finished", nil
		})
		return newLabOf(t, &gateway.Options{Shared: kept}, &gateway.Config{
			Upstreams: []*gateway.Upstream{over(t, "u", s)},
		})
	}
	first, second := slow(), slow()
	hello, err := first.post(t.Context(), "/mcp", initialize)
	if err != nil {
		t.Fatal(err)
	}
	// open sends a request and returns the body of the answer.
	open := func(l *lab, method, body, last string) io.ReadCloser {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, l.url+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Session-Id": {hello.header.Get("Mcp-Session-Id")}, "Mcp-Protocol-Version": {legacy},
		}
		if last != "" {
			r.Header.Set("Last-Event-Id", last)
		}
		got, err := l.web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return got.Body
	}
	const call = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":` +
		`{"name":"slow","arguments":{},"_meta":{"progressToken":1}}}`
	body := open(first, http.MethodPost, call, "")
	stream, last := bufio.NewScanner(body), ""
	for !strings.Contains(stream.Text(), "begun") && stream.Scan() {
		if id, ok := strings.CutPrefix(stream.Text(), "id: "); ok {
			last = id
		}
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	close(finish)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := first.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	body = open(second, http.MethodGet, "", last)
	defer body.Close()
	rest, err := io.ReadAll(body)
	if err != nil {
		t.Error(err)
	}
	if text := string(rest); !strings.Contains(text, "finished") ||
		strings.Count(text, `"id":2`) != 1 {
		t.Errorf("after %q another node sends %q", last, text)
	}
}

// A call that waits for its client at one node is not known at another one, which says so.
func TestSuspendedAtANode(t *testing.T) {
	kept := memory(t)
	first, second := node(t, kept), node(t, kept)
	call := func(l *lab, more string) *reply {
		t.Helper()
		got, err := l.modernAt(t.Context(), "/mcp", "tools/call", "ask",
			`"name":"ask","arguments":{}`+more)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	asked := call(first, "")
	state := scan.Member(asked.result, "requestState")
	key := ""
	for name := range scan.Members(scan.Member(asked.result, "inputRequests")) {
		key = string(name)
	}
	if state == nil || key == "" {
		t.Fatalf("it asks nothing: %v", asked)
	}
	answer := fmt.Sprintf(
		`,"requestState":%s,"inputResponses":{%q:{"action":"accept","content":{"Name":"ada"}}}`,
		state, key)
	if got := call(second, answer); got.err == nil ||
		!strings.Contains(got.err.Message, "another node") {
		t.Errorf("at another node: %v", got)
	}
	if got := call(first, answer); !strings.Contains(got.body, "ada") {
		t.Errorf("where it waits: %v", got)
	}
}
