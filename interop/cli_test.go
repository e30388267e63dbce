package interop

import (
	"strings"
	"testing"

	"github.com/creachadair/jrpc2/channel"
)

// farcall's commands against foreign servers.

func TestCallJrpc2(t *testing.T) {
	for target, framing := range map[string]channel.Framing{
		"": channel.Line, "?framing=header": channel.LSP, "?framing=raw": channel.RawJSON,
	} {
		target = "tcp://" + jrpc2Server(t, framing) + target
		if got := mustFarcall(t, "call", target, "add", "2", "3"); got != "5" {
			t.Errorf("add = %s", got)
		}
		if got := mustFarcall(t, "call", target, "echo", `{"a":1.0}`); got != `{"a":1.0}` {
			t.Errorf("echo = %s", got)
		}
		if got := mustFarcall(t, "call", target, "callback", "--answer",
			`ask={"yes":true}`); got != `{"yes":true}` {
			t.Errorf("callback = %s", got)
		}
		if _, stderr, code := program(t, "call", target, "nosuch"); code != 4 ||
			!strings.Contains(stderr, "-32601") {
			t.Errorf("nosuch: exit status %d, %s", code, stderr)
		}
	}
}

func TestCallGeth(t *testing.T) {
	httpURL, wsURL := gethServer(t)
	for _, target := range []string{httpURL, wsURL} {
		if got := mustFarcall(t, "call", target, "calc_add", "2", "3"); got != "5" {
			t.Errorf("add = %s", got)
		}
		_, stderr, code := program(t, "call", target, "calc_fail")
		if code != 4 || !strings.Contains(stderr, `error 4711: it failed`) ||
			!strings.Contains(stderr, `{"at":7}`) {
			t.Errorf("fail: exit status %d, %s", code, stderr)
		}
		if _, stderr, code := program(t, "discover", target); code != 4 ||
			!strings.Contains(stderr, "does not describe itself") {
			t.Errorf("discover: exit status %d, %s", code, stderr)
		}
	}
}

// Subscriptions are notifications after the answer.
func TestFollowGeth(t *testing.T) {
	_, wsURL := gethServer(t)
	out := mustFarcall(t, "stream", wsURL, "--follow", "--count", "4", "calc_subscribe", "ticks", "3")
	lines := strings.Split(out, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], `"0x`) {
		t.Fatalf("%q", lines)
	}
	for i, line := range lines[1:] {
		if !strings.HasPrefix(line, `{"method":"calc_subscription","params":{"subscription":`+lines[0]) ||
			!strings.Contains(line, `"result":`+string(rune('0'+i))) {
			t.Errorf("item %d: %s", i, line)
		}
	}
}
