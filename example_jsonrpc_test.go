package farcall_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/rpc"
)

// This file is the Go example of docs/jsonrpc.md.

type Add struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

func serve(ctx context.Context, address string) error {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", func(_ context.Context, p Add) (float64, error) {
		return p.A + p.B, nil
	})
	return rpc.ListenAndServe(ctx, address, mux, nil)
}

func add(ctx context.Context, target string) (float64, error) {
	client, err := rpc.Dial(ctx, target, nil)
	if err != nil {
		return 0, err
	}
	defer client.Close()
	return farcall.Call[float64](ctx, client, "math/add", Add{2, 3})
}

func Example() {
	dir, err := os.MkdirTemp("", "farcall")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	address := "unix:" + filepath.Join(dir, "add.sock")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- serve(ctx, address) }()

	sum, err := add(ctx, address)
	for ; err != nil; sum, err = add(ctx, address) { // it does not listen yet
		<-time.After(time.Millisecond)
	}
	fmt.Println(sum)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// 5
	// <nil>
}

// TestDocumentedExample compares the example with the text of docs/jsonrpc.md.
func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile("docs/jsonrpc.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("example_jsonrpc_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, first := range []string{"type Add struct", "func serve(", "func add("} {
		_, rest, _ := strings.Cut(string(code), "\n"+first)
		text, _, found := strings.Cut(first+rest, "\n}\n")
		if !found || !strings.Contains(string(page), text+"\n}\n") {
			t.Errorf("docs/jsonrpc.md does not have\n%s", text)
		}
	}
}
