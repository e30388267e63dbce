package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// A client and a server in two goroutines, with nothing between them but a directory.
func TestTransport(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- run(ctx, nil, []string{dir}) }()
	var out strings.Builder
	if err := run(t.Context(), &out, []string{dir, "Ada"}); err != nil ||
		out.String() != "Hello, Ada!\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// An end that was closed reads no more, and a directory that is not there is an error of the call.
func TestClosed(t *testing.T) {
	s := newSpool(t.TempDir(), "in", "out")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(); err == nil {
		t.Error("a closed end was read")
	}
	if err := run(t.Context(), nil, []string{t.TempDir() + "/none", "Ada"}); err == nil {
		t.Error("a call over no directory succeeded")
	}
}
