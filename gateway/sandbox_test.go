//go:build linux && (amd64 || arm64)

package gateway_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/sandbox"
)

// TestSandboxLauncher is farcall sandbox, when the tests below start the test binary again.
func TestSandboxLauncher(t *testing.T) {
	if flag.Arg(0) != "sandbox" {
		t.Skip("it is for the other tests")
	}
	var r sandbox.Rules
	flags := flag.NewFlagSet("sandbox", flag.ContinueOnError)
	for name, dst := range map[string]*[]string{
		"read": &r.Read, "write": &r.Write,
		"execute": &r.Execute, "network": &r.Network,
	} {
		flags.Func(name, "", func(v string) error { *dst = append(*dst, v); return nil })
	}
	flags.Int64Var(&r.Memory, "memory", 0, "")
	flags.IntVar(&r.Processes, "processes", 0, "")
	flags.IntVar(&r.Files, "files", 0, "")
	flags.DurationVar(&r.CPU, "cpu", 0, "")
	flags.BoolVar(&r.KeepEnv, "keep-env", false, "")
	flags.Func("hide", "", func(v string) error { r.Hide = append(r.Hide, v); return nil })
	flags.Func("never", "", func(v string) error { r.Never = append(r.Never, v); return nil })
	mode := flags.String("mode", "strict", "")
	inside := flags.Bool(strings.TrimPrefix(sandbox.Inside, "--"), false, "")
	if err := flags.Parse(flag.Args()[1:]); err != nil {
		os.Exit(2)
	}
	r.BestEffort, r.Open = *mode == "best-effort", *mode == "open"
	var code int
	var err error
	if *inside {
		err = sandbox.Exec(&r, flags.Args(), os.Environ())
	} else {
		code, err = sandbox.Run(launcher(), &r, flags.Args(), os.Environ(), func(s string) {
			fmt.Fprintln(os.Stderr, s)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 126
	}
	os.Exit(code)
}

func launcher() []string {
	return []string{os.Args[0], "-test.run=^TestSandboxLauncher$", "sandbox"}
}

// sandboxed is a server in the shell's language that answers what it could do. A its own process
// may have the number that the gateway has outside: it has MINE in its environment.
const sandboxed = `
while read -r line; do
	id=${line#*'"id":'}; id=${id%%[,\}]*}
	said=refused
	case $line in
	*'"method":"secret"'*) { read -r said < "$SECRET_FILE"; } 2>/dev/null || said=refused ;;
	*'"method":"environ"'*) case $(tr '\0' ' ' < "/proc/$GATEWAY/environ") in *MINE=*) ;; *=*) said=found ;; esac 2>/dev/null ;;
	*'"method":"environs"'*) grep -qs GATEWAY_SECRET= /proc/[0-9]*/environ && said=found ;;
	*'"method":"mine"'*) said="$MINE ${FARCALL_CHILD:+marked} ${GATEWAY_SECRET:-nothing}" ;;
	*'"method":"cwd"'*) read -r said < file ;;
	*'"method":"write"'*) { echo x > "$SECRET_FILE"; } 2>/dev/null && said=written ;;
	*'"method":"kill"'*) kill -s URG "$GATEWAY" 2>/dev/null && said=killed ;;
	*'"method":"hide"'*) setsid env -i sleep 1000.$GATEWAY > /dev/null < /dev/null & said=hidden ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":"%s"}\n' "$id" "$said"
done
`

// TestSandbox: an upstream with a sandbox answers as any, and what it tries beyond does not work.
// The same without one does.
func TestSandbox(t *testing.T) {
	if parts := sandbox.Missing(&sandbox.Rules{}); len(parts) > 0 {
		t.Skip("this system lacks a part:", parts)
	}
	dir, cwd := t.TempDir(), t.TempDir()
	secret := filepath.Join(dir, "secret")
	for file, text := range map[string]string{
		secret:                     "CANARY\n",
		filepath.Join(cwd, "file"): "cwd is read\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, pid := range sleepers(t) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	t.Setenv("GATEWAY_SECRET", "CANARY")
	witness := exec.CommandContext(t.Context(), "sleep", "1000")
	witness.Env = []string{"GATEWAY_SECRET=CANARY"} // what the test sets is not in its own /proc
	if err := witness.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = witness.Process.Kill(); _ = witness.Wait() })
	upstream := func(name string, s *gateway.Sandbox) *gateway.Upstream {
		return &gateway.Upstream{
			Name: name, Command: []string{"/bin/sh", "-c", sandboxed}, Cwd: cwd, Profile: "raw",
			Lifetime: "shared", Sandbox: s,
			Env: map[string]string{
				"SECRET_FILE": secret, "MINE": "mine",
				"GATEWAY": strconv.Itoa(os.Getpid()),
			},
		}
	}
	c := &gateway.Config{Upstreams: []*gateway.Upstream{
		upstream("open", &gateway.Sandbox{Mode: "none"}),
		upstream("closed", &gateway.Sandbox{Execute: []string{"/usr/bin", "/bin"}}),
	}}
	l := newLabOf(t, &gateway.Options{Sandbox: launcher()}, c)
	ask := func(name, method string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := l.post(ctx, "/rpc/"+name, `{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`)
		if err != nil {
			t.Fatal(err)
		}
		return r.body
	}
	for _, q := range []struct{ method, open, closed string }{
		{"mine", "mine marked nothing", "mine marked nothing"},
		{"cwd", "cwd is read", "cwd is read"},
		{"secret", "CANARY", "refused"},
		{"environ", "found", "refused"},
		{"environs", "found", "refused"},
		{"kill", "killed", "refused"},
		{"write", "written", "refused"},
		{"hide", "hidden", "hidden"},
	} {
		for name, want := range map[string]string{"open": q.open, "closed": q.closed} {
			if got := ask(name, q.method); !strings.Contains(got, want) {
				t.Errorf("%s %s: %s, wanted %q", name, q.method, got, want)
			} else {
				t.Logf("%s %s: %s", name, q.method, strings.TrimSpace(got))
			}
		}
		if q.method == "write" {
			if err := os.WriteFile(secret, []byte("CANARY\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	await(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	await(t, 1) // the one that was free to leave all marks behind has stayed
}

// await waits until so many processes are hidden.
func await(t *testing.T, n int) {
	t.Helper()
	for range 3000 {
		if len(sleepers(t)) == n {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Errorf("hidden are %v, wanted %d", sleepers(t), n)
}

// sleepers are the processes that have hidden.
func sleepers(t *testing.T) (pids []int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, _ := os.ReadFile(f); string(text) == "sleep\x001000."+strconv.Itoa(os.Getpid())+"\x00" {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestSandboxRefused: a sandbox that cannot be built is no reason to run without one.
func TestSandboxRefused(t *testing.T) {
	up := &gateway.Upstream{
		Name: "a", Command: []string{"/bin/sh"},
		Sandbox: &gateway.Sandbox{Read: []string{"/nowhere/at/all"}}, Breaker: gateway.Breaker{After: 8},
		Profile: "raw",
	}
	c := &gateway.Config{Upstreams: []*gateway.Upstream{up}}
	_, err := gateway.New(c, nil)
	if err == nil || !strings.Contains(err.Error(), "upstream a has a sandbox") ||
		!strings.Contains(err.Error(), "Options.Sandbox") {
		t.Error(err)
	}
	if parts := sandbox.Missing(&sandbox.Rules{}); len(parts) > 0 {
		t.Skip("this system lacks a part:", parts)
	}
	l := newLabOf(t, &gateway.Options{Sandbox: launcher()}, c)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := l.post(ctx, "/rpc/a", `{"jsonrpc":"2.0","id":1,"method":"x"}`)
	if err != nil || !strings.Contains(r.body, "/nowhere/at/all: no such file") ||
		!strings.Contains(r.body, "remove it from the rules") {
		t.Error(r.body, err)
	}
}
