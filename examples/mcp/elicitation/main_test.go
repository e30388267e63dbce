package main

import (
	"errors"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcptest"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// buy calls the tool for a user with a client of an era.
func buy(t *testing.T, s *mcp.Server, era string, user *mcptest.User) (string, error) {
	t.Helper()
	return mcp.CallTool[string](t.Context(),
		mcptest.Client(t, s, &mcp.ClientOptions{Era: era, Elicit: user.Elicit}), "order", nil)
}

// Each call asks once for each thing and makes one order, in every revision.
func TestOrder(t *testing.T) {
	s := newServer(new(cashier))
	for _, test := range []struct{ era, want, url string }{
		{"modern", "Order 1: 1 tea", "https://example.com/pay?order=1"},
		{"legacy", "Order 2: 1 tea", "https://example.com/pay?order=2"},
	} {
		user := mcptest.NewUser(t, mcptest.Accepts(map[string]any{"what": "tea"}), mcptest.Accepts(nil))
		got, err := buy(t, s, test.era, user)
		if got != test.want || err != nil {
			t.Errorf("%s: %q, %v", test.era, got, err)
		}
		if asked := user.Asked(); asked[0].Message != "What would you like?" ||
			asked[1].Message != "Please pay" || asked[1].URL != test.url {
			t.Errorf("%s: the user was asked %+v and %+v", test.era, asked[0], asked[1])
		}
	}
}

func TestDeclined(t *testing.T) {
	user := mcptest.NewUser(t, &spec.ElicitResult{Action: spec.ElicitDecline})
	if got, err := buy(t, newServer(new(cashier)), "",
		user); got != "The user does not want to order" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	user = mcptest.NewUser(t, mcptest.Accepts(map[string]any{"what": "coffee", "cups": 2}),
		&spec.ElicitResult{Action: spec.ElicitCancel})
	got, err := buy(t, newServer(new(cashier)), "", user)
	if _, failed := errors.AsType[*mcp.ToolError](err); !failed {
		t.Errorf("an order that was not paid: %q, %v", got, err)
	}
}
