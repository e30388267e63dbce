package mcp_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// This is the code of README.md: TestDocuments compares them.

type Add struct {
	A int `json:"a" doc:"the first number"`
	B int `json:"b" doc:"the second number"`
}

func serveTools(ctx context.Context, addr string) error {
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, mcp.Tool{Name: "add", Description: "Add two numbers"},
		func(_ context.Context, in Add) (int, error) { return in.A + in.B, nil })
	return s.ListenAndServe(ctx, addr)
}

func callTool(ctx context.Context, url string) (int, error) {
	client, err := mcp.Dial(ctx, url, nil)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return mcp.CallTool[int](ctx, client, "add", Add{2, 3})
}

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	addr := freeAddress()
	done := make(chan error, 1)
	go func() { done <- serveTools(ctx, addr) }()
	await(addr)

	sum, err := callTool(ctx, "http://"+addr+"/mcp")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum)
	stop()
	fmt.Println(<-done)
	// Output:
	// 5
	// <nil>
}

type Table struct {
	Seats int    `json:"seats" doc:"how many of you" min:"1" max:"12"`
	Where string `json:"where" enum:"inside,outside" default:"inside"`
}

func addBooking(s *mcp.Server) {
	mcp.AddTool(s, mcp.Tool{Name: "book", Description: "Book a table"},
		func(ctx context.Context, _ struct{}) (string, error) {
			table, err := mcp.Elicit[Table](ctx, "Which table?")
			if err != nil {
				return "", err // mcp.ErrDeclined, for example
			}
			return fmt.Sprintf("a table for %d, %s", table.Seats, table.Where), nil
		})
}

// The same handler asks clients of every revision that has elicitation.
func ExampleElicit() {
	s := mcp.NewServer("restaurant", "1.0.0", nil)
	addBooking(s)
	for _, era := range []string{"modern", "legacy", spec.Revision20250618} {
		client, hangUp := connect(s, &mcp.ClientOptions{
			Era: era,
			Elicit: func(_ context.Context, p *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
				fmt.Println(p.Message)
				return &spec.ElicitResult{Action: "accept", Content: []byte(`{"seats":4}`)}, nil
			},
		})
		booked, err := mcp.CallTool[string](context.Background(), client, "book", nil)
		fmt.Println(booked, err)
		hangUp()
	}
	// Output:
	// Which table?
	// a table for 4, inside <nil>
	// Which table?
	// a table for 4, inside <nil>
	// Which table?
	// a table for 4, inside <nil>
}

// freeAddress returns an address to listen on.
func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// await waits until a client listens.
func await(addr string) {
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return
		}
	}
}

// connect connects a client with a server in memory.
func connect(s *mcp.Server, o *mcp.ClientOptions) (*mcp.Client, func()) {
	near, far := farcall.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(context.Background(), far) }()
	client, err := mcp.Connect(context.Background(), near, o)
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { closeAll(client, done) }
}

func closeAll(c io.Closer, done chan error) {
	if err := c.Close(); err != nil {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
}
