package gateway

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// What is counted is bounded whatever codes servers answer and whatever names there are. Nothing
// is lost: what has no room is in the rest.
func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	var u usage
	long := strings.Repeat("é", maxUsedName)
	const n = 3 * maxUsed
	for i := range n {
		name := fmt.Sprint(i)
		u.add(&observe.Call{Upstream: "a", Tool: name, Principal: name, Code: jsonrpc.Code(i + 1)})
		u.add(&observe.Call{Upstream: "b", Tool: long, Principal: long, Took: time.Hour})
	}
	u.add(&observe.Call{Tool: "of the gateway itself"})
	if len(u.of) != 2 {
		t.Fatalf("%d upstreams, want 2", len(u.of))
	}
	a, b := u.of["a"], u.of["b"]
	var codes, byTools, byPrincipals, took int64
	for _, n := range a.errors {
		codes += n
	}
	for _, x := range a.tools {
		byTools += x.calls
	}
	for _, x := range a.principals {
		byPrincipals += x.errors
	}
	for _, n := range a.latency {
		took += n
	}
	if codes != n || byTools != n || byPrincipals != n || took != n {
		t.Errorf("counted %d codes, %d calls, %d errors, %d durations; want %d of each",
			codes, byTools, byPrincipals, took, n)
	}
	if l := max(len(a.errors), len(a.tools), len(a.principals)); l > maxUsed+1 {
		t.Errorf("%d are counted apart, want %d and the rest", l, maxUsed)
	}
	if len(b.tools) != 1 || len(b.principals) != 1 || b.latency[len(latencyBounds)] != n {
		t.Errorf("a long name: %d tools, %d principals, latency %v",
			len(b.tools), len(b.principals), b.latency)
	}
	for name, x := range b.tools {
		if x.calls != n || x.errors != 0 || len(name) > maxUsedName+len("…") {
			t.Errorf("a long name: %d calls, %d errors, %d bytes", x.calls, x.errors, len(name))
		}
	}
}
