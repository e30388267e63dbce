package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// connect connects a client with a server in memory, until the end of the test.
func connect(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	near, far := farcall.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(t.Context(), far) }()
	c, err := mcp.Connect(t.Context(), near, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), <-served); err != nil {
			t.Error(err)
		}
	})
	return c
}

// user answers forms and pages, and keeps the messages and addresses that were shown.
func user(shown *[]string, form, page string) *mcp.ClientOptions {
	return &mcp.ClientOptions{Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
		*shown = append(*shown, p.Message+p.URL)
		if p.URL != "" {
			return &spec.ElicitResult{Action: page}, nil
		}
		if form == "decline" {
			return &spec.ElicitResult{Action: form}, nil
		}
		return &spec.ElicitResult{Action: "accept", Content: []byte(form)}, nil
	}}
}

// Each call asks once for each thing and makes one order, in every revision.
func TestOrder(t *testing.T) {
	s := newServer(new(cashier))
	for _, test := range []struct{ era, want, url string }{
		{"modern", "Order 1: 1 tea", "https://example.com/pay?order=1"},
		{"legacy", "Order 2: 1 tea", "https://example.com/pay?order=2"},
	} {
		var shown []string
		o := user(&shown, `{"what":"tea"}`, "accept")
		o.Era = test.era
		got, err := mcp.CallTool[string](t.Context(), connect(t, s, o), "order", nil)
		if got != test.want || err != nil || !slices.Equal(shown, []string{"What would you like?", "Please pay" + test.url}) {
			t.Errorf("%s: %q, %v; shown: %q", test.era, got, err, shown)
		}
	}
}

func TestDeclined(t *testing.T) {
	var shown []string
	c := connect(t, newServer(new(cashier)), user(&shown, "decline", ""))
	if got, err := mcp.CallTool[string](t.Context(), c, "order", nil); got != "The user does not want to order" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	c = connect(t, newServer(new(cashier)), user(&shown, `{"what":"coffee","cups":2}`, "cancel"))
	var failure *mcp.ToolError
	if got, err := mcp.CallTool[string](t.Context(), c, "order", nil); !errors.As(err, &failure) {
		t.Errorf("an order that was not paid: %q, %v", got, err)
	}
}
