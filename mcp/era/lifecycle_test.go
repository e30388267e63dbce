package era_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The facts of a lifecycle are independent: a revision that mixes those of the two
// lifecycles that there are is one row of the table, and server and client speak it.
func TestThirdLifecycle(t *testing.T) {
	era.AddThird(t)
	if all := era.Revisions(); all[len(all)-1].Name != era.Third ||
		era.LatestLegacy().Name != era.Third {
		t.Fatal("the table has no third lifecycle")
	}
	for _, over := range []string{"pipe", "http"} {
		for _, rev := range era.Revisions() {
			if over == "http" && rev.HTTPSSE {
				continue // it has its own transport
			}
			t.Run(over+"/"+rev.Name, func(t *testing.T) { useLifecycle(t, over, rev) })
		}
	}
}

type who struct {
	Name string `json:"name"`
}

// lifecycle is a server that uses what differs between lifecycles, and counts.
type lifecycle struct {
	*mcp.Server
	runs, once atomic.Int32
}

func newLifecycle() *lifecycle {
	s := &lifecycle{Server: mcp.NewServer("life", "1", nil)}
	mcp.AddTool(s.Server, mcp.Tool{Name: "greet", Description: "Asks for a name"},
		func(ctx context.Context, _ struct{}) (string, error) {
			s.runs.Add(1)
			if err := mcp.Log(ctx, "warning", "", "asked"); err != nil {
				return "", err
			}
			hello, err := mcp.Once(ctx, "hello", func() (string, error) {
				s.once.Add(1)
				return "Hello ", nil
			})
			if err != nil {
				return "", err
			}
			answer, err := mcp.Elicit[who](ctx, "Who?")
			return hello + answer.Name, err
		})
	s.AddResource(mcp.Resource{URI: "test:r", Name: "r"},
		func(context.Context, string) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{{URI: "test:r", Text: "text"}}, nil
		})
	return s
}

func useLifecycle(t *testing.T, over string, rev *era.Revision) {
	s := newLifecycle()
	logged, updated := make(chan struct{}, 10), make(chan string, 10)
	listening := make(chan struct{}, 10)
	c := connectLifecycle(t, s.Server, over, &mcp.ClientOptions{
		Era: rev.Name, LogLevel: "debug",
		OnLog:             func(*spec.LoggingMessageNotificationParams) { logged <- struct{}{} },
		OnResourceUpdated: func(uri string) { updated <- uri },
		OnListening:       func(spec.SubscriptionFilter) { listening <- struct{}{} },
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: spec.ElicitAccept, Content: jsonrpc.Raw(`{"name":"Ada"}`)}, nil
		},
	})
	if got := c.Server().Revision; got != rev.Name {
		t.Fatalf("the revision is %s", got)
	}

	if rev.Elicitation {
		text, err := mcp.CallTool[string](t.Context(), c, "greet", nil)
		if err != nil || text != "Hello Ada" {
			t.Errorf("%q %v", text, err)
		}
		runs := int32(1)
		if rev.InputRounds {
			runs = 2 // the first asks, the second has the answer
		}
		if s.runs.Load() != runs || s.once.Load() != 1 {
			t.Errorf("the handler ran %d times, %d wanted; Once ran %d times", s.runs.Load(), runs,
				s.once.Load())
		}
		<-logged
	}

	// The answers as the server sends them.
	raw := answerOf(t, s.Server, rev)
	if got := scan.Member(raw, "resultType") != nil; got != rev.ResultTypes {
		t.Errorf("resultType: %t in %s", got, raw)
	}
	if got := scan.Member(raw, "ttlMs") != nil; got != rev.CacheHints {
		t.Errorf("ttlMs: %t in %s", got, raw)
	}

	_, err := c.Read(t.Context(), "test:none")
	if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok ||
		wire.Code != era.Latest().ResourceNotFound {
		t.Errorf("a resource that is not there: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Listen(ctx, spec.SubscriptionFilter{ResourceSubscriptions: []string{"test:r"}})
	}()
	<-listening
	s.ResourceUpdated("test:r")
	if uri := <-updated; uri != "test:r" {
		t.Errorf("%s was updated", uri)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// answerOf returns the bytes of the answer to resources/list.
func answerOf(t *testing.T, s *mcp.Server, rev *era.Revision) (raw jsonrpc.Raw) {
	t.Helper()
	mine, theirs := farcall.Pipe()
	done := make(chan error, 1)
	go func() { done <- mcp.Serve(t.Context(), s, theirs, nil) }()
	p := farcall.NewPeer(mine, nil, nil)
	params := jsonrpc.Raw(`{}`)
	if rev.Handshake {
		hello := `{"protocolVersion":"` + rev.Name +
			`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`
		if err := p.Call(t.Context(), spec.MethodInitialize, jsonrpc.Raw(hello), &raw); err != nil {
			t.Fatal(err)
		}
	}
	if rev.RequestMeta {
		params = jsonrpc.Raw(`{"_meta":{"` + spec.MetaProtocolVersion + `":"` + rev.Name + `","` +
			spec.MetaClientCapabilities + `":{}}}`)
	}
	if err := p.Call(t.Context(), spec.MethodResourcesList, params, &raw); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(p.Close(), <-done); err != nil {
		t.Error(err)
	}
	return raw
}

func connectLifecycle(t *testing.T, s *mcp.Server, over string, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	if over == "http" {
		h := mcphttp.NewHandler(s, nil)
		server := httptest.NewServer(h)
		t.Cleanup(func() {
			if err := h.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
			server.Close()
		})
		c, err := mcp.Dial(t.Context(), server.URL, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	mine, theirs := farcall.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = mcp.Serve(context.WithoutCancel(t.Context()), s, theirs, nil)
	}()
	c, err := mcp.Connect(t.Context(), mine, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return c
}
