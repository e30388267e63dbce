package host_test

import (
	"context"
	"fmt"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/host"
)

type word struct {
	Text string `json:"text"`
}

func Example() {
	loud := mcp.NewServer("loud", "1.0.0", nil)
	mcp.AddTool(loud, mcp.Tool{Name: "shout"}, func(_ context.Context, w word) (string, error) {
		return w.Text + "!", nil
	})

	ctx := context.Background()
	h, err := host.New(ctx, []host.Server{
		{Name: "loud", InProcess: loud},
		{Name: "absent", Command: []string{"no-such-program"}},
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer h.Close(ctx)
	if err := h.Wait(ctx); err != nil {
		fmt.Println(err)
		return
	}
	tools := h.Tools()
	for _, item := range tools.Items {
		fmt.Println(item.Value.Name, "of", item.Server)
	}
	for _, s := range tools.Missing {
		fmt.Println(s.Name, "is missing, it has", s.State)
	}
	r, err := h.CallTool(ctx, "loud__shout", word{"hello"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Content[0].Text)
	// Output:
	// loud__shout of loud
	// absent is missing, it has failed
	// hello!
}
