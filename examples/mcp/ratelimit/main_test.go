package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
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

func roll(t *testing.T, c *mcp.Client) error {
	t.Helper()
	_, err := mcp.CallTool[int](t.Context(), c, "roll", nil)
	return err
}

// One caller that has no calls left does not hold up another one, and gets further calls in time.
func TestRate(t *testing.T) {
	for _, era := range []string{"modern", "legacy"} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(rates{perSecond: 2, burst: 3, most: 10})
			first, second := connect(t, s, &mcp.ClientOptions{Era: era}),
				connect(t, s, &mcp.ClientOptions{Era: era})
			for n := range 3 {
				if err := roll(t, first); err != nil {
					t.Errorf("%s: call %d: %v", era, n, err)
				}
			}
			if err := roll(t, first); err == nil || !strings.Contains(err.Error(), "try again in 500ms") {
				t.Errorf("%s: a call too many: %v", era, err)
			}
			if err := roll(t, second); err != nil {
				t.Errorf("%s: another caller: %v", era, err)
			}
			<-time.After(500 * time.Millisecond)
			if err := roll(t, first); err != nil {
				t.Errorf("%s: half a second later: %v", era, err)
			}
		})
	}
}

// No more callers are remembered than may be, and those with a bucket that is full make room.
func TestManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(rates{perSecond: 1, burst: 1, most: 2})
		var clients [3]*mcp.Client
		for i := range clients {
			clients[i] = connect(t, s, nil)
		}
		for i, refused := range []bool{false, false, true} {
			if err := roll(t, clients[i]); (err != nil) != refused {
				t.Errorf("caller %d: %v", i, err)
			}
		}
		<-time.After(time.Second)
		if err := roll(t, clients[2]); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}
