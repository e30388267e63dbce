package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type valueKey struct{}

// partsServer has a part of each kind. What its handlers find in their context is in the answer.
func partsServer() *Server {
	s := NewServer("x", "1", &ServerOptions{
		Complete: func(context.Context, *spec.CompleteRequestParams) (*spec.CompleteResult, error) {
			return &spec.CompleteResult{Completion: spec.Completion{Values: []string{"all"}}}, nil
		},
	})
	AddTool(s, Tool{Name: "echo"}, func(ctx context.Context, in struct {
		Text string `json:"text"`
	},
	) (string, error) {
		r := RequestFrom(ctx)
		return fmt.Sprintf("%s %s %v", in.Text, r.Name, ctx.Value(valueKey{})), nil
	})
	AddTool(s, Tool{Name: "fails"}, func(context.Context, struct{}) (string, error) {
		return "", errOfHandler
	})
	s.AddPrompt(Prompt{Name: "greet", Arguments: []spec.PromptArgument{{Name: "name"}}},
		func(_ context.Context, args map[string]string) (*PromptResult, error) {
			return &PromptResult{Description: "for " + args["name"]}, nil
		})
	s.AddResource(Resource{URI: "a:b", Name: "b"},
		func(context.Context, string) ([]ResourceContents, error) {
			return []ResourceContents{{Text: "b"}}, nil
		})
	return s
}

var errOfHandler = errors.New("the handler failed")

// policy is middleware that does everything that middleware can do.
type policy struct{ seen counted }

func (p *policy) wrap(next Handler) Handler {
	return func(ctx context.Context, r *Request) (*Response, error) {
		p.seen.add(fmt.Sprintf("%s %s %v\n", r.Method, r.Name, r.Client().Revision))
		ctx = context.WithValue(ctx, valueKey{}, "valued")
		switch r.Name {
		case "virtual":
			return r.Respond(&ToolResult{Content: []Content{Text("answered")}})
		case "limited":
			return nil, &ToolError{&ToolResult{Content: []Content{Text("slow down"), Text("please")}}}
		case "broken":
			return nil, errors.New("for the model")
		case "denied":
			return nil, jsonrpc.Errorf(-1234, "denied")
		case "alias":
			r.Name = "echo"
			fallthrough
		case "echo":
			r.Arguments = jsonrpc.Raw(strings.ToUpper(string(r.Arguments)))
			r.Arguments = jsonrpc.Raw(strings.Replace(string(r.Arguments), `"TEXT"`, `"text"`, 1))
		case "greet":
			r.Arguments = jsonrpc.Raw(`{"name":"Ada"}`)
		}
		res, err := next(ctx, r)
		if err != nil || r.Method != spec.MethodToolsList {
			if err == nil && r.Method == spec.MethodToolsCall && res.Err() != nil {
				p.seen.add(res.Err().Error() + "\n")
			}
			return res, err
		}
		var list spec.ListToolsResult
		if err := res.Decode(&list); err != nil {
			return nil, err
		}
		list.Tools = list.Tools[:1]
		return r.Respond(&list)
	}
}

func TestMiddlewareWhateverMounts(t *testing.T) {
	for name, mount := range mounts {
		for _, rev := range era.Revisions() {
			if name == "as a handler" && rev.Handshake {
				continue // it has no sessions
			}
			t.Run(name+" "+rev.Name, func(t *testing.T) {
				s, p := partsServer(), &policy{}
				s.Use(p.wrap)
				c, err := mount(t, s)(&ClientOptions{Era: rev.Name})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				testMiddleware(t, c)
				for _, want := range []string{
					"tools/call echo ", "tools/call virtual ", "tools/call denied ", "tools/call fails ",
					"prompts/get greet ", "resources/read a:b ",
					"prompts/list  ", "completion/complete  ", "the handler failed",
				} {
					if n := p.seen.count(want); n != 1 {
						t.Errorf("the middleware saw %d times %q: %q", n, want, p.seen.all)
					}
				}
				if n := p.seen.count(" " + rev.Name); n != len(p.seen.all)-1 {
					t.Errorf("another revision: %q", p.seen.all)
				}
			})
		}
	}
}

func testMiddleware(t *testing.T, c *Client) {
	t.Helper()
	text := func(tool string) string {
		r, err := c.CallTool(t.Context(), tool, map[string]string{"text": "hello"})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(r.IsError, " ", textOf(r))
	}
	for tool, want := range map[string]string{
		"echo": "false HELLO echo valued", "alias": "false HELLO echo valued",
		"virtual": "false answered",
		"limited": "true slow down\nplease", "broken": "true for the model",
		"fails": "true the handler failed",
	} {
		if got := text(tool); got != want {
			t.Errorf("%s: %q, want %q", tool, got, want)
		}
	}
	_, err := c.CallTool(t.Context(), "denied", nil)
	if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != -1234 {
		t.Errorf("denied: %v", err)
	}
	if p, err := c.Prompt(t.Context(), "greet", nil); err != nil || p.Description != "for Ada" {
		t.Errorf("the prompt: %+v, %v", p, err)
	}
	if r, err := c.Read(t.Context(), "a:b"); err != nil || r.Contents[0].Text != "b" {
		t.Errorf("the resource: %+v, %v", r, err)
	}
	if tools, err := c.Tools(t.Context()); err != nil || len(tools) != 1 {
		t.Errorf("the tools: %+v, %v", tools, err)
	}
	if _, err := c.Prompts(t.Context()); err != nil {
		t.Error(err)
	}
	ref := spec.CompleteReference{Type: spec.RefPrompt, Name: "greet"}
	if err := c.Request(t.Context(), spec.MethodCompletionComplete,
		&spec.CompleteRequestParams{Ref: ref, Argument: spec.CompleteArgument{Name: "name", Value: "a"}},
		nil); err != nil {
		t.Error(err)
	}
}

// connected returns a client of a server in a revision, over HTTP.
func connected(t *testing.T, s *Server, o *ClientOptions) *Client {
	t.Helper()
	c, err := mounts["NewHandler without options"](t, s)(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// before is middleware that calls f before next.
func before(f func(r *Request)) func(Handler) Handler {
	return func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (*Response, error) {
			f(r)
			return next(ctx, r)
		}
	}
}

// The first middleware is the outermost, and each is made once, whenever Use is called.
func TestMiddlewareOrder(t *testing.T) {
	s := partsServer()
	var made, ran []string
	add := func(name string) func(Handler) Handler {
		return func(next Handler) Handler {
			made = append(made, name)
			return before(func(r *Request) {
				if r.Method == spec.MethodPromptsList {
					ran = append(ran, name)
				}
			})(next)
		}
	}
	s.Use()
	s.Use(add("a"), add("b"))
	s.Use(add("c"))
	c := connectedInProcess(t, s, nil)
	if _, err := c.Prompts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(made, ""); got != "abc" {
		t.Errorf("made: %s", got)
	}
	if got := strings.Join(ran, ""); got != "abc" {
		t.Errorf("ran: %s", got)
	}
}

func connectedInProcess(t *testing.T, s *Server, o *ClientOptions) *Client {
	t.Helper()
	c, err := mounts["Server.Serve"](t, s)(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Each round is seen once, and what middleware makes of the arguments may differ from round to
// round.
func TestMiddlewareSeesRounds(t *testing.T) {
	for _, rev := range era.Revisions() {
		if !rev.Elicitation {
			continue
		}
		t.Run(rev.Name, func(t *testing.T) {
			s := NewServer("x", "1", nil)
			AddTool(s, Tool{Name: "ask"}, func(ctx context.Context, in struct{ Round int }) (int, error) {
				name, err := Elicit[struct {
					Name string `json:"name"`
				}](ctx, "Who?")
				if err != nil || name.Name != "Ada" {
					return 0, errors.Join(err, errors.New("no name"))
				}
				return in.Round, nil
			})
			var rounds []bool
			s.Use(before(func(r *Request) {
				if r.Method == spec.MethodToolsCall {
					rounds = append(rounds, r.Continues())
					r.Arguments = fmt.Appendf(nil, `{"Round":%d}`, len(rounds))
				}
			}))
			o := &ClientOptions{
				Era: rev.Name,
				Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
					return &spec.ElicitResult{Action: "accept", Content: []byte(`{"name":"Ada"}`)}, nil
				},
			}
			want := []bool{false}
			if !rev.Handshake {
				want = append(want, true)
			}
			n, err := CallTool[int](t.Context(), connectedInProcess(t, s, o), "ask", nil)
			if err != nil || n != len(want) || !slices.Equal(rounds, want) {
				t.Errorf("%d, %v; rounds %v, want %v", n, err, rounds, want)
			}
		})
	}
}

// A task runs with what middleware has left, and its handler finds it.
func TestMiddlewareOfTasks(t *testing.T) {
	s := NewServer("x", "1", &ServerOptions{TaskAfter: -1})
	defer s.Close()
	AddTool(s, Tool{Name: "slow", Execution: &spec.ToolExecution{TaskSupport: spec.TaskOptional}},
		func(ctx context.Context, in struct{ Text string }) (string, error) {
			r := RequestFrom(ctx)
			return fmt.Sprint(in.Text, " ", ctx.Value(valueKey{}), " ", r.Name, " ", string(r.Arguments)),
				nil
		})
	seen := map[string]int{}
	s.Use(func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (*Response, error) {
			seen[r.Method]++
			if r.Method == spec.MethodToolsCall {
				r.Arguments = jsonrpc.Raw(`{"Text":"changed"}`)
			}
			ctx, cancel := context.WithCancel(context.WithValue(ctx, valueKey{}, "valued"))
			defer cancel() // the task goes on
			return next(ctx, r)
		}
	})
	c := connectedInProcess(t, s, &ClientOptions{Era: modernName, Tasks: true})
	got, err := CallTool[string](t.Context(), c, "slow", map[string]string{"Text": "sent"})
	if want := `changed valued slow {"Text":"changed"}`; got != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if seen[spec.MethodToolsCall] != 1 || seen[spec.MethodTasksGet] == 0 {
		t.Errorf("seen: %v", seen)
	}
}

// Headers repeat the arguments that the client sent, and say who calls.
func TestMiddlewareOverHTTP(t *testing.T) {
	s := NewServer("x", "1", nil)
	AddTool(s, Tool{Name: "where"}, func(_ context.Context, in struct {
		Region string `json:"region" header:"Region"`
	},
	) (string, error) {
		return in.Region, nil
	})
	var request Request
	s.Use(before(func(r *Request) {
		if r.Method == spec.MethodToolsCall {
			r.Arguments = jsonrpc.Raw(`{"region":"south"}`)
			if r.Header().Get("Mcp-Param-Region") != "east" || r.Owner() == "" || r.Session() != nil ||
				r.ID().IsNull() || len(r.Params()) == 0 {
				t.Errorf("%v, %q, %q", r.Header(), r.Owner(), r.Session().ID())
			}
			request.Meta = slices.Clone(r.Meta)
		}
	}))
	c := connected(t, s, &ClientOptions{Era: modernName})
	c.Use(before(func(r *Request) { // the client's headers follow what its middleware makes
		if r.Method == spec.MethodToolsCall {
			if r.Client() != nil || r.Header() != nil || r.Owner()+r.Session().ID() != "" || r.Continues() ||
				!r.ID().IsAbsent() {
				t.Error("a client's request has something of a server's")
			}
			r.Arguments = jsonrpc.Raw(`{"region":"east"}`)
			r.Meta = jsonrpc.Raw(`{"example.com/trace":"7"}`)
		}
	}))
	got, err := CallTool[string](t.Context(), c, "where", map[string]string{"region": "north"})
	if got != "south" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if !strings.Contains(string(request.Meta), `"example.com/trace":"7"`) ||
		!strings.Contains(string(request.Meta), spec.MetaProtocolVersion) {
		t.Errorf("_meta: %s", request.Meta)
	}
}

// Middleware sees sessions by name, methods of extensions, and unknown ones, which it may answer.
func TestMiddlewareOfExtensions(t *testing.T) {
	s := partsServer()
	s.Handle("example.com/meta",
		farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
			if RequestFrom(ctx).Session().ID() == "" {
				t.Error("no session")
			}
			return r.Params, nil
		}))
	s.Use(func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (*Response, error) {
			if r.Method == "example.com/unknown" {
				return r.Respond(map[string]int{"n": 1})
			}
			r.Meta = jsonrpc.Raw(`{"k":1}`)
			return next(ctx, r)
		}
	})
	c := connectedInProcess(t, s, &ClientOptions{Era: legacyName})
	var raw jsonrpc.Raw
	if err := c.Request(t.Context(), "example.com/meta", map[string]int{"a": 1}, &raw); err != nil ||
		string(raw) != `{"a":1,"_meta":{"k":1}}` {
		t.Errorf("%s, %v", raw, err)
	}
	if err := c.Request(t.Context(), "example.com/unknown", nil, &raw); err != nil ||
		string(raw) != `{"n":1}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// Middleware may try again, with another context and other arguments; a handler may ask each time.
func TestMiddlewareTriesAgain(t *testing.T) {
	s := NewServer("x", "1", nil)
	tries := 0
	AddTool(s, Tool{Name: "flaky"}, func(ctx context.Context, in struct{ Try int }) (int, error) {
		if tries++; tries < 3 {
			return 0, fmt.Errorf("failed %d", in.Try)
		}
		_, err := Elicit[struct{ Name string }](ctx, "Who?")
		return in.Try, err
	})
	s.Use(func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (res *Response, err error) {
			var failures []string
			for try := 1; ; try++ {
				if r.Method == spec.MethodToolsCall {
					r.Arguments = fmt.Appendf(nil, `{"Try":%d}`, try)
				}
				once, cancel := context.WithCancel(ctx)
				res, err = next(once, r)
				cancel()
				if err != nil || res.Err() == nil {
					if tries == 3 && strings.Join(failures, ", ") != "failed 1, failed 2" {
						t.Errorf("%v", failures)
					}
					return res, err
				}
				failures = append(failures, res.Err().Error())
			}
		}
	})
	o := &ClientOptions{
		Era: modernName,
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: "accept", Content: []byte(`{"Name":"Ada"}`)}, nil
		},
	}
	if n, err := CallTool[int](t.Context(), connectedInProcess(t, s, o), "flaky", nil); n != 1 ||
		err != nil {
		// the second round
		t.Errorf("%d, %v", n, err)
	}
}

// Middleware cannot ask the client, in any revision, neither before next nor after it.
func TestMiddlewareCannotAsk(t *testing.T) {
	for _, rev := range []string{legacyName, modernName} {
		s := sumServer()
		s.Use(func(next Handler) Handler {
			return func(ctx context.Context, r *Request) (*Response, error) {
				_, early := Elicit[askForm](ctx, "Who?")
				res, err := next(ctx, r)
				_, late := Elicit[askForm](ctx, "Who?")
				if !errors.Is(early, errSurrounds) || !errors.Is(late, errSurrounds) {
					t.Errorf("%s, %s: %v, %v", rev, r.Method, early, late)
				}
				return res, err
			}
		})
		asked := func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return nil, errors.New("the user was asked")
		}
		o := &ClientOptions{Era: rev, Elicit: asked}
		if _, err := connectedInProcess(t, s, o).CallTool(t.Context(), "add", addIn{1, 2}); err != nil {
			t.Error(err)
		}
	}
}

// What middleware does wrong is an internal error, never something for the model.
func TestMiddlewareMistakes(t *testing.T) {
	var kept Handler
	for name, wrong := range map[string]struct {
		middleware func(next Handler) Handler
		want       error
	}{
		"another context": {func(next Handler) Handler {
			return func(_ context.Context, r *Request) (*Response, error) {
				return next(context.Background(), r)
			}
		}, errOtherContext},
		"another request": {func(next Handler) Handler {
			return func(ctx context.Context, r *Request) (*Response, error) {
				return next(ctx, &Request{Method: r.Method})
			}
		}, errOtherRequest},
		"no request": {func(next Handler) Handler {
			return func(ctx context.Context, _ *Request) (*Response, error) { return next(ctx, nil) }
		}, errOtherRequest},
		"no response": {func(Handler) Handler {
			return func(context.Context, *Request) (*Response, error) { return nil, nil } //nolint:nilnil // the mistake
		}, errNoResponse},
		"no JSON":   {before(func(r *Request) { r.Arguments = jsonrpc.Raw(`{"a":`) }), nil},
		"no object": {before(func(r *Request) { r.Meta = jsonrpc.Raw(`[]`) }), nil},
		"no result": {func(Handler) Handler {
			return func(_ context.Context, r *Request) (*Response, error) { return r.Respond(1) }
		}, nil},
		"too late": {func(next Handler) Handler {
			kept = next
			return func(ctx context.Context, r *Request) (*Response, error) {
				res, err := next(ctx, r)
				t.Cleanup(func() {
					if _, err := kept(ctx, r); !errors.Is(err, errTooLate) {
						t.Errorf("next, too late: %v", err)
					}
				})
				if err == nil {
					err = errTooLate
				}
				return res, err
			}
		}, errTooLate},
	} {
		t.Run(name, func(t *testing.T) {
			s := sumServer()
			s.Use(wrong.middleware)
			_, err := s.ServeRPC(t.Context(),
				modernRequest(spec.MethodToolsCall, `"name":"add","arguments":{"a":2,"b":3}`))
			if _, ok := errors.AsType[*middlewareError](err); !ok ||
				wrong.want != nil && !errors.Is(err, wrong.want) {
				t.Errorf("got %v, want %v", err, wrong.want)
			}
		})
	}
	s := sumServer()
	s.Use(before(func(r *Request) { r.Name = "x" }))
	if _, err := s.ServeRPC(t.Context(), modernRequest(spec.MethodToolsList, "")); err == nil ||
		!strings.Contains(err.Error(), `"tools/list", which has none`) {
		t.Error(err)
	}
	mustMisuse(t, func() { sumServer().Use(nil) })
	mustMisuse(t, func() { sumServer().Use(func(Handler) Handler { return nil }) })
	mustMisuse(t, func() {
		NewServer("x", "1", &ServerOptions{Relay: &fakeRelay{}}).Use(before(func(*Request) {}))
	})
}

func modernRequest(method, params string) *farcall.Request {
	meta := `"_meta":{"` + spec.MetaProtocolVersion + `":"` + modernName + `","` +
		spec.MetaClientCapabilities + `":{}}`
	if params != "" {
		meta += ","
	}
	return &farcall.Request{
		Method: method, ID: jsonrpc.IntID(1),
		Params: jsonrpc.Raw("{" + meta + params + "}"),
	}
}

func mustMisuse(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

// The server answers only when next has ended: what it reads is lent.
func TestMiddlewareLeavesNext(t *testing.T) {
	s := NewServer("x", "1", nil)
	ended := false
	started := make(chan struct{})
	AddTool(s, Tool{Name: "slow"}, func(ctx context.Context, _ struct{}) (string, error) {
		close(started)
		<-ctx.Done()
		ended = true
		return "late", nil
	})
	s.Use(func(next Handler) Handler {
		return func(ctx context.Context, r *Request) (*Response, error) {
			ctx, cancel := context.WithCancel(ctx)
			go func() { _, _ = next(ctx, r) }()
			<-started
			cancel()
			return nil, &ToolError{&ToolResult{Content: []Content{Text("too slow")}}}
		}
	})
	raw, err := s.ServeRPC(t.Context(), modernRequest(spec.MethodToolsCall, `"name":"slow"`))
	if err != nil || !ended || !strings.Contains(string(raw.(jsonrpc.Raw)), "too slow") {
		t.Errorf("%s, %v; ended: %v", raw, err, ended)
	}
}

func TestRequestFrom(t *testing.T) {
	s := sumServer()
	var late func() *Request
	AddTool(s, Tool{Name: "who"}, func(ctx context.Context, in struct{ A int }) (string, error) {
		late = func() *Request { return RequestFrom(ctx) }
		r := RequestFrom(ctx)
		return fmt.Sprint(r.Method, r.Name, string(r.Arguments), r.Client().Revision, r.Header() == nil),
			nil
	})
	c := connectedInProcess(t, s, &ClientOptions{Era: modernName})
	got, err := CallTool[string](t.Context(), c, "who", map[string]int{"A": 1})
	if want := `tools/callwho{"A":1}` + modernName + "true"; got != want || err != nil {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if late() != nil || RequestFrom(t.Context()) != nil {
		t.Error("a request outside of a handler")
	}
}

func BenchmarkMiddleware(b *testing.B) {
	with := sumServer()
	with.Use(before(func(*Request) {}))
	for name, s := range map[string]*Server{"without": sumServer(), "with": with} {
		b.Run(name, func(b *testing.B) {
			call := sumCall(b, s)
			b.ReportAllocs()
			for b.Loop() {
				call()
			}
		})
	}
}
