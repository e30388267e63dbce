package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// startNATS starts a NATS server, and returns its URL.
func startNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(
		&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(waitLimit) {
		t.Fatal("NATS does not start")
	}
	return s.ClientURL()
}

// says runs farcall and returns what it prints, standard error included.
func says(t *testing.T, args ...string) string {
	t.Helper()
	out, err := program(t, args...).CombinedOutput()
	if err != nil {
		return err.Error() + ": " + string(out)
	}
	return string(out)
}

// TestNATS serves JSON-RPC and MCP on a subject, and puts HTTP and NATS before each other.
func TestNATS(t *testing.T) {
	t.Parallel()
	at := startNATS(t)
	play := serve(t, "--listen", at+"/farcall.play", "--log", "off", "--insecure")
	if len(play.addrs) != 1 || play.addrs[0] != at+"/farcall.play" {
		t.Fatal(play.addrs)
	}
	play.logged(t, 1,
		"INSECURE, as --insecure demands: other machines can reach "+at+"/farcall.play, and no guard")
	// From HTTP to the queue, and from the queue to HTTP.
	before := serve(t, "--listen", "127.0.0.1:0", "--log", "off", "--upstream",
		"play="+at+"/farcall.play")
	web := serve(t, "--listen", "127.0.0.1:0", "--log", "off")
	behind := serve(t, "--listen", at+"/farcall.behind", "--log", "off", "--insecure", "--upstream",
		"play="+web.addrs[0]+"/mcp")
	big := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"call", at + "/farcall.play", "math/add", "a=2", "b=3"}, "5"},
		{[]string{"call", at + "/farcall.play/rpc", "echo", `["` + big + `"]`}, big},
		{[]string{"discover", at + "/farcall.play"}, "math/add"},
		{[]string{"mcp", "call", at + "/farcall.play", "math_add", "a=2", "b=3"}, "5"},
		{[]string{"mcp", "call", before.addrs[0], "play__math_add", "a=2", "b=3"}, "5"},
		{[]string{"mcp", "call", at + "/farcall.behind", "play__math_add", "a=2", "b=3"}, "5"},
		{
			[]string{"call", at + "/farcall.empty", "math/add"},
			"no server listens on the subject farcall.empty",
		},
		{[]string{"call", at + "/a.*", "math/add"}, "it has no subject, or one with a wildcard"},
		{[]string{"serve", "--listen", at + "/", "--log", "off"}, "has no subject"},
		{
			[]string{"serve", "--listen", "nats://u:secret@192.0.2.1/x", "--log", "off"},
			"reach nats://u:xxxxx@192.0.2.1/x, and no guard says who may call what",
		},
		{[]string{"serve", "--listen", at + "/x", "--log", "off"}, "no guard says who may call what"},
	} {
		if got := says(t, c.args...); !strings.Contains(got, c.want) {
			t.Errorf("%.80s: %.500s", strings.Join(c.args, " "), got)
		}
	}
	// Any client of NATS.
	nc, err := nats.Connect(at)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m, err := nc.Request("farcall.play",
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"math/add","params":[2,3]}`), waitLimit)
	if err != nil || !strings.Contains(string(m.Data), `"result":5`) {
		t.Error(m, err)
	}
	began := time.Now()
	for _, s := range []*served{before, behind, play} {
		s.stop(t)
	}
	if took := time.Since(began); took > waitLimit {
		t.Error("it takes", took, "to stop")
	}
	if got := says(t, "call", at+"/farcall.play", "math/add"); !strings.Contains(got,
		"no server listens") {
		t.Error(got)
	}
}

// TestNATSGuard has a guard find the credentials in the headers of a message.
func TestNATSGuard(t *testing.T) {
	t.Parallel()
	at, dir := startNATS(t), t.TempDir()
	file, key := filepath.Join(dir, "guard.yaml"), filepath.Join(dir, "ci.key")
	if err := os.WriteFile(file, []byte("guard:\n  allow:\n    - builder: \"*\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if got := says(t, "key", "new", "--id", "ci", "--role", "builder", "--out", key, "--guard",
		file); strings.Contains(got, "exit status") {
		t.Fatal(got)
	}
	serve(t, "--listen", at+"/guarded", "--log", "off", "--guard", file)
	if got := says(t, "call", at+"/guarded", "math/add", "a=2", "b=3", "--bearer", key); got != "5\n" {
		t.Error(got)
	}
	if got := says(t, "call", at+"/guarded", "math/add", "a=2", "b=3"); !strings.Contains(got,
		"-32051") {
		t.Error(got)
	}
}
