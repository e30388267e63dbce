package main

import (
	"strings"
	"syscall"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// SIGTERM lets the calls in flight finish, whatever carries them, and the child
// that has them lives as long.
func TestServeGatewayDrains(t *testing.T) {
	t.Parallel()
	s := serve(t, "--listen", "127.0.0.1:0", "--upstream",
		"calc=env "+execVar+"=1 GORACE="+noLinger+" "+program(t).Path+" serve --stdio --log off")
	under, results := make(chan struct{}, 3), make(chan error, 3)
	for _, target := range []string{
		s.addrs[0] + "/mcp", "ws://" + s.hostport(t) + "/mcp/calc",
		"tcp://" + s.hostport(t),
	} {
		client, err := mcp.Dial(t.Context(), target, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		go func() {
			once := false
			ctx := mcp.OnProgress(t.Context(), func(spec.ProgressNotificationParams) {
				if !once {
					once = true
					under <- struct{}{}
				}
			})
			_, err := client.CallTool(ctx, "demo_progress", map[string]int{"steps": 10, "ms": 100})
			results <- err
		}()
	}
	for range cap(under) {
		<-under
	}
	s.signal(t, syscall.SIGTERM)
	refused(t, s)
	for range cap(results) {
		if err := <-results; err != nil {
			t.Errorf("a call in flight fails: %v", err)
		}
	}
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if log := strings.Join(s.lines, "\n"); strings.Contains(log, "ended on its own") {
		t.Error(log)
	}
}
