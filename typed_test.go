package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type profile struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
	Age  int      `json:"age,omitzero"`
}

func typedMux() *farcall.Mux {
	m := farcall.NewMux()
	farcall.Handle(m, "add", func(_ context.Context, p addends) (float64, error) {
		return p.A + p.B, nil
	})
	farcall.Handle(m, "addPointer", func(_ context.Context, p *addends) (*float64, error) {
		return new(p.A + p.B), nil
	})
	farcall.Handle(m, "sum", func(_ context.Context, all []float64) (float64, error) {
		total := 0.0
		for _, v := range all {
			total += v
		}
		return total, nil
	})
	farcall.Handle(m, "double", func(_ context.Context, n int) (int, error) { return 2 * n, nil })
	farcall.Handle(m, "void", func(context.Context, struct{}) (struct{}, error) {
		return struct{}{}, nil
	})
	farcall.Handle(m, "echo", func(_ context.Context, v jsonrpc.Raw) (jsonrpc.Raw, error) {
		return slices.Clone(v), nil
	})
	farcall.Handle(m, "any", func(_ context.Context, v any) (any, error) { return v, nil })
	farcall.Handle(m, "profile", func(context.Context, struct{}) (profile, error) {
		return profile{Name: "<Ann>"}, nil
	})
	farcall.Handle(m, "nilPointer", func(context.Context, struct{}) (*profile, error) {
		return nil, nil
	})
	farcall.Handle(m, "fail", func(context.Context, struct{}) (int, error) {
		return 0, errors.New("a secret")
	})
	farcall.HandleStream(m, "count",
		func(_ context.Context, p struct{ To int }) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				for i := range p.To {
					if i == 5 {
						yield(0, jsonrpc.Errorf(1001, "too far"))
						return
					}
					if !yield(i, nil) {
						return
					}
				}
			}
		})
	return m
}

// What a caller sends and gets, byte for byte.
func TestTypedOnTheWire(t *testing.T) {
	r := farcall.NewResponder(typedMux(), nil)
	for _, test := range []struct{ call, want string }{
		{`"method":"add","params":{"b":2,"a":1}`, `"result":3`},
		{`"method":"add","params":[1,2]`, `"result":3`},
		{`"method":"addPointer","params":[1,2]`, `"result":3`},
		// infinite
		{`"method":"add","params":[1e308,1e308]`, `"error":{"code":-32603,"message":"Internal error"}`},
		{
			`"method":"add","params":[1]`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":"b","pointer":"/1",` +
				`"reason":"missing"}}`,
		},
		{
			`"method":"add","params":{"a":1,"b":2,"c":3}`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":"c","pointer":"/c",` +
				`"reason":"unknown"}}`,
		},
		{
			`"method":"add"`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":"a","pointer":"/a",` +
				`"reason":"missing"}}`,
		},
		{
			`"method":"add","params":null`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":"a","pointer":"/a",` +
				`"reason":"missing"}}`,
		},
		{`"method":"sum","params":[1,2,4]`, `"result":7`},
		{`"method":"sum"`, `"result":0`},
		{`"method":"double","params":[21]`, `"result":42`},
		{`"method":"void"`, `"result":null`},
		{`"method":"void","params":{}`, `"result":null`},
		{`"method":"void","params":[]`, `"result":null`},
		{
			`"method":"void","params":[1]`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":0,"pointer":"/0",` +
				`"reason":"extra"}}`,
		},
		{`"method":"echo","params":[1.0,1e400,"\u0041"]`, `"result":[1.0,1e400,"\u0041"]`},
		{`"method":"echo"`, `"result":null`},
		{`"method":"any","params":{"b":[1],"a":null}`, `"result":{"a":null,"b":[1]}`},
		{`"method":"any"`, `"result":null`},
		{`"method":"profile"`, `"result":{"name":"<Ann>","tags":[]}`},
		{`"method":"nilPointer"`, `"result":null`},
		{`"method":"fail"`, `"error":{"code":-32603,"message":"Internal error"}`},
		{`"method":"count","params":[3]`, `"result":[0,1,2]`},
		{`"method":"count","params":[0]`, `"result":[]`},
		{`"method":"count","params":[9]`, `"error":{"code":1001,"message":"too far"}`},
		{
			`"method":"count","params":{"to":3}`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":"to","pointer":"/to",` +
				`"reason":"unknown"}}`,
		},
	} {
		got := string(r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","id":1,`+test.call+`}`), nil))
		if want := `{"jsonrpc":"2.0",` + test.want + `,"id":1}`; got != want {
			t.Errorf("%s: got\n\t%s\nwant\n\t%s", test.call, got, want)
		}
	}
}

func TestTypedStreams(t *testing.T) {
	a, b := farcall.Pipe()
	pa, _ := connect(t, a, b, nil, typedMux(), nil, nil)
	var got []int
	var last error
	for v, err := range farcall.Stream[int](t.Context(), pa, "count", map[string]int{"To": 7}) {
		if last = err; err == nil {
			got = append(got, v)
		}
	}
	if !slices.Equal(got, []int{0, 1, 2, 3, 4}) || !errors.Is(last, jsonrpc.Code(1001)) {
		t.Errorf("got %v, %v", got, last)
	}
}

// Notifications reach typed handlers, and wrong ones are dropped in silence.
func TestTypedNotifications(t *testing.T) {
	m := farcall.NewMux()
	got := make(chan string, 1)
	farcall.Handle(m, "log", func(_ context.Context, p struct{ Text string }) (struct{}, error) {
		got <- p.Text
		return struct{}{}, nil
	})
	a, b := farcall.Pipe()
	pa, _ := connect(t, a, b, nil, m, nil, nil)
	for _, params := range []string{`{"Txt":"no"}`, `["yes"]`} {
		if err := pa.Notify(t.Context(), "log", jsonrpc.Raw(params)); err != nil {
			t.Fatal(err)
		}
	}
	if text := <-got; text != "yes" {
		t.Errorf("got %q", text)
	}
}

func ExampleHandle() {
	type Params struct {
		Name string `json:"name" doc:"who is greeted"`
		Loud int    `json:"loud" doc:"how loudly" default:"1"`
	}
	mux := farcall.NewMux()
	farcall.Handle(mux, "greet", func(_ context.Context, p Params) (string, error) {
		return "Hello " + p.Name + strings.Repeat("!", p.Loud), nil
	}, "Greets a person.")

	ours, theirs := farcall.Pipe()
	server, client := farcall.NewPeer(theirs, mux, nil), farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()

	ctx := context.Background()
	byName, _ := farcall.Call[string](ctx, client, "greet", map[string]any{"name": "Ann"})
	byPosition, _ := farcall.Call[string](ctx, client, "greet", []any{"Bob", 2})
	_, err := farcall.Call[string](ctx, client, "greet", map[string]any{"nam": "Ann"})
	var wire *jsonrpc.Error
	errors.As(err, &wire)
	fmt.Println(byName)
	fmt.Println(byPosition)
	fmt.Println(wire.Message, string(wire.Data))
	// Output:
	// Hello Ann!
	// Hello Bob!!
	// Invalid params {"member":"nam","pointer":"/nam","reason":"unknown"}
}

func ExampleHandleStream() {
	mux := farcall.NewMux()
	farcall.HandleStream(mux, "words", func(_ context.Context, text string) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for word := range strings.FieldsSeq(text) {
				if !yield(word, nil) {
					return
				}
			}
		}
	})

	ours, theirs := farcall.Pipe()
	server, client := farcall.NewPeer(theirs, mux, nil), farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()

	for word, err := range farcall.Stream[string](context.Background(), client, "words",
		[]string{"one two"}) {
		fmt.Println(word, err)
	}
	// Output:
	// one <nil>
	// two <nil>
}

func ExampleRequest_Bind() {
	handler := farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
		var p struct {
			A, B int
		}
		if err := req.Bind(&p); err != nil {
			return nil, err
		}
		return p.A * p.B, nil
	})
	result, err := handler(context.Background(),
		&farcall.Request{Method: "multiply", Params: jsonrpc.Raw(`[6, 7]`)})
	fmt.Println(result, err)
	// Output: 42 <nil>
}
