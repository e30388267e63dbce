//go:build linux && (amd64 || arm64)

package sandbox

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/farcall-dev/farcall/internal/binary"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/internal/race"
)

// nodeServer is a tool server without libraries: it computes, writes a file where it may, has
// workers and a child process, and says what it found.
const nodeServer = `
const fs = require('fs'), os = require('os'), path = require('path');
const {Worker} = require('worker_threads'), {fork} = require('child_process');
if (process.send) { process.send('child'); process.disconnect(); return; }
require('readline').createInterface({input: process.stdin}).on('line', line => {
	const m = JSON.parse(line);
	const file = path.join(os.tmpdir(), 'note');
	fs.writeFileSync(file, m.params.text);
	const crypto = require('crypto').createHash('sha256').update('x').digest('hex').length;
	const child = fork(__filename);
	child.on('message', said => {
		new Worker('require("worker_threads").parentPort.postMessage(6*7)', {eval: true}).on('message', n => {
			const rss = process.memoryUsage().rss > 0, cpus = os.cpus().length > 0;
			console.log(JSON.stringify({jsonrpc: '2.0', id: m.id, result: [fs.readFileSync(file, 'utf8'), crypto, said, n, rss, cpus, os.networkInterfaces && typeof os.hostname()]}));
		});
	});
}).on('close', () => process.exit(3));
`

const pythonServer = `
import sys, json, threading, subprocess, tempfile, ssl, hashlib, multiprocessing, ctypes
def work(q): q.put(42)
if __name__ == '__main__':
    for line in sys.stdin:
        m = json.loads(line)
        q = multiprocessing.Queue()
        p = multiprocessing.Process(target=work, args=(q,)); p.start(); n = q.get(); p.join()
        with tempfile.TemporaryFile('w+') as f:
            f.write(m['params']['text']); f.seek(0); text = f.read()
        said = subprocess.run([sys.executable, '-c', 'print("child")'], capture_output=True, text=True).stdout.strip()
        t = threading.Thread(target=lambda: None); t.start(); t.join()
        print(json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': [text, n, said]}), flush=True)
    sys.exit(3)
`

// TestServers: what servers of tools do works inside, under 512 MB.
func TestServers(t *testing.T) {
	for _, s := range []struct{ program, file, text, want string }{
		{"node", "server.js", nodeServer, `["hello",64,"child",42,true,true,"string"]`},
		{"python3", "server.py", pythonServer, `["hello", 42, "child"]`},
	} {
		t.Run(s.program, func(t *testing.T) {
			r := &Rules{Memory: 512 << 20}
			needs(t, r)
			program := tool(t, s.program)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.text), 0o600); err != nil {
				t.Fatal(err)
			}
			r.Read = []string{dir}
			for _, where := range []string{"in the sandbox", "without namespaces"} {
				cmd := confined(t, r, program, filepath.Join(dir, s.file))
				if where != "in the sandbox" {
					r := *r
					r.BestEffort = true
					r.Write = []string{dir} // there is no TMPDIR
					cmd = confined(t, &r, program, filepath.Join(dir, s.file))
					cmd.Env = append(cmd.Env, "TMPDIR="+dir, noNamespaces+"=1")
					if s.program == "python3" {
						continue // its queues need /dev/shm
					}
				}
				got := serve(t, cmd)
				if !strings.Contains(got, s.want) {
					t.Errorf("%s: %s", where, got)
				}
			}
		})
	}
}

// TestMCPServer: servers of others work as they are, where they are installed.
func TestMCPServer(t *testing.T) {
	modules, err := filepath.Abs("../../interop/node/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server-everything", "server-filesystem", "server-memory"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := &Rules{Memory: 512 << 20, Read: []string{modules}, Write: []string{dir}}
			needs(t, r)
			node := tool(t, "node")
			file := filepath.Join(modules, "@modelcontextprotocol", name, "dist", "index.js")
			if _, err := os.Stat(file); err != nil {
				t.Skip("it is not installed; interop/setup.sh does it")
			}
			argument := map[string]string{"server-everything": "stdio", "server-filesystem": dir}[name]
			cmd := confined(t, r, node, file, argument)
			cmd.Env = append(cmd.Env, "MEMORY_FILE_PATH="+filepath.Join(dir, "memory.json"))
			in, lines := begin(t, cmd)
			_, _ = in.Write(
				[]byte(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"1","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"))
			if line, err := lines.ReadString('\n'); !strings.Contains(line, "serverInfo") {
				t.Errorf("%q %v", line, err)
			}
			_ = in.Close()
			_ = cmd.Process.Kill() // its namespace ends with it
			_ = cmd.Wait()
		})
	}
}

// TestPrograms: programs of other kinds work inside, with the system calls that are allowed.
func TestPrograms(t *testing.T) {
	if race.Enabled {
		t.Skip("it runs programs that have no race detector; without -race it runs them")
	}
	needs(t, &Rules{})
	sh, git := tool(t, "sh"), tool(t, "git")
	dir, err := os.MkdirTemp("/var/tmp", "farcall") //nolint:usetesting // all users may enter its parents, and git asks access(2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		if err := os.Chown(dir, unprivileged, unprivileged); err != nil {
			t.Fatal(err)
		}
	}
	commit := `set -e; git init -q .; echo a > f; git add f; git -c user.name=a -c user.email=b ` +
		`commit -qm c; git log --format=%s; git gc -q; git status --short`
	type program struct {
		name    string
		r       *Rules
		in      string
		command []string
		want    string
	}
	programs := []program{
		{
			"git", &Rules{Execute: []string{"/usr/bin", "/bin", "/usr/lib/git-core"}}, "",
			[]string{sh, "-c", commit},
			"c\n",
		},
		{"git alone", &Rules{}, "", []string{git, "log", "--format=%s"}, "c\n"},
		{
			"pipes", &Rules{Execute: []string{"/usr/bin", "/bin"}}, "",
			[]string{sh, "-c", `seq 5 | sort -r | head -n 1; find . -name f | xargs ls; (sleep 0; exit 3) & wait $! || echo $?`},
			"5\n./f\n3\n",
		},
	}
	if full.Wanted() || binary.Given() { // to build it would be most of the time of these tests
		farcall := filepath.Join(t.TempDir(), "farcall") // all users may enter its parents
		code, err := os.ReadFile(binary.Path(t))
		if err == nil {
			err = os.WriteFile(farcall, code, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		call := `{"jsonrpc":"2.0","id":1,"method":"math/add","params":[2,3]}` + "\n"
		programs = append(programs,
			program{"a static program of Go", &Rules{}, "", []string{farcall, "errors", "-32601"}, "-32601"},
			program{"the playground", &Rules{}, call, []string{farcall, "serve", "--stdio"}, `"result":5`})
	}
	for _, c := range programs {
		t.Run(c.name, func(t *testing.T) {
			c.r.Write = []string{dir}
			cmd := confined(t, c.r, c.command...)
			cmd.Env = append(cmd.Env, "GIT_CONFIG_NOSYSTEM=1")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader(c.in)
			if got := launch(t, cmd); got.code != 0 || !strings.Contains(got.out, c.want) {
				t.Error(got)
			}
		})
	}
}

// serve asks one question, reads the answer, and ends the input.
func serve(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var said strings.Builder
	cmd.Stderr = &said
	in, lines := begin(t, cmd)
	if _, err := in.Write(
		[]byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":{"text":"hello"}}` + "\n")); err != nil {
		t.Error(err)
	}
	line, _ := lines.ReadString('\n')
	_ = in.Close()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exit %d, not that of the server", code)
	}
	return line + said.String()
}

// TestEnvironment: what the launcher has is what the command has, but for TMPDIR.
func TestEnvironment(t *testing.T) {
	needs(t, &Rules{})
	env := tool(t, "env")
	cmd := confined(t, &Rules{Network: []string{"443", "53"}}, env)
	cmd.Env = []string{"FARCALL_CHILD=cookie", "TMPDIR=/tmp", "A=b"}
	got := launch(t, cmd)
	if want := "FARCALL_CHILD=cookie\nA=b\nTMPDIR=/dev/shm\nRES_OPTIONS=use-vc\n"; got.out != want {
		t.Errorf("got %v, wanted %q", got, want)
	}
	dir := t.TempDir()
	cmd = confined(t, &Rules{Write: []string{dir}}, env)
	cmd.Env = []string{"TMPDIR=" + dir}
	if got := launch(t, cmd); got.out != "TMPDIR="+dir+"\n" {
		t.Error(got)
	}
}

// TestSignals: a signal ends a command that does not care, and one that does hears it once.
func TestSignals(t *testing.T) {
	needs(t, &Rules{})
	sh := tool(t, "sh")
	for _, c := range []struct {
		script string
		code   int
	}{
		{`echo ready; while read -r x; do :; done`, 128 + int(syscall.SIGKILL)},
		{
			`n=0; trap 'n=$((n+1)); echo got $n' TERM; echo ready; while ! read -r x; do :; done; exit 7`,
			7,
		},
	} {
		cmd := confined(t, &Rules{}, sh, "-c", c.script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		in, lines := begin(t, cmd)
		if line, err := lines.ReadString('\n'); line != "ready\n" {
			t.Fatal(line, err)
		}
		if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM); err != nil {
			// to the group, as supervise does
			t.Error(err)
		}
		if c.code == 7 {
			if line, err := lines.ReadString('\n'); line != "got 1\n" {
				t.Error(line, err)
			}
			_, _ = in.Write([]byte("go\n"))
		}
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			t.Errorf("exit %d, wanted %d", got, c.code)
		}
		_ = in.Close()
	}
}

// TestPorts: a destination that is named can be connected to, and "all" reaches everything over IP.
func TestPorts(t *testing.T) {
	w := newWorld(t)
	_, port, err := net.SplitHostPort(w.tcp)
	if err != nil {
		t.Fatal(err)
	}
	for _, entries := range [][]string{
		{w.tcp, "53"},
		{"localhost:" + port},
		{"127.0.0.0/8:" + port},
		{"127.0.0.1:*"},
	} {
		r := &Rules{Network: entries}
		needs(t, r)
		if got := launch(t, confined(t, r, self, "hostile", "tcp", w.tcp)); got.code != 0 {
			t.Error(entries, got)
		}
	}
	all := &Rules{Network: []string{"all"}}
	for _, try := range [][]string{{"tcp", w.tcp}, {"udp", w.udp}, {"listen"}, {"netlink"}} {
		if got := launch(t, confined(t, all, append([]string{self, "hostile"}, try...)...)); got.code !=
			0 {
			t.Error(try, got)
		}
	}
	for _, try := range [][]string{
		{"unix", w.abstract},
		{"unix", w.path},
		{"pair sends", w.datagrams},
		{"raw"},
		{"packet"},
	} {
		if got := launch(t, confined(t, all, append([]string{self, "hostile"}, try...)...)); got.code !=
			1 {
			t.Error(try, got)
		}
	}
}

// TestWrite: where it may write it does what one does with files, and executes nothing.
func TestWrite(t *testing.T) {
	needs(t, &Rules{})
	sh := tool(t, "sh")
	dir := t.TempDir()
	r := &Rules{Write: []string{dir}, Execute: []string{"/usr/bin", "/bin"}}
	cmd := confined(t, r, sh, "-c",
		`set -e; echo a > f; chmod 600 f; mkdir d; mv f d/g; ln d/g h; ln -s h l; test "$(cat l)" = a; `+
			`: > h; touch h; mkfifo p; rm -r d h l p`)
	cmd.Dir = dir
	if got := launch(t, cmd); got.code != 0 {
		t.Error(got)
	}
	r.Read = []string{"."}
	r.Write = nil
	cmd = confined(t, r, sh, "-c", `cat f > /dev/null && echo b > f`)
	cmd.Dir = dir
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("a"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := launch(t, cmd); got.code == 0 || strings.Contains(got.err, "cat:") {
		t.Error(got)
	}
}

// TestRefusals: when something is wrong, the error names it and nothing is started.
func TestRefusals(t *testing.T) {
	needs(t, &Rules{})
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		r       *Rules
		command []string
		want    string
	}{
		{
			&Rules{Read: []string{"/nowhere/at/all"}},
			[]string{"/bin/sh"},
			"/nowhere/at/all: no such file or directory; create it, or remove it from the rules",
		},
		{&Rules{Network: []string{"http"}}, []string{"/bin/sh"}, "TCP ports"},
		{&Rules{}, []string{"no-such-program-at-all"}, "is in no directory of PATH"},
		{&Rules{}, []string{plain}, "chmod +x"},
	} {
		got := launch(t, confined(t, c.r, c.command...))
		if got.code < 125 || !strings.Contains(got.err, c.want) || got.out != "" {
			t.Errorf("%v: %v, wanted %q", c.command, got, c.want)
		}
	}
}
