//go:build linux && (amd64 || arm64)

package gateway_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/sandbox"
)

// TestPrivate: the files of the guard are private, and standard error is no file.
func TestPrivate(t *testing.T) {
	c := &gateway.Config{Guard: &guard.Config{LocksFile: "locks.jsonl"}}
	c.Guard.Audit.File = "audit.jsonl"
	if got := c.Private(); !slices.Equal(got, []string{"audit.jsonl", "locks.jsonl"}) {
		t.Error(got)
	}
	c.Tasks.Dir = "tasks"
	c.Guard.Audit.File = "-"
	if got := c.Private(); !slices.Equal(got, []string{"locks.jsonl", "tasks"}) {
		t.Error(got)
	}
}

// TestLooseOfUpstream: what a command reads when something replaces it is known beforehand.
func TestLooseOfUpstream(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "server.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	mixed, alone := filepath.Join(dir, "farcall.yaml"), filepath.Join(own, "audit.jsonl")
	command := []string{"/bin/sh"}
	for _, c := range []struct {
		name string
		up   gateway.Upstream
		want []string
	}{
		{"a command", gateway.Upstream{Command: command, Cwd: "/"}, []string{mixed}},
		{
			"one that works beside the audit",
			gateway.Upstream{Command: command, Cwd: own},
			[]string{mixed, alone},
		},
		{"a server elsewhere", gateway.Upstream{URL: "http://127.0.0.1:1"}, nil},
		{"one that is disabled", gateway.Upstream{Command: command, Disabled: true}, nil},
		{"a sandbox", gateway.Upstream{Command: command, Sandbox: &gateway.Sandbox{}}, nil},
		{
			"a sandbox that works there",
			gateway.Upstream{Command: command, Cwd: dir, Sandbox: &gateway.Sandbox{}},
			[]string{mixed},
		},
		{
			"a sandbox that reads it",
			gateway.Upstream{Command: command, Sandbox: &gateway.Sandbox{Read: []string{dir}}},
			[]string{mixed},
		},
		{"none", gateway.Upstream{Command: command, Sandbox: &gateway.Sandbox{Mode: "none"}}, nil},
	} {
		if got := c.up.Loose([]string{mixed, alone}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, wanted %q", c.name, got, c.want)
		}
	}
}

// reading is a server that says whether it can read a file.
const reading = `
while read -r line; do
	id=${line#*'"id":'}; id=${id%%[,\}]*}
	said=refused
	{ true < "$FILE"; } 2>/dev/null && said=found
	printf '{"jsonrpc":"2.0","id":%s,"result":"%s"}\n' "$id" "$said"
done
`

// TestReloadHidesWhatIsPrivateNow: a command that runs already does not read a file that a new
// configuration makes private, with a sandbox that may read its directory or without one.
func TestReloadHidesWhatIsPrivateNow(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "own", "locks.jsonl")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*sandbox.Rules{{}, {Open: true, Hide: []string{file}}} {
		if parts := sandbox.Missing(r); len(parts) > 0 {
			t.Skip("this system lacks a part:", parts)
		}
	}
	config := func(locks string) *gateway.Config {
		c := &gateway.Config{Guard: &guard.Config{Anonymous: true, LocksFile: locks}}
		for name, s := range map[string]*gateway.Sandbox{"open": nil, "closed": {Read: []string{dir}}} {
			c.Upstreams = append(c.Upstreams, &gateway.Upstream{
				Name: name, Command: []string{"/bin/sh", "-c", reading}, Env: map[string]string{"FILE": file},
				Profile: "raw", Lifetime: "shared", Sandbox: s,
			})
		}
		return c
	}
	l := newLabOf(t, &gateway.Options{Sandbox: launcher()}, config(""))
	ask := func(want string) {
		t.Helper()
		for _, name := range []string{"open", "closed"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			r, err := l.post(ctx, "/rpc/"+name, `{"jsonrpc":"2.0","id":1,"method":"x"}`)
			cancel()
			if err != nil || !strings.Contains(r.body, want) {
				t.Errorf("%s: %v %v, wanted %s", name, r, err, want)
			}
		}
	}
	ask("found")
	if err := l.Reload(config(file)); err != nil {
		t.Fatal(err)
	}
	ask("refused")
	if err := l.Reload(config("")); err != nil {
		// what was private once stays hidden from commands that run

		t.Fatal(err)
	}
	ask("refused")
}
