package mcp

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A form that is made when the program starts asks as Elicit does, and is refused there.
func TestForm(t *testing.T) {
	ask := Form[struct {
		Name string `json:"name"`
	}]()
	s := askServer(t, func(ctx context.Context) (string, error) {
		who, err := ask(ctx, "name?")
		return who.Name, err
	}, nil)
	c, err := overPipe(t, func(tr farcall.Transport) error {
		return s.Serve(t.Context(), tr)
	})(&ClientOptions{
		Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
			return &spec.ElicitResult{Action: "accept", Content: []byte(`{"name":"` + p.Message + `"}`)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := CallTool[string](t.Context(), c, "ask", nil); err != nil || got != "name?" {
		t.Errorf("%q, %v", got, err)
	}
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "a form has no patterns") {
			t.Errorf("Form says %q", said)
		}
	}()
	Form[struct {
		Name string `json:"name" pattern:"^[A-Z]"`
	}]()
}

// What is wrong with the type of a form is for the log, not for a model.
func TestElicitNoForm(t *testing.T) {
	type form struct {
		Name string `json:"name" pattern:"^[A-Z]"`
	}
	var log counted
	s := askServer(t, func(ctx context.Context) (string, error) {
		_, err := Elicit[form](ctx, "name?")
		return "", err
	}, &ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	c, err := overPipe(t, func(tr farcall.Transport) error {
		return s.Serve(t.Context(), tr)
	})(&ClientOptions{Elicit: confirm})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r, err := c.CallTool(t.Context(), "ask", nil)
	if wire, ok := errors.AsType[*jsonrpc.Error](err); !ok || wire.Code != jsonrpc.InternalError ||
		strings.Contains(err.Error(), "pattern") {
		t.Errorf("%v, %v", r, err)
	}
	if log.count("a form has no patterns") != 1 {
		t.Errorf("log %q", log.all)
	}
}
