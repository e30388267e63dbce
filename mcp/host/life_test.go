package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A server that fails is started again later and later, and then not any more but by Restart.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		h := newHost(t, []Server{{Name: "a", Dial: func(context.Context) (farcall.Transport, error) {
			starts = append(starts, time.Now())
			return nil, errDown
		}}}, &Options{MinDelay: time.Second, MaxDelay: 3 * time.Second, MaxFailures: 5})
		<-time.After(time.Hour)
		synctest.Wait()
		if len(starts) != 5 {
			t.Fatalf("it was started %d times", len(starts))
		}
		for i, most := range []time.Duration{
			time.Second, 2 * time.Second, 3 * time.Second,
			3 * time.Second,
		} {
			if d := starts[i+1].Sub(starts[i]); d < most/2 || d > most {
				t.Errorf("start %d was after %v", i+2, d)
			}
		}
		if _, err := h.CallTool(t.Context(), "a__b", nil); !errors.Is(err, ErrNotReady) ||
			!strings.Contains(err.Error(), "failed 5 times in a row") {
			t.Error(err)
		}
		if err := h.Restart(t.Context(), "a"); !errors.Is(err, errDown) {
			t.Errorf("Restart: %v", err)
		}
		if s := h.Status()[0]; s.Failures != 1 || s.Retry.IsZero() || len(starts) != 6 {
			t.Errorf("after Restart: %+v", s)
		}
		if err := h.Restart(t.Context(), "other"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	})
}

// A start that takes too long is one that fails; Close does not wait for it.
func TestStartTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, []Server{{Name: "a", Dial: func(ctx context.Context) (farcall.Transport, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}}, &Options{StartTimeout: time.Minute, MaxFailures: 1})
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.CallTool(short, "a__b", nil); !errors.Is(err, ErrNotReady) ||
			!errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call while it starts: %v", err)
		}
		<-time.After(time.Minute)
		if s := h.Status()[0]; s.State != Failed ||
			!strings.Contains(fmt.Sprint(s.Err), "not ready within 1m0s") {
			t.Errorf("%+v", s)
		}
		go func() { _ = h.Restart(t.Context(), "a") }()
		synctest.Wait()
		begun := time.Now()
		if err := h.Close(t.Context()); err != nil || time.Since(begun) != 0 {
			t.Errorf("Close: %v after %v", err, time.Since(begun))
		}
	})
}

// settle waits until no server starts and all callbacks have returned.
func settle(t *testing.T, h *Host) {
	t.Helper()
	if err := h.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// Apply leaves alone what has not changed, and the callbacks hear the rest in order.
func TestApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newServer("a", "x"), newServer("b", "x", "y")
		var states []string
		h := newHost(t, []Server{{Name: "a", InProcess: a}, {Name: "b", InProcess: b}},
			&Options{OnStatus: func(s Status) {
				states = append(states, s.Name+" "+string(s.State))
			}})
		settle(t, h)
		states = nil
		if err := h.Apply([]Server{
			{Name: "a", InProcess: a},
			{Name: "b", InProcess: b, DenyTools: []string{"y"}},
			{Name: "c", Disabled: true},
		}); err != nil {
			t.Fatal(err)
		}
		settle(t, h)
		slices.Sort(states)
		if want := []string{"b ready", "b starting", "b stopped"}; !slices.Equal(states, want) {
			t.Errorf("states %q, want %q", states, want)
		}
		if l := h.Tools(); !slices.Equal(namesOf(l), []string{"a__x", "b__x"}) || len(l.Missing) != 0 {
			t.Errorf("tools: %+v", l)
		}
		if _, err := h.CallTool(t.Context(), "b__y", nil); err == nil ||
			!strings.Contains(err.Error(), "not allowed") {
			t.Errorf("a tool that is denied: %v", err)
		}
		if _, err := h.CallTool(t.Context(), "c__y", nil); !errors.Is(err, ErrNotReady) ||
			!strings.Contains(err.Error(), "disabled") {
			t.Errorf("a server that is disabled: %v", err)
		}
		if err := h.Apply([]Server{{Name: "a_"}}); err == nil || len(h.Status()) != 3 {
			t.Errorf("a configuration that is not valid: %v", err)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := h.Apply(nil); !errors.Is(err, ErrNotReady) {
			t.Errorf("Apply of a closed host: %v", err)
		}
		if _, err := h.CallTool(t.Context(), "a__x", nil); !errors.Is(err, ErrNotReady) {
			t.Errorf("a call of a closed host: %v", err)
		}
	})
}

// A list that cannot be had is missing, with the reason, until it can be had.
func TestMissingList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer("a", "x")
		var broken sync.Mutex
		fails := true
		s.Use(func(next mcp.Handler) mcp.Handler {
			return func(ctx context.Context, r *mcp.Request) (*mcp.Response, error) {
				broken.Lock()
				fail := fails && r.Method == spec.MethodToolsList
				broken.Unlock()
				if fail {
					return nil, jsonrpc.Errorf(jsonrpc.InternalError, "out of order")
				}
				return next(ctx, r)
			}
		})
		h := newHost(t, []Server{{Name: "a", InProcess: s}, {Name: "b", InProcess: newServer("b", "x")}},
			nil)
		settle(t, h)
		l := h.Tools()
		if !slices.Equal(namesOf(l), []string{"b__x"}) || len(l.Missing) != 1 ||
			l.Missing[0].State != Ready || !strings.Contains(fmt.Sprint(l.Missing[0].Err), "out of order") {
			t.Errorf("%+v", l)
		}
		broken.Lock()
		fails = false
		broken.Unlock()
		<-time.After(retryLast)
		if l := h.Tools(); !slices.Equal(namesOf(l), []string{"a__x", "b__x"}) || len(l.Missing) != 0 {
			t.Errorf("later: %+v", l)
		}
	})
}

// The handlers know which server asks, in both eras.
func TestHandlers(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		synctest.Test(t, func(t *testing.T) {
			var servers []Server
			for _, name := range []string{"a", "b"} {
				s := newServer(name)
				mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
					type form struct {
						Name string `json:"name"`
					}
					f, err := mcp.Elicit[form](ctx, "who?")
					if err != nil {
						return "", err
					}
					r, err := mcp.Sample(ctx,
						&spec.CreateMessageRequestParams{MaxTokens: 1, Messages: []spec.SamplingMessage{}})
					if err != nil {
						return "", err
					}
					roots, err := mcp.Roots(ctx)
					if err != nil {
						return "", err
					}
					return f.Name + " " + r.Model + " " + roots[0].URI, mcp.Log(ctx, "info", "log", "asked")
				})
				servers = append(servers, Server{Name: name, InProcess: s})
			}
			var mu sync.Mutex
			var logs []string
			h := newHost(t, servers, &Options{
				Client: &mcp.ClientOptions{Era: era, LogLevel: "info"},
				Elicit: func(
					_ context.Context, server string, _ *spec.ElicitRequestParams,
				) (*spec.ElicitResult, error) {
					return &spec.ElicitResult{
						Action:  spec.ElicitAccept,
						Content: jsonrpc.Raw(`{"name":"` + server + `"}`),
					}, nil
				},
				Sample: func(
					_ context.Context, server string, _ *spec.CreateMessageRequestParams,
				) (*spec.CreateMessageResult, error) {
					return &spec.CreateMessageResult{
						Role: "assistant", Model: server,
						Content: []mcp.Content{mcp.Text("yes")},
					}, nil
				},
				Roots: func(_ context.Context, server string) ([]mcp.Root, error) {
					return []mcp.Root{{URI: "file:///" + server}}, nil
				},
				OnLog: func(server string, _ *spec.LoggingMessageNotificationParams) {
					mu.Lock()
					defer mu.Unlock()
					logs = append(logs, server)
				},
			})
			for _, name := range []string{"a", "b"} {
				if got, want := said(t, h, name+"__ask"), name+" "+name+" file:///"+name; got != want {
					t.Errorf("%s: %q, want %q", era, got, want)
				}
			}
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(logs, []string{"a", "b"}) {
				t.Errorf("%s: logs of %q", era, logs)
			}
			if err := h.RootsChanged(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Prompts and resources go to the server that is named, too.
func TestPromptsAndResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []Server
		for _, name := range []string{"a", "b"} {
			s := newServer(name)
			s.AddPrompt(mcp.Prompt{Name: "p"},
				func(context.Context, map[string]string) (*mcp.PromptResult, error) {
					return &mcp.PromptResult{Description: name}, nil
				})
			s.AddResource(mcp.Resource{URI: "x://same", Name: "same"},
				func(context.Context, string) ([]mcp.ResourceContents, error) {
					return []mcp.ResourceContents{{URI: "x://same", Text: name}}, nil
				})
			servers = append(servers, Server{Name: name, InProcess: s})
		}
		h := newHost(t, servers, nil)
		if err := h.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := h.Prompts(); len(l.Items) != 2 || l.Items[1].Value.Name != "b__p" {
			t.Errorf("prompts: %+v", l)
		}
		if l := h.Resources(); len(l.Items) != 2 || l.Items[1].Server != "b" ||
			l.Items[1].Value.URI != "x://same" {
			t.Errorf("resources: %+v", l)
		}
		for _, name := range []string{"a", "b"} {
			if p, err := h.GetPrompt(t.Context(), name+"__p", nil); err != nil || p.Description != name {
				t.Errorf("prompt of %s: %+v, %v", name, p, err)
			}
			if r, err := h.ReadResource(t.Context(), name, "x://same"); err != nil ||
				r.Contents[0].Text != name {
				t.Errorf("resource of %s: %+v, %v", name, r, err)
			}
		}
		ref := spec.CompleteReference{Type: spec.RefPrompt, Name: "a__p"}
		if _, err := h.Complete(t.Context(), "b", &spec.CompleteRequestParams{Ref: ref}); err == nil ||
			!strings.Contains(err.Error(), "is not of the server") {
			t.Errorf("a prompt of another server: %v", err)
		}
		if _, err := h.GetPrompt(t.Context(), "p", nil); !errors.Is(err, ErrUnknown) {
			t.Errorf("a prompt of no server: %v", err)
		}
	})
}

// A server over HTTP that is gone has failed, and is ready when it is back.
func TestHTTPServerComesBack(t *testing.T) {
	serve := func(address string) (string, func()) {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- newServer("web", "hello").ServeListener(ctx, l) }()
		return l.Addr().String(), func() { stop(); <-served }
	}
	address, stop := serve("127.0.0.1:0")
	states := make(chan Status, 1000)
	h := newHost(t, []Server{{Name: "web", URL: "http://" + address + "/mcp"}},
		&Options{
			MinDelay: time.Millisecond, MaxDelay: 10 * time.Millisecond, MaxFailures: -1,
			OnStatus: func(s Status) { states <- s },
		})
	await := func(want State) {
		for s := range states {
			if s.State == want {
				return
			}
		}
	}
	await(Ready)
	stop()
	if _, err := h.CallTool(t.Context(), "web__hello", nil); err == nil {
		t.Error("a call of a server that is gone has succeeded")
	}
	await(Failed)
	_, stop = serve(address)
	defer stop()
	await(Ready)
	if got := said(t, h, "web__hello"); got != "web hello" {
		t.Errorf("it says %q", got)
	}
}

// A server that never agrees to report changes is ready all the same, with its lists.
func TestListenUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		answer := func(method, result string) {
			farcall.Handle(mux, method, func(context.Context, jsonrpc.Raw) (jsonrpc.Raw, error) {
				return jsonrpc.Raw(result), nil
			})
		}
		answer("server/discover",
			`{"resultType":"complete","supportedVersions":["2026-07-28"],`+
				`"capabilities":{"tools":{"listChanged":true}},"ttlMs":0,"cacheScope":"private"}`)
		answer("tools/list",
			`{"resultType":"complete","tools":[{"name":"x","inputSchema":{"type":"object"}}],"ttlMs":0,`+
				`"cacheScope":"private"}`)
		farcall.Handle(mux, "subscriptions/listen",
			func(ctx context.Context, _ jsonrpc.Raw) (jsonrpc.Raw, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
		h := newHost(t, []Server{{Name: "a", Dial: func(context.Context) (farcall.Transport, error) {
			near, far := farcall.Pipe()
			p := farcall.NewPeer(far, mux, nil)
			t.Cleanup(func() { _ = p.Close() })
			return near, nil
		}}}, nil)
		begun := time.Now()
		if err := h.Wait(t.Context()); err != nil || time.Since(begun) != listenTime {
			t.Errorf("ready after %v: %v", time.Since(begun), err)
		}
		if l := h.Tools(); len(l.Items) != 1 {
			t.Errorf("%d tools, missing %+v", len(l.Items), l.Missing)
		}
	})
}

// An Authorizer that cannot be compared counts as changed.
func TestApplyAuthorizer(t *testing.T) {
	a := Server{Name: "a", URL: "http://127.0.0.1:1", Authorizer: uncomparable{}}
	if a.same(a.clone()) {
		t.Error("it is the same")
	}
	for _, same := range []Server{{Name: "a"}, {Name: "a", Authorizer: &uncomparable{}}} {
		if !same.same(same.clone()) {
			t.Errorf("%+v is not the same", same)
		}
	}
}

type uncomparable struct {
	mcphttp.Authorizer

	_ []int
}
