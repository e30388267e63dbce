package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A call through a gateway to a child is one trace for a receiver in another language, which gets
// the spans of both.
func TestTraceTree(t *testing.T) {
	t.Parallel()
	receiver := nodeCommand(t, t.Context(), "otlp.mjs")
	ask, err := receiver.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := receiver.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	receiver.Stderr = os.Stderr
	if err := receiver.Start(); err != nil {
		t.Fatal(err)
	}
	defer receiver.Wait()
	defer ask.Close()
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("the receiver does not begin")
	}
	env := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:" + lines.Text(),
		"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
		"OTEL_BSP_SCHEDULE_DELAY":     "50", "OTEL_BLRP_SCHEDULE_DELAY": "50",
		"OTEL_SERVICE_NAME": "child",
	}
	file := filepath.Join(t.TempDir(), "farcall.yaml")
	var config strings.Builder
	fmt.Fprintf(&config,
		"upstreams:\n  tools:\n    command: [%q, serve, --stdio, --log, \"off\"]\n    env:\n",
		farcallPath)
	for name, value := range env {
		fmt.Fprintf(&config, "      %s: %q\n", name, value)
	}
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	gateway := exec.Command(farcallPath, "serve", "--config", file, "--listen", "127.0.0.1:0")
	gateway.Env = os.Environ()
	for name, value := range env {
		gateway.Env = append(gateway.Env, name+"="+value)
	}
	gateway.Env = append(gateway.Env, "OTEL_SERVICE_NAME=gateway")
	f := begins(t, gateway)
	const trace, caller = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	want := "SERVER tools/call tools__math_add (gateway)\n  CLIENT tools/call (gateway)\n" +
		"    SERVER tools/call math_add (child)\n"
	mustFarcall(t, "mcp", "call", "http://"+f.address+"/mcp", "tools__math_add", "a=2", "b=3",
		"--header", "traceparent: 00-"+trace+"-"+caller+"-01")
	for deadline := time.Now().Add(waitLimit); ; {
		if _, err := fmt.Fprintln(ask, trace, caller); err != nil {
			t.Fatalf("the receiver has ended: %v", err)
		}
		var got strings.Builder
		for {
			if !lines.Scan() {
				t.Fatalf("the receiver has ended: %v", lines.Err())
			}
			if lines.Text() == "" {
				break
			}
			got.WriteString(lines.Text() + "\n")
		}
		if strings.Contains(got.String(), want) {
			t.Log("\n" + got.String())
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the receiver got\n%s, want\n%s", &got, want)
		}
		<-time.After(50 * time.Millisecond)
	}
}
