//go:build linux && (amd64 || arm64)

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farcall-dev/farcall/internal/sandbox"
)

// spying is a server that answers what it could read of the gateway; the id names its process.
const spying = `
while read -r line; do
	id=${line#*'"id":'}; id=${id%%[,\}]*}
	said=refused
	case $line in
	*'"method":"memory"'*) { true < "/proc/$id/mem"; } 2>/dev/null && said=found ;;
	*'"method":"environ"'*) { read -r said < "/proc/$id/environ"; } 2>/dev/null || [ "$said" != refused ] && said=found ;;
	*'"method":"descriptor"'*) { true < "/proc/$id/fd/0"; } 2>/dev/null && said=found ;;
	*'"method":"config"'*) { true < farcall.yaml; } 2>/dev/null && said=found ;;
	*'"method":"audit"'*) { true < audit.jsonl; } 2>/dev/null && said=found ;;
	*'"method":"other"'*) { true < server.sh; } 2>/dev/null && said=found ;;
	esac
	printf '{"jsonrpc":"2.0","id":%s,"result":"%s"}\n' "$id" "$said"
done
`

// TestChildrenCannotReadGateway: a command without a sandbox reads neither the memory and
// environment nor the configuration and audit of the gateway; one with the sandbox none reads all
// but the memory.
func TestChildrenCannotReadGateway(t *testing.T) {
	for _, as := range []*syscall.Credential{nil, {Uid: 65534, Gid: 65534}} {
		t.Run(fmt.Sprintf("as %v", as), func(t *testing.T) {
			if as != nil && os.Getuid() != 0 {
				t.Skip("only root can be another user")
			}
			dir := privateDir(t, as)
			if parts := sandbox.Missing(
				&sandbox.Rules{Open: true, Hide: []string{filepath.Join(dir, "farcall.yaml")}}); len(parts) >
				0 {
				t.Skip("this system lacks a part:", parts)
			}
			cmd := program(t, "serve", "--config", "farcall.yaml", "--log", "off")
			cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: as}
			cmd.Path = filepath.Join(dir, "farcall")
			s := serveProgram(t, cmd, "--listen", "127.0.0.1:0")
			for _, q := range []struct{ method, protected, open string }{
				{"memory", "refused", "refused"},
				{"environ", "refused", "refused"},
				{"descriptor", "refused", "refused"},
				{"config", "refused", "found"},
				{"audit", "refused", "found"},
				{"other", "found", "found"},
			} {
				for name, want := range map[string]string{"protected": q.protected, "open": q.open} {
					if want == "refused" && name == "open" && os.Getuid() == 0 && as == nil {
						continue // root reads what it likes, unless that is taken away
					}
					body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q}`, cmd.Process.Pid, q.method)
					r, err := http.Post(s.addrs[0]+"/rpc/"+name, "application/json", strings.NewReader(body))
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(r.Body)
					_ = r.Body.Close()
					if err != nil || !strings.Contains(string(got), `"`+want+`"`) {
						t.Errorf("%s %s: %s %v, wanted %s", name, q.method, got, err, want)
					}
				}
			}
		})
	}
}

// privateDir is a directory of the user with a configuration, a server and the program.
func privateDir(t *testing.T, as *syscall.Credential) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "farcall") //nolint:usetesting // all users may enter its parents
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	const config = `
upstreams:
  protected: {command: [/bin/sh, server.sh], profile: raw, lifetime: shared}
  open: {command: [/bin/sh, server.sh], profile: raw, lifetime: shared, sandbox: none}
guard:
  anonymous: true
  audit: {file: audit.jsonl}
  signatures: [{id: other, secret: hmac-secret-of-other-client-0123456789}]
`
	for name, text := range map[string]string{
		"farcall.yaml": config, "server.sh": spying,
		"farcall": string(self),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"farcall.yaml", "server.sh", "farcall", "."} {
		if as == nil {
			break
		}
		if err := os.Chown(filepath.Join(dir, name), int(as.Uid), int(as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestSandboxNeverReachesGateway: a command in a sandbox with all of the network reaches other
// servers of this machine, and not the gateway, whichever port the system has chosen for it.
func TestSandboxNeverReachesGateway(t *testing.T) {
	if parts := sandbox.Missing(&sandbox.Rules{Network: []string{"all"}}); len(parts) > 0 {
		t.Skip("this system lacks a part:", parts)
	}
	python, err := exec.LookPath("/usr/bin/python3")
	if err != nil {
		t.Skip(err)
	}
	const connecting = `
import json, socket, sys
for line in sys.stdin:
    m = json.loads(line)
    try:
        socket.create_connection((m["params"]["host"], m["params"]["port"]), 5).close()
        said = "connected"
    except OSError as e:
        said = e.strerror
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": said}), flush=True)
`
	dir := t.TempDir()
	config := fmt.Sprintf(`
upstreams:
  a: {command: [%s, -c, %q], profile: raw, lifetime: shared, sandbox: {network: [all, "127.0.0.0/8:*"]}}
`, python, connecting)
	file := filepath.Join(dir, "farcall.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "--config", file, "--log", "off", "--listen", "127.0.0.1:0")
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	_, own, _ := strings.Cut(s.addrs[0], "127.0.0.1:")
	_, port, _ := strings.Cut(other.Addr().String(), ":")
	for _, c := range []struct{ host, port, want string }{
		{"127.0.0.1", port, "connected"},
		{"127.0.0.1", own, "Permission denied"},
		{"0.0.0.0", own, "Permission denied"},
		{"::ffff:127.0.0.1", own, "Permission denied"},
	} {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"connect","params":{"host":%q,"port":%s}}`,
			c.host, c.port)
		r, err := http.Post(s.addrs[0]+"/rpc/a", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if err != nil || !strings.Contains(string(got), c.want) {
			t.Errorf("%s:%s: %s %v, wanted %s", c.host, c.port, got, err, c.want)
		}
	}
}
