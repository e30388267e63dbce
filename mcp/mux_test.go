package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log"
	"log/slog"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

type pair struct {
	A int `json:"a"`
	B int `json:"b" default:"1"`
}

func muxForTools() *farcall.Mux {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", func(_ context.Context, p pair) (int, error) {
		return p.A + p.B, nil
	}, "Adds.", "Two numbers.")
	farcall.Handle(mux, "sum", func(_ context.Context, p []int) (map[string]int, error) {
		sum := 0
		for _, n := range p {
			sum += n
		}
		return map[string]int{"sum": sum}, nil
	})
	farcall.Handle(mux, "hello", func(context.Context, struct{}) (string, error) {
		return "hello", nil
	})
	farcall.Handle(mux, "nothing", func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, nil
	})
	farcall.Handle(mux, "wrong", func(context.Context, struct{}) (int, error) {
		return 0, &jsonrpc.Error{Code: 7, Message: "no luck", Data: jsonrpc.Raw(`{"try":"again"}`)}
	})
	farcall.Handle(mux, "broken", func(context.Context, struct{}) (int, error) {
		return 0, errors.New("secret")
	})
	farcall.Handle(mux, "ask", func(ctx context.Context, _ struct{}) (string, error) {
		type form struct {
			Name string `json:"name"`
		}
		f, err := mcp.Elicit[form](ctx, "Who?")
		return f.Name, err
	})
	farcall.HandleStream(mux, "count", func(_ context.Context, p pair) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := range p.A {
				if !yield(i, nil) {
					return
				}
			}
		}
	})
	farcall.HandleSubscription(mux, "time/ticks",
		func(context.Context, struct{}) (iter.Seq2[int, error], error) { return nil, nil })
	farcall.HandleTopic(mux, "news", func(context.Context, struct{}) (*farcall.Topic[int], error) {
		return nil, nil
	})
	mux.Handle("raw.any",
		farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
			return r.Params, nil
		}))
	return mux
}

func TestFromMux(t *testing.T) {
	var logged strings.Builder
	s := mcp.FromMux(muxForTools(),
		&mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	defer s.Close()
	a, b := farcall.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), b) }()
	c, err := mcp.Connect(t.Context(), a, &mcp.ClientOptions{
		Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: "accept", Content: jsonrpc.Raw(`{"name":"Ada"}`)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		c.Close()
		<-done
		if n := strings.Count(logged.String(), "level=ERROR"); n != 1 ||
			strings.Count(logged.String(), "secret") != 1 {
			t.Errorf("the internal error is logged once, and nothing else is:\n%s", logged.String())
		}
	}()
	tools, err := c.Tools(t.Context())
	if err != nil || len(tools) != 9 {
		t.Fatal(err, tools)
	}
	steps := 0
	ctx := mcp.OnProgress(t.Context(), func(spec.ProgressNotificationParams) { steps++ })
	for _, test := range []struct{ tool, args, text, structured string }{
		{"math_add", `{"a":2}`, "3", "3"},
		{"sum", `{"params":[1,2,3]}`, `{"sum":6}`, `{"sum":6}`},
		{"hello", `{}`, "hello", ""},
		{"nothing", `{}`, "", ""},
		{"count", `{"a":3}`, "[0,1,2]", "[0,1,2]"},
		{"raw.any", `{"x":[1.0]}`, `{"x":[1.0]}`, `{"x":[1.0]}`},
		{"ask", `{}`, "Ada", ""},
		{"wrong", `{}`, `error: no luck (error 7): {"try":"again"}`, ""},
		{"math_add", `{"a":"x"}`, `error: Invalid arguments`, ""},
		{"sum", `{"params":{}}`, `error: Invalid arguments`, ""},
	} {
		r, err := c.CallTool(ctx, test.tool, jsonrpc.Raw(test.args))
		if err != nil {
			t.Errorf("%s: %v", test.tool, err)
			continue
		}
		var text strings.Builder
		for _, block := range r.Content {
			text.WriteString(block.Text)
		}
		want, failed := strings.CutPrefix(test.text, "error: ")
		if r.IsError != failed || !strings.HasPrefix(text.String(), want) ||
			!failed && text.String() != want || string(r.StructuredContent) != test.structured {
			t.Errorf("%s: %v %q %s", test.tool, r.IsError, text.String(), r.StructuredContent)
		}
	}
	if steps != 3 {
		t.Errorf("%d values as progress", steps)
	}
	if _, err := c.CallTool(ctx, "broken", nil); err == nil ||
		strings.Contains(err.Error(), "secret") {
		t.Errorf("an internal error: %v", err)
	}
}

// A stream without an end ends with an error.
func TestFromMuxEndlessStream(t *testing.T) {
	mux := farcall.NewMux()
	farcall.HandleStream(mux, "endless", func(context.Context, struct{}) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for yield(strings.Repeat("x", 1_000_000), nil) {
			}
		}
	})
	c, done := connect(mcp.FromMux(mux, nil), nil)
	defer done()
	res, err := c.CallTool(t.Context(), "endless", nil)
	if err != nil || !res.IsError ||
		!strings.Contains(res.Content[0].Text, "endless has yielded more than 10 MB") {
		t.Errorf("%.200v %v", res, err)
	}
}

// TestFromMuxNames: two methods cannot be one tool.
func TestFromMuxNames(t *testing.T) {
	defer func() {
		if r := fmt.Sprint(recover()); !strings.Contains(r,
			`the methods "a.b c" and "a.b/c" make one tool, "a.b_c"`) {
			t.Error(r)
		}
	}()
	mux := farcall.NewMux()
	nop := farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
		return nil, nil
	})
	mux.Handle("a.b/c", nop)
	mux.Handle("a.b c", nop)
	mcp.FromMux(mux, nil)
}

func ExampleFromMux() {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", func(_ context.Context, in Add) (int, error) {
		return in.A + in.B, nil
	}, "Add two numbers")

	s := mcp.FromMux(mux, nil) // serves math_add, in every revision
	a, b := farcall.Pipe()
	done := make(chan error)
	go func() { done <- s.Serve(context.Background(), b) }()
	client, err := mcp.Connect(context.Background(), a, nil)
	if err != nil {
		log.Fatal(err)
	}
	sum, err := mcp.CallTool[int](context.Background(), client, "math_add", Add{2, 3})
	fmt.Println(sum, err)
	client.Close()
	<-done
	// Output: 5 <nil>
}
