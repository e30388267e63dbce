package host

import (
	"context"
	"fmt"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
)

// 20 servers in this process with 50 tools each.
func benchHost(b *testing.B) *Host {
	b.Helper()
	var servers []Server
	for i := range 20 {
		var tools []string
		for n := range 50 {
			tools = append(tools, fmt.Sprint("tool-", n))
		}
		name := fmt.Sprint("s", i)
		servers = append(servers, Server{Name: name, InProcess: newServer(name, tools...)})
	}
	h, err := New(b.Context(), servers, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = h.Close(context.Background()) })
	if err := h.Wait(b.Context()); err != nil || len(h.Tools().Items) != 1000 {
		b.Fatalf("%v, %d tools", err, len(h.Tools().Items))
	}
	b.ReportAllocs()
	b.ResetTimer()
	return h
}

func BenchmarkTools(b *testing.B) {
	h := benchHost(b)
	for b.Loop() {
		if len(h.Tools().Items) != 1000 {
			b.Fatal("tools are missing")
		}
	}
}

func BenchmarkToolsAfterChange(b *testing.B) {
	h := benchHost(b)
	for b.Loop() {
		h.mu.Lock()
		h.merged.dropLocked(tools)
		h.mu.Unlock()
		if len(h.Tools().Items) != 1000 {
			b.Fatal("tools are missing")
		}
	}
}

func BenchmarkCallTool(b *testing.B) {
	h := benchHost(b)
	for b.Loop() {
		if _, err := h.CallTool(b.Context(), "s7__tool-7", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// The same call without a host.
func BenchmarkCallToolClient(b *testing.B) {
	near, far := farcall.Pipe()
	s := newServer("s7", "tool-7")
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(context.Background(), far) }()
	c, err := mcp.Connect(b.Context(), near, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close(); <-served }()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.CallTool(b.Context(), "tool-7", nil); err != nil {
			b.Fatal(err)
		}
	}
}
