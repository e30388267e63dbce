// Command elicitation is an MCP server that asks the user: a form, then, for what a server must not
// see in a form, a page. The order is made once, although the handler may run several times: see
// mcp.Once.
//
//	go run ./examples/mcp/elicitation
//	farcall mcp call localhost:8080 order
//	farcall mcp call localhost:8080 order --answer '{"what":"tea","cups":2}' --answer accept
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/farcall-dev/farcall/mcp"
)

// An order is what the user fills in.
type order struct {
	What  string `json:"what" doc:"what you would like" enum:"coffee,tea"`
	Cups  int    `json:"cups" min:"1" max:"9" default:"1"`
	Email string `json:"email,omitempty" doc:"for the receipt" format:"email"`
}

// A form that cannot be shown is found here, when the program starts.
var askOrder = mcp.Form[order]()

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newServer(new(cashier)).ListenAndServe(ctx, "localhost:8080"); err != nil {
		fmt.Fprintln(os.Stderr, "elicitation:", err)
		os.Exit(1)
	}
}

// A cashier numbers orders.
type cashier struct{ last atomic.Int64 }

func newServer(c *cashier) *mcp.Server {
	s := mcp.NewServer("cafe", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "order", Description: "Let the user order a drink"}, c.order)
	return s
}

func (c *cashier) order(ctx context.Context, _ struct{}) (string, error) {
	o, err := askOrder(ctx, "What would you like?")
	if errors.Is(err, mcp.ErrDeclined) || errors.Is(err, mcp.ErrCancelled) {
		return "The user does not want to order", nil
	}
	if err != nil {
		return "", err // in 2026-07-28 also that the client is being asked: the handler runs again then
	}
	number, err := mcp.Once(ctx, "number", func() (int64, error) { return c.last.Add(1), nil })
	if err != nil {
		return "", err
	}
	err = mcp.ElicitURL(ctx, "Please pay", fmt.Sprintf("https://example.com/pay?order=%d", number))
	if err != nil {
		return "", fmt.Errorf("order %d is not paid: %w", number, err)
	}
	return fmt.Sprintf("Order %d: %d %s", number, o.Cups, o.What), nil
}
