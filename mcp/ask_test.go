package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/relay"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	canAll = `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{},` +
		`"extensions":{"io.modelcontextprotocol/tasks":{}}}`
	rev2026 = "2026-07-28"
	rev2511 = "2025-11-25"
	rev2506 = "2025-06-18"
)

// humanAnswers is a client's user, model and roots.
func humanAnswers(method string, params jsonrpc.Raw) string {
	switch method {
	case spec.MethodSamplingCreateMessage:
		return `{"role":"assistant","content":{"type":"text","text":"Paris"},"model":"m"}`
	case spec.MethodRootsList:
		return `{"roots":[{"uri":"file:///r"}]}`
	}
	if bytes.Contains(params, []byte(`"url"`)) {
		return `{"action":"accept"}`
	}
	return `{"action":"accept","content":{"name":"Ann","color":"red","extra":1}}`
}

// askServer returns a server with one tool, "ask".
func askServer(
	tb testing.TB, f func(ctx context.Context) (string, error), o *ServerOptions,
) *Server {
	tb.Helper()
	s := NewServer("s", "1", o)
	tb.Cleanup(s.Close)
	AddTool(s, Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		return f(ctx)
	})
	return s
}

type askForm struct {
	Name  string `json:"name"`
	Color string `json:"color,omitempty" default:"blue"`
}

// askEverything asks one thing after another.
func askEverything(ctx context.Context) (string, error) {
	p, err := Elicit[askForm](ctx, "Who?")
	if err != nil {
		return "", err
	}
	m, err := Sample(ctx,
		&spec.CreateMessageRequestParams{
			Messages: []spec.SamplingMessage{
				{Role: "user", Content: []Content{Text("Capital of " + p.Name)}},
			}, MaxTokens: 9,
		})
	if err != nil {
		return "", fmt.Errorf("sampling: %w", err)
	}
	roots, err := Roots(ctx)
	if err != nil {
		return "", err
	}
	if err := ElicitURL(ctx, "Sign in", "https://example.com"); err != nil {
		return "", err
	}
	return fmt.Sprint(p.Name, p.Color, m.Content[0].Text, roots[0].URI), nil
}

func TestAskIsTheSameInEveryEra(t *testing.T) {
	const want = "AnnredParisfile:///r"
	s := askServer(t, askEverything, nil)
	r, n := sendRounds(t, s, "tools/call", `{"name":"ask"}`, humanAnswers)
	if r.text() != want || n != 5 || r.Result.ResultType != "complete" {
		t.Errorf("modern: %s after %d rounds", r.raw, n)
	}
	var asked []string
	p := dialLegacy(t, s, rev2511, canAll, func(_ context.Context, req *farcall.Request) (any, error) {
		asked = append(asked, req.Method)
		if url := bytes.Contains(req.Params,
			[]byte(`"url"`)); url != bytes.Contains(req.Params, []byte(`"elicitationId":"`)) {
			t.Errorf("elicitationId: %s", req.Params)
		}
		return jsonrpc.Raw(humanAnswers(req.Method, req.Params)), nil
	})
	if r := sendLegacy(t, p, "tools/call", `{"name":"ask"}`); r.text() != want || len(asked) != 4 {
		t.Errorf("legacy: %q, asked %v", r.text(), asked)
	}
}

func TestAskSeveralInOneRound(t *testing.T) {
	f := func(ctx context.Context) (string, error) {
		var wait sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			wait.Go(func() {
				switch i {
				case 0:
					_, errs[i] = Roots(ctx)
				case 1:
					_, errs[i] = Elicit[askForm](relay.Named(ctx, "who"), "Who?")
				case 2, 3:
					_, errs[i] = Elicit[askForm](ctx, "The same")
				default:
					_, errs[i] = Elicit[askForm](ctx, fmt.Sprint("Who is ", i))
				}
			})
		}
		wait.Wait()
		return "all", errors.Join(errs...)
	}
	s := askServer(t, f, nil)
	first := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`)
	keys := slices.Sorted(maps.Keys(first.Result.InputRequests))
	if len(keys) != 6 || !slices.Contains(keys, "who") {
		t.Fatalf("keys %v", keys)
	}
	for range 20 { // whatever the order of the goroutines
		again := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`)
		if got := slices.Sorted(maps.Keys(again.Result.InputRequests)); !slices.Equal(got, keys) {
			t.Fatalf("keys %v, then %v", keys, got)
		}
	}
	if r, n := sendRounds(t, s, "tools/call", `{"name":"ask"}`, humanAnswers); r.text() != "all" ||
		n != 2 {
		t.Errorf("%s after %d rounds", r.raw, n)
	}
	p := dialLegacy(t, s, rev2511, canAll, answeringPeer(humanAnswers))
	if r := sendLegacy(t, p, "tools/call", `{"name":"ask"}`); r.text() != "all" {
		t.Errorf("legacy: %q", r.text())
	}
}

func TestAskResponses(t *testing.T) {
	s := askServer(t, func(ctx context.Context) (string, error) {
		p, err := Elicit[askForm](relay.Named(ctx, "user"), "Who?")
		return p.Name + " " + p.Color, err
	}, nil)
	for _, test := range []struct{ responses, want string }{
		{`{}`, "input_required"},
		{`null`, "input_required"},
		{`{"wrong":{"action":"accept","content":{"name":"Ann"}}}`, "input_required"},
		{`{"user":{"action":"accept","content":{"name":"Ann"}}}`, "Ann blue"},
		{
			`{"user":{"action":"accept","content":{"name":"Ann","color":"red"}},"more":{},"other":5}`,
			"Ann red",
		},
		{`{"user":{"action":"accept","content":{"name":7}}}`, "error -32602"},
		{`{"user":{"action":"accept","content":{"color":"red"}}}`, "error -32602"},
		{`{"user":{"action":"accept"}}`, "error -32602"},
		{`{"user":{"action":"perhaps"}}`, "error -32602"},
		{`{"user":{}}`, "error -32602"},
		{`{"user":12345}`, "error -32602"},
		{`{"user":null}`, "error -32602"},
		{`12`, "error -32602"},
		{`[]`, "error -32602"},
		{
			`{"user":{"action":"accept","content":{"name":"A"}},"user":{"action":"decline"}}`,
			"error -32602",
		},
		{`{"user":{"action":"decline"}}`, ErrDeclined.Error()},
		{`{"user":{"action":"cancel","content":null}}`, ErrCancelled.Error()},
	} {
		r := sendModern(t, s, canAll, "tools/call", `{"name":"ask","inputResponses":`+test.responses+`}`)
		if r.text() != test.want {
			t.Errorf("%s: %s, want %s", test.responses, r.raw, test.want)
		}
	}
	for answer, want := range map[string]string{
		`{"action":"accept","content":{"name":"Ann"}}`: "Ann blue",
		`{"action":"decline"}`:                         ErrDeclined.Error(),
		`{"action":"accept","content":{}}`: `mcp: ask the client "elicitation/create": ` +
			`"content" does not fit`,
		`7`: `mcp: ask the client "elicitation/create": it ` +
			`must be an object`,
	} {
		p := dialLegacy(t, s, rev2511, canAll, answeringPeer(func(string, jsonrpc.Raw) string {
			return answer
		}))
		r := sendLegacy(t, p, "tools/call", `{"name":"ask"}`)
		if !strings.HasPrefix(r.text(), want) || r.Result.IsError == strings.HasPrefix(want, "Ann") {
			t.Errorf("legacy: %s: %q", answer, r.text())
		}
	}
}

func TestAskOtherResponses(t *testing.T) {
	for _, test := range []struct{ method, response, want string }{
		{spec.MethodRootsList, `{"roots":[]}`, "ok"},
		{spec.MethodRootsList, `{}`, "error -32602"},
		{spec.MethodRootsList, `{"roots":[{}]}`, "error -32602"},
		{spec.MethodRootsList, `{"roots":7}`, "error -32602"},
		{spec.MethodSamplingCreateMessage, humanAnswers(spec.MethodSamplingCreateMessage, nil), "ok"},
		{spec.MethodSamplingCreateMessage, `{"role":"assistant","model":"m"}`, "error -32602"},
		{
			spec.MethodSamplingCreateMessage, `{"role":"assistant","content":[],"model":""}`,
			"error -32602",
		},
		{spec.MethodSamplingCreateMessage, `{"role":1}`, "error -32602"},
		{
			"ping", `{}`,
			`mcp: ask "ping": a client can be asked elicitation/create, sampling/createMessage and ` +
				`roots/list only`,
		},
	} {
		s := askServer(t, func(ctx context.Context) (string, error) {
			var raw jsonrpc.Raw
			return "ok", Ask(relay.Named(ctx, "k"), test.method, nil, &raw)
		}, nil)
		r := sendModern(t, s, canAll, "tools/call",
			`{"name":"ask","inputResponses":{"k":`+test.response+`}}`)
		if r.text() != test.want {
			t.Errorf("%s: %s", test.response, r.raw)
		}
	}
}

func TestAskWithoutCapability(t *testing.T) {
	for _, test := range []struct {
		caps, want string
		ask        func(context.Context) error
	}{
		{`{}`, `{"elicitation":{}}`, func(ctx context.Context) error {
			_, err := Elicit[askForm](ctx, "")
			return err
		}},
		{`{"elicitation":{"url":{}}}`, `{"elicitation":{}}`, func(ctx context.Context) error {
			_, err := Elicit[askForm](ctx, "")
			return err
		}},
		{
			`{"elicitation":{}}`, `{"elicitation":{"url":{}}}`,
			func(ctx context.Context) error { return ElicitURL(ctx, "", "https://x") },
		},
		{`{}`, `{"sampling":{}}`, func(ctx context.Context) error {
			_, err := Sample(ctx, &spec.CreateMessageRequestParams{})
			return err
		}},
		{`{"sampling":{}}`, `{"sampling":{"tools":{}}}`, func(ctx context.Context) error {
			_, err := Sample(ctx, &spec.CreateMessageRequestParams{ToolChoice: &spec.ToolChoice{}})
			return err
		}},
		{`{}`, `{"roots":{}}`, func(ctx context.Context) error { _, err := Roots(ctx); return err }},
	} {
		s := askServer(t, func(ctx context.Context) (string, error) { return "", test.ask(ctx) }, nil)
		r := sendModern(t, s, test.caps, "tools/call", `{"name":"ask"}`)
		if r.Error == nil || r.Error.Code != -32021 ||
			string(r.Error.Data) != `{"requiredCapabilities":`+test.want+`}` {
			t.Errorf("modern: %s: %s", test.want, r.raw)
		}
		p := dialLegacy(t, s, rev2511, test.caps, answeringPeer(humanAnswers))
		l := sendLegacy(t, p, "tools/call", `{"name":"ask"}`)
		if !l.Result.IsError || !strings.Contains(l.text(), "does not declare the capability") {
			t.Errorf("legacy: %s: %q", test.want, l.text())
		}
	}
	s := askServer(t, func(ctx context.Context) (string, error) {
		return "",
			ElicitURL(ctx, "", "https://x")
	}, nil)
	p := dialLegacy(t, s, rev2506, canAll, answeringPeer(humanAnswers))
	if l := sendLegacy(t, p, "tools/call", `{"name":"ask"}`); !strings.Contains(l.text(),
		"revision 2025-06-18 has no elicitation.url") {
		t.Errorf("an older revision: %q", l.text())
	}
	// What the client can do is asked all the same.
	s = askServer(t, func(ctx context.Context) (string, error) {
		_, err1 := Elicit[askForm](ctx, "")
		_, err2 := Roots(ctx)
		return "", errors.Join(err1, err2)
	}, nil)
	r := sendModern(t, s, `{"roots":{}}`, "tools/call", `{"name":"ask"}`)
	if r.Result.ResultType != "input_required" || len(r.Result.InputRequests) != 1 {
		t.Errorf("one of two: %s", r.raw)
	}
}

func TestAskState(t *testing.T) {
	keys := [][]byte{bytes.Repeat([]byte{1}, 32)}
	s := askServer(t, askEverything, &ServerOptions{Keys: keys})
	first := sendModern(t, s, canAll, "tools/call", `{"name":"ask","arguments":{}}`)
	var key string
	for key = range first.Result.InputRequests {
	}
	retry := func(state, more string) string {
		return fmt.Sprintf(`{"name":"ask","arguments":{}%s,"requestState":%q,"inputResponses":{%q:%s}}`,
			more, state, key, humanAnswers("", nil))
	}
	second := sendModern(t, s, canAll, "tools/call", retry(first.Result.RequestState, ""))
	if second.Result.ResultType != "input_required" ||
		second.Result.RequestState == first.Result.RequestState || second.Result.RequestState == "" {
		t.Fatalf("second round: %s", second.raw)
	}
	for _, q := range second.Result.InputRequests {
		if q.Method != spec.MethodSamplingCreateMessage {
			t.Errorf("asked again: %s", second.raw)
		}
	}
	if !strings.HasPrefix(key, "elicit-") {
		t.Errorf("key %q", key)
	}
	for what, params := range map[string]string{
		"tampered": retry(first.Result.RequestState+"-TAMPERED", ""),
		"other call": strings.Replace(retry(first.Result.RequestState, ""), `"arguments":{}`,
			`"arguments":null`, 1),
		"more params": retry(first.Result.RequestState, `,"x":1`),
		"nonsense":    retry("abc", ""),
	} {
		if r := sendModern(t, s, canAll, "tools/call", params); r.Error == nil ||
			r.Error.Code != jsonrpc.InvalidParams || r.Error.Message != errState.Message {
			t.Errorf("%s: %s", what, r.raw)
		}
	}
	other := askServer(t, askEverything,
		&ServerOptions{Keys: keys, Owner: func(context.Context) string { return "bob" }})
	if r := sendModern(t, other, canAll, "tools/call",
		retry(first.Result.RequestState, "")); r.Error == nil {
		t.Errorf("another principal: %s", r.raw)
	}
	twin := askServer(t, askEverything, &ServerOptions{Keys: keys})
	if r := sendModern(t, twin, canAll, "tools/call",
		retry(first.Result.RequestState, "")); r.Result.ResultType != "input_required" {
		t.Errorf("another process with the same keys: %s", r.raw)
	}
}

func TestAskWhateverTheHandlerReturns(t *testing.T) {
	for name, f := range map[string]func(error) error{
		"nothing":          func(error) error { return nil },
		"wrapped":          func(err error) error { return fmt.Errorf("ask: %w", err) },
		"another":          func(error) error { return errors.New("no") },
		"a protocol error": func(error) error { return jsonrpc.Errorf(jsonrpc.InvalidParams, "no") },
	} {
		s := askServer(t, func(ctx context.Context) (string, error) {
			_, err := Roots(ctx)
			return "done", f(err)
		}, nil)
		if r := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`); r.Result.ResultType !=
			"input_required" {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
}

func TestAskTooLate(t *testing.T) {
	late := make(chan context.Context, 1)
	s := askServer(t, func(ctx context.Context) (string, error) {
		late <- ctx
		return "done", nil
	}, nil)
	sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`)
	if _, err := Roots(<-late); !errors.Is(err, errOver) {
		t.Errorf("after the handler: %v", err)
	}
	if _, err := Roots(t.Context()); !errors.Is(err, errOutside) {
		t.Errorf("outside of a handler: %v", err)
	}
}

func TestAskFromPromptsAndResources(t *testing.T) {
	s := NewServer("s", "1", nil)
	ask := func(ctx context.Context) (string, error) {
		p, err := Elicit[askForm](ctx, "Who?")
		return p.Name, err
	}
	s.AddPrompt(Prompt{Name: "p"},
		func(ctx context.Context, _ map[string]string) (*PromptResult, error) {
			name, err := ask(ctx)
			return &PromptResult{Messages: []PromptMessage{{Role: "user", Content: Text(name)}}}, err
		})
	s.AddResource(Resource{URI: "x:r", Name: "r"},
		func(ctx context.Context, uri string) ([]ResourceContents, error) {
			name, err := ask(ctx)
			return []ResourceContents{{URI: uri, Text: name}}, err
		})
	if r, n := sendRounds(t, s, "prompts/get", `{"name":"p"}`, humanAnswers); n != 2 ||
		len(r.Result.Messages) != 1 || r.Result.Messages[0].Content.Text != "Ann" {
		t.Errorf("prompt: %s", r.raw)
	}
	if r, n := sendRounds(t, s, "resources/read", `{"uri":"x:r"}`, humanAnswers); n != 2 ||
		len(r.Result.Contents) != 1 || r.Result.Contents[0].Text != "Ann" {
		t.Errorf("resource: %s", r.raw)
	}
	s.Handle("custom/ask",
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			_, err := ask(ctx)
			return jsonrpc.Raw(`{}`), err
		}))
	if r := sendModern(t, s, canAll, "custom/ask", `{}`); r.Error == nil ||
		r.Error.Code != jsonrpc.InternalError {
		t.Errorf("a method that cannot ask: %s", r.raw)
	}
}

func TestAskRefusedByClient(t *testing.T) {
	s := askServer(t, askEverything, nil)
	p := dialLegacy(t, s, rev2511, canAll, func(context.Context, *farcall.Request) (any, error) {
		return nil, jsonrpc.Errorf(-1, "the user said no")
	})
	r := sendLegacy(t, p, "tools/call", `{"name":"ask"}`)
	if !r.Result.IsError || !strings.Contains(r.text(), "the user said no (code -1)") {
		t.Errorf("%+v", r)
	}
}

func TestAskTooMuch(t *testing.T) {
	s := askServer(t, func(ctx context.Context) (string, error) {
		_, err := Elicit[askForm](relay.Named(ctx, "k"), "Who?")
		return "done", err
	}, nil)
	r := sendModern(t, s, canAll, "tools/call",
		fmt.Sprintf(`{"name":"ask","inputResponses":{"k":{"action":"accept","content":{"name":%q}}}}`,
			strings.Repeat("x", maxState)))
	if !r.Result.IsError || !strings.Contains(r.text(), "does not fit into the state") {
		t.Errorf("%.300s", r.raw)
	}
}

func FuzzInputResponses(f *testing.F) {
	s := askServer(f, askEverything, nil)
	f.Add([]byte(`{"elicit-0":{"action":"accept","content":{"name":"A"}}}`))
	f.Add([]byte(`{"a":1,"a":2}`))
	f.Add([]byte(`[`))
	f.Fuzz(func(t *testing.T, responses []byte) {
		if jsonrpc.Valid(responses) != nil {
			return
		}
		r := sendModern(t, s, canAll, "tools/call",
			`{"name":"ask","inputResponses":`+string(responses)+`}`)
		if got := r.text(); got != "input_required" && got != "error -32602" && got != "error -32600" {
			t.Errorf("%s: %s", responses, r.raw)
		}
	})
}

func TestAskMisuse(t *testing.T) {
	for want, ask := range map[string]func(context.Context) error{
		"requestedSchema": func(ctx context.Context) error {
			return Ask(ctx, spec.MethodElicitationCreate,
				jsonrpc.Raw(`{"message":"","requestedSchema":{"type":7}}`), nil)
		},
		`mcp: ask "roots/list"`: func(ctx context.Context) error {
			return Ask(ctx, spec.MethodRootsList, make(chan int), nil)
		},
		`mcp: ask "elicitation`: func(ctx context.Context) error {
			return Ask(ctx, spec.MethodElicitationCreate, jsonrpc.Raw(`{"mode":7}`), nil)
		},
		`mcp: ask "sampling`: func(ctx context.Context) error {
			return Ask(ctx, spec.MethodSamplingCreateMessage, jsonrpc.Raw(`[]`), nil)
		},
	} {
		s := askServer(t, func(ctx context.Context) (string, error) { return "", ask(ctx) }, nil)
		if r := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`); !r.Result.IsError ||
			!strings.Contains(r.text(), want) {
			t.Errorf("%s: %s", want, r.raw)
		}
	}
	defer func() {
		if v := fmt.Sprint(recover()); !strings.Contains(v, "Keys") {
			t.Errorf("a short key: %s", v)
		}
	}()
	NewServer("s", "1", &ServerOptions{Keys: [][]byte{{1}}})
}

func TestAskTooMuchBefore(t *testing.T) {
	s := askServer(t, func(ctx context.Context) (string, error) {
		_, err := Elicit[askForm](relay.Named(ctx, "k"), "Who?")
		return "done", err
	}, nil)
	first := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`)
	r := sendModern(t, s, canAll, "tools/call",
		fmt.Sprintf(
			`{"name":"ask","requestState":%q,"inputResponses":{"k":{"action":"accept",`+
				`"content":{"name":%q}}}}`,
			first.Result.RequestState, strings.Repeat("x", maxState)))
	if r.text() != "error -32602" {
		t.Errorf("%.300s", r.raw)
	}
}

// A question without params has an object for them all the same: there are
// clients that take neither null nor nothing.
func TestQuestionParams(t *testing.T) {
	for _, params := range []any{nil, jsonrpc.Raw(nil), (*struct{})(nil)} {
		q, err := newQuestion(t.Context(), spec.MethodRootsList, params, false)
		if err != nil || string(q.params) != "{}" {
			t.Errorf("%T: %s, %v", params, q.params, err)
		}
	}
}
