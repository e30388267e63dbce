package interop

import (
	"bufio"
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestNATS has the NATS client of Node.js call a subject that farcall serves, and farcall call one
// that it answers.
func TestNATS(t *testing.T) {
	engine, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	engine.Start()
	t.Cleanup(func() {
		engine.Shutdown()
		engine.WaitForShutdown()
	})
	if !engine.ReadyForConnections(waitLimit) {
		t.Fatal("NATS does not start")
	}
	at := engine.ClientURL() + "/play"
	serveAt(t, at, "--insecure")

	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	cmd := nodeCommand(t, ctx, "nats-client.mjs", strings.TrimPrefix(engine.ClientURL(), "nats://"),
		"play")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for _, want := range []string{
		`{"jsonrpc":"2.0","result":5,"id":1}`, `[{"jsonrpc":"2.0","result":2,"id":"a"}]`, "notified",
		"play play true a,b", `{"jsonrpc":"2.0","result":5,"id":1}`, "ready",
	} {
		if !lines.Scan() || lines.Text() != want {
			t.Errorf("%q, want %q", lines.Text(), want)
		}
	}
	if got := mustFarcall(t, "call", at+".node", "hello", "a=1"); !strings.Contains(got, `"hello"`) {
		t.Error(got)
	}
	mustFarcall(t, "call", at+".node", "end")
	if err := cmd.Wait(); err != nil {
		t.Error(err, stderr.String())
	}
}
