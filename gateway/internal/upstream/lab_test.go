package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"

	canElicit = `{"elicitation":{"form":{}}}`
)

// A lab starts servers in memory, one for each connection.
type lab struct {
	t    testing.TB
	eras string
	wg   sync.WaitGroup

	mu       sync.Mutex
	children []*child
	dials    int
	dialing  func(ctx context.Context, n int) error // nil: succeeds
	blocked  map[string]chan struct{}
	called   func(conn int, id string) // is called for calls of tools with an id; nil: not
}

// A child is a server of a lab.
type child struct {
	lab    *lab
	n      int
	server *mcp.Server
	end    farcall.Transport
	client *mcp.Client

	mu        sync.Mutex
	busy, max int
}

func newLab(tb testing.TB, eras string) *lab {
	tb.Helper()
	return &lab{t: tb, eras: eras, blocked: map[string]chan struct{}{}}
}

func (l *lab) upstream(o Options) *Upstream {
	o.Name, o.Dial = "lab", l.dial
	o.Exclusive = true
	if o.Logger == nil {
		o.Logger = slog.New(noErrors{slog.DiscardHandler, l.t})
	}
	u := New(&o)
	l.t.Cleanup(func() { l.close(u) })
	return u
}

// noErrors fails a test when an error is logged: a bug of this package.
type noErrors struct {
	slog.Handler
	tb testing.TB
}

func (h noErrors) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (h noErrors) Handle(_ context.Context, r slog.Record) error { //nolint:gocritic // as slog has it
	h.tb.Errorf("logged: %s", r.Message)
	return nil
}

func (l *lab) close(u *Upstream) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = u.Close(ctx)
	l.wg.Wait()
}

func (l *lab) dial(ctx context.Context, o *mcp.ClientOptions) (*mcp.Client, error) {
	l.mu.Lock()
	l.dials++
	n, dialing := l.dials, l.dialing
	l.mu.Unlock()
	if dialing != nil {
		if err := dialing(ctx, n); err != nil {
			return nil, err
		}
	}
	mine, theirs := farcall.Pipe()
	c := &child{
		lab: l, n: n, end: theirs,
		server: mcp.NewServer("lab", strconv.Itoa(n), &mcp.ServerOptions{Eras: l.eras}),
	}
	c.tools()
	l.mu.Lock()
	l.children = append(l.children, c)
	l.mu.Unlock()
	serving := context.WithoutCancel(ctx)
	l.wg.Go(func() {
		_ = c.server.Serve(serving, theirs)
		c.server.Close()
	})
	client, err := mcp.Connect(ctx, mine, o)
	c.client = client
	return client, err
}

type argument struct {
	ID string `json:"id,omitzero"`
}

type form struct {
	Answer string `json:"answer"`
}

func (c *child) tools() {
	s := c.server
	mcp.AddTool(s, mcp.Tool{Name: "which"}, func(_ context.Context, in argument) (string, error) {
		c.got(in)
		return strconv.Itoa(c.n), nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "ask"}, func(ctx context.Context, in argument) (string, error) {
		c.got(in)
		defer c.work()()
		f, err := mcp.Elicit[form](ctx, "question "+in.ID)
		return in.ID + " " + f.Answer, err
	})
	mcp.AddTool(s, mcp.Tool{Name: "block"}, func(ctx context.Context, in argument) (string, error) {
		c.got(in)
		defer c.work()()
		select {
		case <-c.lab.gate(in.ID):
		case <-ctx.Done():
		}
		return strconv.Itoa(c.n), ctx.Err()
	})
	// It goes on when it is cancelled, and asks then.
	mcp.AddTool(s, mcp.Tool{Name: "stubborn"}, func(ctx context.Context, in argument) (string, error) {
		c.got(in)
		<-c.lab.gate(in.ID)
		f, err := mcp.Elicit[form](context.WithoutCancel(ctx), "question "+in.ID)
		return in.ID + " " + f.Answer, err
	})
	mcp.AddTool(s, mcp.Tool{Name: "tell"}, func(ctx context.Context, in argument) (string, error) {
		for i := range 3 {
			_ = mcp.Progress(ctx, float64(i+1), 3, in.ID)
			_ = mcp.Log(ctx, "info", in.ID, i)
		}
		return in.ID, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "roots"}, func(ctx context.Context, _ argument) (string, error) {
		roots, err := mcp.Roots(ctx)
		if err != nil || len(roots) == 0 {
			return "", err
		}
		return roots[0].URI, nil
	})
	mcp.AddTool(s, mcp.Tool{Name: "die"}, func(ctx context.Context, _ argument) (string, error) {
		_ = c.end.Close()
		<-ctx.Done()
		return "", ctx.Err()
	})
	mcp.AddTool(s, mcp.Tool{Name: "fail"}, func(context.Context, argument) (string, error) {
		return "", jsonrpc.Errorf(1234, "it does")
	})
	for _, uri := range []string{"lab:r", "lab:other"} {
		s.AddResource(mcp.Resource{URI: uri, Name: uri},
			func(_ context.Context, uri string) ([]mcp.ResourceContents, error) {
				return []mcp.ResourceContents{{URI: uri, Text: strconv.Itoa(c.n)}}, nil
			})
	}
}

func (c *child) got(in argument) {
	if c.lab.called != nil {
		c.lab.called(c.n, in.ID)
	}
}

func (c *child) work() (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
	c.max = max(c.max, c.busy)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.busy--
	}
}

// gate returns what "block" waits for.
func (l *lab) gate(id string) chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.blocked[id] == nil {
		l.blocked[id] = make(chan struct{})
	}
	return l.blocked[id]
}

func (l *lab) release(id string) { close(l.gate(id)) }

func (l *lab) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dials
}

func (l *lab) child(n int) *child {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.children {
		if c.n == n {
			return c
		}
	}
	l.t.Fatalf("there is no child %d", n)
	return nil
}

// toolCall is a call of a tool.
func toolCall(tool, id string, who Caller) *Call {
	return &Call{
		Method: spec.MethodToolsCall, Revision: era.LatestLegacy(), Caller: who,
		Params: jsonrpc.Raw(fmt.Sprintf(`{"name":%q,"arguments":{"id":%q}}`, tool, id)),
	}
}

// do makes a call and returns the text of the result.
func do(ctx context.Context, u *Upstream, c *Call) (string, error) {
	r, err := u.Call(ctx, c)
	if err != nil {
		return "", err
	}
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal(r.Raw, &result); err != nil {
		return "", err
	}
	if len(result.Content) == 0 {
		return "", fmt.Errorf("no content: %s", r.Raw)
	}
	if result.IsError {
		return "", errors.New(result.Content[0].Text)
	}
	return result.Content[0].Text, nil
}

func mustDo(tb testing.TB, u *Upstream, c *Call, want string) {
	tb.Helper()
	if got, err := do(tb.Context(), u, c); err != nil || got != want {
		tb.Errorf("%s: got %q, %v; want %q", c.Params, got, err, want)
	}
}

// wireData is what the errors of an upstream say.
type wireData struct {
	Upstream     string   `json:"upstream"`
	Sent         string   `json:"sent"`
	Retryable    bool     `json:"retryable"`
	RetryAfterMS int64    `json:"retryAfterMs"`
	Stderr       []string `json:"stderr"`
}

func dataOf(tb testing.TB, err error, code jsonrpc.Code) (d wireData) {
	tb.Helper()
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || wire.Code != code {
		tb.Fatalf("got the error %v, want one of code %d", err, int(code))
	}
	if err := json.Unmarshal(wire.Data, &d); err != nil {
		tb.Fatalf("%s: %v", wire.Data, err)
	}
	return d
}

// answerWith answers an elicitation with what its message ends with.
func answerWith(prefix string) func(context.Context, string, jsonrpc.Raw) (jsonrpc.Raw, error) {
	return func(_ context.Context, method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
		var p spec.ElicitRequestParams
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		if method != spec.MethodElicitationCreate {
			return nil, fmt.Errorf("asked %s", method)
		}
		return fmt.Appendf(nil, `{"action":"accept","content":{"answer":%q}}`,
			prefix+strings.TrimPrefix(p.Message, "question ")), nil
	}
}
