package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// askingRelay answers with the text that f returns.
func askingRelay(f func(ctx context.Context) (string, error)) *fakeRelay {
	return &fakeRelay{forward: func(
		ctx context.Context, _ *era.Revision, _ string, _ jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		text, err := f(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("up: %w", err)
		}
		return jsonrpc.Raw(fmt.Sprintf(`{"resultType":"complete","content":[{"type":"text","text":%q}]}`,
			text)), era.Latest(), nil
	}}
}

func TestRelayAsks(t *testing.T) {
	var runs atomic.Int64
	f := askingRelay(func(ctx context.Context) (string, error) {
		id, err := Once(ctx, "call", func() (int64, error) { return runs.Add(1), nil })
		if err != nil {
			return "", err
		}
		var raw jsonrpc.Raw
		ask := jsonrpc.Raw(
			`{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":1,"_x":1}`)
		if err := Ask(ctx, spec.MethodSamplingCreateMessage, ask, &raw); err != nil {
			return "", err
		}
		text, err := askEverything(ctx)
		return fmt.Sprint(id, text), err
	})
	s := relayServer(t, f, nil)
	const want = "1AnnredParisfile:///r"
	r, n := sendRounds(t, s, "tools/call", `{"name":"ask"}`, humanAnswers)
	if r.text() != want || n != 6 || runs.Load() != 1 {
		t.Errorf("modern: %s after %d rounds, %d runs", r.raw, n, runs.Load())
	}
	for _, method := range []string{"prompts/get", "resources/read"} {
		runs.Store(0)
		if r, n := sendRounds(t, s, method, `{"name":"ask","uri":"a:b"}`, humanAnswers); n != 6 ||
			r.text() != want || runs.Load() != 1 {
			t.Errorf("%s: %s after %d rounds, %d runs", method, r.raw, n, runs.Load())
		}
	}
	runs.Store(0)
	p := dialLegacy(t, s, rev2511, canAll, answeringPeer(humanAnswers))
	if r := sendLegacy(t, p, "tools/call", `{"name":"ask"}`); r.text() != want || runs.Load() != 1 {
		t.Errorf("legacy: %+v, %d runs", r, runs.Load())
	}
	if r := sendModern(t, s, canAll, "tools/list", `{}`); r.text() != "error -32603" {
		t.Errorf("a list that asks: %s", r.raw)
	}
	if r := sendModern(t, s, `{}`, "tools/call", `{"name":"ask"}`); r.text() != "error -32021" {
		t.Errorf("a client that cannot be asked: %s", r.raw)
	}
}

// Several questions go out in one round, whatever the relay makes of the error.
func TestRelayAsksSeveral(t *testing.T) {
	f := askingRelay(func(ctx context.Context) (string, error) {
		var wait sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			wait.Go(func() { _, errs[i] = Elicit[askForm](relay.Named(ctx, fmt.Sprint("q", i)), "Who?") })
		}
		wait.Wait()
		for _, err := range errs {
			if errors.Is(err, ErrAsked) {
				return "something else", nil
			}
		}
		return "done", errors.Join(errs...)
	})
	s := relayServer(t, f, nil)
	if r := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`); len(r.Result.InputRequests) !=
		5 || r.Result.Meta[spec.MetaServerInfo] == nil {
		t.Errorf("%s", r.raw)
	}
	if r, n := sendRounds(t, s, "tools/call", `{"name":"ask"}`, humanAnswers); n != 2 ||
		r.text() != "done" {
		t.Errorf("%s after %d", r.raw, n)
	}
}

// What carries a call from round to round is another's, unless the relay
// asks.
func TestRelayStateOfOthers(t *testing.T) {
	const theirs = `{"name":"x","requestState":"the\u0069rs",` +
		`"inputResponses":{"k":{"action":"accept"},"k":{}}}`
	f := &fakeRelay{
		forward: always(
			`{"resultType":"input_required","requestState":"their next",`+
				`"inputRequests":{"k":{"method":"roots/list"}}}`, rev2026),
	}
	s := relayServer(t, f, nil)
	r := sendModern(t, s, canAll, "tools/call", theirs)
	if !strings.Contains(r.raw,
		`"result":{"resultType":"input_required","requestState":"their next",`+
			`"inputRequests":{"k":{"method":"roots/list"}}}`) ||
		len(f.got) != 1 || !strings.HasSuffix(f.got[0], strings.TrimPrefix(theirs, "{")) {
		t.Errorf("%s\n%s", r.raw, f.got)
	}
	errs := make(chan error, 3)
	f.forward = func(
		ctx context.Context, _ *era.Revision, _ string, _ jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		_, err := Roots(ctx)
		errs <- err
		_, err = Once(ctx, "k", func() (int, error) { return 1, nil })
		errs <- err
		errs <- StartTask(ctx) // which it cannot
		return nil, nil, err
	}
	if r := sendModern(t, s, canAll, "tools/call", theirs); r.text() != "error -32602" {
		t.Errorf("opened: %s", r.raw)
	}
	if a, b, c := <-errs, <-errs, <-errs; !errors.Is(a, errState) || !errors.Is(b, errState) ||
		c != nil {
		t.Error(a, b, c)
	}
}

func TestRelayStateTampered(t *testing.T) {
	f := askingRelay(func(ctx context.Context) (string, error) {
		ClientFrom(ctx)
		roots, err := Roots(ctx)
		return fmt.Sprint(roots), err
	})
	var who atomic.Value
	who.Store("ann")
	s := relayServer(t, f,
		&ServerOptions{StateTTL: time.Hour, Owner: func(ctx context.Context) string {
			if ClientFrom(ctx) == nil {
				t.Error("the principal's context is not the call's")
			}
			return who.Load().(string)
		}})
	r := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`)
	var key string
	for key = range r.Result.InputRequests {
	}
	retry := func(state, name string) wireReply {
		t.Helper()
		return sendModern(t, s, canAll, "tools/call",
			fmt.Sprintf(`{"name":%q,"requestState":%q,"inputResponses":{%q:{"roots":[]}}}`, name,
				state, key))
	}
	state := r.Result.RequestState
	if r := retry(state, "ask"); r.Result.ResultType != "complete" {
		t.Errorf("%s", r.raw)
	}
	middle, other := len(state)/2, "A"
	if state[middle] == 'A' {
		other = "B"
	}
	if r := retry(state[:middle]+other+state[middle+1:], "ask"); r.text() != "error -32602" {
		t.Errorf("tampered: %s", r.raw)
	}
	if r := retry(state, "other"); r.text() != "error -32602" {
		t.Errorf("another call's: %s", r.raw)
	}
	who.Store("bob")
	if r := retry(state, "ask"); r.text() != "error -32602" {
		t.Errorf("another principal's: %s", r.raw)
	}
}

// One that goes on when Forward has returned reaches no client.
func TestRelayLate(t *testing.T) {
	var late context.Context
	f := askingRelay(func(ctx context.Context) (string, error) {
		late = ctx //nolint:fatcontext // on purpose: it is too late
		return "", nil
	})
	s := relayServer(t, f, nil)
	for _, call := range []func(){
		func() {
			sendModern(t, s, canAll, "tools/call", `{"name":"x","requestState":"s","_meta2":{}}`)
		},
		func() {
			p := dialLegacy(t, s, rev2511, canAll, func(context.Context, *farcall.Request) (any, error) {
				t.Error("the client was asked")
				return nil, nil
			})
			sendLegacy(t, p, "tools/call", `{"name":"x"}`)
		},
	} {
		call()
		if _, err := Roots(late); !errors.Is(err, errOver) {
			t.Error(err)
		}
		if err := StartTask(late); err != nil {
			t.Error(err)
		}
		if i := ClientFrom(late); i == nil || i.ProgressWanted {
			t.Error(i)
		}
	}
}

// A client of the legacy era is asked while its call waits, over HTTP too.
func TestRelayAsksOverHTTP(t *testing.T) {
	f := askingRelay(askEverything)
	ask := f.forward
	f.forward = func(
		ctx context.Context, rev *era.Revision, method string, params jsonrpc.Raw,
	) (jsonrpc.Raw, *era.Revision, error) {
		if method == spec.MethodToolsCall {
			return ask(ctx, rev, method, params)
		}
		return jsonrpc.Raw(`{"tools":[{"name":"ask","inputSchema":{"type":"object"}}]}`),
			era.LatestLegacy(), nil
	}
	url := serveRelayHTTP(t, relayServer(t, f, nil))
	for _, rev := range []string{rev2026, rev2511} {
		c := mustDial(t, url, &ClientOptions{
			Era: rev,
			Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				if p.URL != "" {
					return &spec.ElicitResult{Action: spec.ElicitAccept}, nil
				}
				return &spec.ElicitResult{
					Action:  spec.ElicitAccept,
					Content: jsonrpc.Raw(`{"name":"Ann","color":"red"}`),
				}, nil
			},
			Sample: func(
				context.Context, *spec.CreateMessageRequestParams,
			) (*spec.CreateMessageResult, error) {
				return &spec.CreateMessageResult{
					Role: "assistant", Model: "m",
					Content: []Content{Text("Paris")},
				}, nil
			},
			Roots: func(context.Context) ([]Root, error) { return []Root{{URI: "file:///r"}}, nil },
		})
		r, err := c.CallTool(t.Context(), "ask", nil)
		if err != nil || !bytes.Contains([]byte(r.Content[0].Text), []byte("AnnredParisfile:///r")) {
			t.Errorf("%s: %+v, %v", rev, r, err)
		}
	}
}

func serveRelayHTTP(t *testing.T, s *Server) (url string) {
	t.Helper()
	h := mcphttp.NewHandler(s, nil)
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		h.Shutdown(context.WithoutCancel(t.Context()))
		server.Close()
	})
	return server.URL
}
