package farcall_test

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

// TestMain fails when a goroutine of ours is left at the end.
func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
