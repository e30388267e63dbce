package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestServeReadyAndQuiet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := serve(t, "--listen", "127.0.0.1:0", "--listen", "unix:"+dir+"/farcall.sock", "--listen",
		"127.0.0.1:0", "--log", "off")
	if s.addrs[1] != "unix:"+dir+"/farcall.sock" || s.addrs[0] == s.addrs[2] {
		t.Errorf("ready lines %q", s.addrs)
	}
	for _, addr := range s.addrs {
		if got := dial(t, addr, nil).call(t,
			`{"jsonrpc":"2.0","id":1,"method":"math/add","params":[2,3]}`); got !=
			`{"jsonrpc":"2.0","result":5,"id":1}` {
			t.Errorf("%s answers %s", addr, got)
		}
	}
	s.signal(t, syscall.SIGTERM)
	if rest, err := io.ReadAll(s.stdout); len(rest) > 0 || err != nil {
		t.Errorf("standard output has %q, %v; it is for the protocol only", rest, err)
	}
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if len(s.lines) > 0 {
		t.Errorf("with --log off, standard error has %q", s.lines)
	}
	if _, err := os.Stat(dir + "/farcall.sock"); err == nil {
		t.Error("the socket is still there")
	}
}

func TestServeStdio(t *testing.T) {
	t.Parallel()
	s := serve(t, "--stdio")
	for _, x := range []struct{ send, want string }{
		{
			`{"jsonrpc":"2.0","id":"a","method":"paritosh/echo","params":{"message":"local call"}}`,
			`{"jsonrpc":"2.0","result":"[Paritosh] local call","id":"a"}`,
		},
		{
			`nonsense`,
			`{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error","data":{"reason":"expected a ` +
				`value at offset 0"}},"id":null}`,
		},
		{
			`[{"jsonrpc":"2.0","id":1.0,"method":"get_data"}]`,
			`[{"jsonrpc":"2.0","result":["hello",5],"id":1.0}]`,
		},
	} {
		if _, err := io.WriteString(s.stdin, x.send+"\n"); err != nil {
			t.Fatal(err)
		}
		got, err := s.stdout.ReadString('\n')
		if err != nil || strings.TrimSpace(got) != x.want {
			t.Errorf("%s\n got %s %v\nwant %s", x.send, got, err, x.want)
		}
	}
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d after the end of standard input, want 0", code)
	}
	if records := s.logged(t, 3, `transport=stdio`); len(records) != 3 {
		t.Errorf("%d records, want 3", len(records))
	}
}

// The end of standard input ends the service only when nothing else is served.
func TestServeStdioAndListen(t *testing.T) {
	t.Parallel()
	s := serve(t, "--stdio", "--listen", "127.0.0.1:0")
	if err := s.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.stdout.ReadByte(); err != io.EOF {
		t.Fatalf("standard output: %v", err)
	}
	if got := dial(t, s.addrs[0], nil).call(t,
		`{"jsonrpc":"2.0","id":1,"method":"sum","params":[1,2,4]}`); got !=
		`{"jsonrpc":"2.0","result":7,"id":1}` {
		t.Errorf("answer %s", got)
	}
	s.stop(t)
}

const slowCall = `{"jsonrpc":"2.0","id":1,"method":"sleep","params":[%d],"progressToken":1}`

// sleeping starts a call that lasts and waits until it is under way.
func sleeping(t *testing.T, s *served, ms string) *wire {
	t.Helper()
	w := dial(t, s.addrs[0], nil)
	if got := w.call(t, strings.Replace(slowCall, "%d", ms, 1)); !strings.Contains(got, "$/progress") {
		t.Fatalf("answer %s", got)
	}
	return w
}

// postSleeping starts a call over HTTP and returns its answer, an event stream
// that has begun.
func postSleeping(t *testing.T, base string) io.Reader {
	t.Helper()
	body := strings.NewReader(
		`{"jsonrpc":"2.0","id":2,"method":"sleep","params":[1500],"progressToken":2}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/rpc", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	res, err := httpClient(nil).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res.Body
}

// refused waits until the address no longer accepts connections.
func refused(t *testing.T, s *served) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	var d net.Dialer
	for {
		conn, err := d.DialContext(ctx, "tcp", s.hostport(t))
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	if ctx.Err() != nil {
		t.Fatal("connections are still accepted")
	}
}

func TestServeDrains(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]os.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t)
			w := sleeping(t, s, "1500")
			idle := dial(t, s.addrs[0], nil)
			idle.call(t, afterwards)
			posted := postSleeping(t, s.addrs[0])
			s.signal(t, sig)
			refused(t, s)
			last := ""
			for !strings.Contains(last, `"result"`) {
				last = w.line(t)
			}
			if last != `{"jsonrpc":"2.0","result":{"ms":1500,"of":1500},"id":1}` {
				t.Errorf("the call in flight got %s", last)
			}
			got, err := io.ReadAll(posted)
			if err != nil || !strings.Contains(string(got), `"result":{"ms":1500,"of":1500},"id":2}`) {
				t.Errorf("the call in flight over HTTP got %v, %s", err, got)
			}
			if code := s.wait(t); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		})
	}
}

func TestServeSecondSignal(t *testing.T) {
	t.Parallel()
	s := serve(t)
	sleeping(t, s, "20000")
	s.signal(t, syscall.SIGTERM)
	refused(t, s)
	began := time.Now()
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code == 0 {
		t.Error("exit code 0 although a call was broken off")
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("it took %v to exit at once", d)
	}
}

func TestServeStaleSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	serve(t, "--listen", "unix:"+path).stop(t)

	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := execute(t, "serve", "--listen", "unix:"+file)
	if code != exitFailure || !strings.Contains(stderr, "no socket") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
	if kept, _ := os.ReadFile(file); string(kept) != "precious" {
		t.Error("the file was touched")
	}
}

// execute runs the program in this process.
func execute(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

func TestServeUsage(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{
			"--listen " + taken.Addr().String(), exitFailure,
			[]string{"cannot listen on " + taken.Addr().String(), "in use", "127.0.0.1:0 is any that is free"},
		},
		{"--listen 7331", exitUsage, []string{"has no host", "--listen 127.0.0.1:7331"}},
		{
			"--listen http://127.0.0.1:7331/", exitUsage,
			[]string{"has a scheme", "--listen 127.0.0.1:7331"},
		},
		{"--listen 127.0.0.1:port", exitUsage, []string{"bad port"}},
		{"--listen unix:", exitUsage, []string{"no path"}},
		{
			"--listen unix:/no/such/directory/s", exitFailure,
			[]string{"cannot listen on unix:/no/such/directory/s"},
		},
		{"--max-message ten", exitUsage, []string{`"ten" is not a size`, "10MB"}},
		{"--max-message 0", exitUsage, []string{"out of range"}},
		{"--max-message 2TB", exitUsage, []string{"not a size"}},
		{
			"--listen :0", exitUsage,
			[]string{"other machines can reach :0, and no guard says who may call what", "--guard FILE", "listen on 127.0.0.1:0", "--insecure"},
		},
		{
			"--listen 127.0.0.1:0 --listen 0.0.0.0:7331 --stdio", exitUsage,
			[]string{"can reach 0.0.0.0:7331", "127.0.0.1:7331"},
		},
		{"--upstream a=x --listen [::]:7331", exitUsage, []string{"can reach [::]:7331", "no guard"}},
		{"--tls-client-ca ca.pem", exitUsage, []string{"without --tls-cert"}},
		{"--tls-cert c.pem", exitUsage, []string{"without --tls-key"}},
		{"--tls-key k.pem", exitUsage, []string{"without --tls-cert"}},
		{
			"--tls-cert none.pem --tls-key none.pem", exitUsage,
			[]string{"cannot use the certificate", "none.pem", "PEM"},
		},
		{"--log xml", exitUsage, []string{`no log format "xml"`, "--log-format text, json or off"}},
		{"--nonsense", exitUsage, []string{"unknown flag: --nonsense", "farcall serve --help"}},
		{"--lisen x", exitUsage, []string{"unknown flag: --lisen", "Did you mean --listen?"}},
		{"extra", exitUsage, []string{`"extra"`}},
	} {
		code, stdout, stderr := execute(t, append([]string{"serve"}, strings.Fields(c.args)...)...)
		if code != c.code || stdout != "" {
			t.Errorf("serve %s: exit code %d, want %d; standard output %q", c.args, code, c.code, stdout)
		}
		for _, want := range c.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("serve %s says %q, which lacks %q", c.args, stderr, want)
			}
		}
	}
}

func TestByteSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"1": 1, "4096": 4096, "10MB": 10_000_000, "10mb": 10_000_000, "512KiB": 512 << 10,
		"64k": 64 << 10, "1.5 MiB": 3 << 19, "7B": 7, "1GiB": 1 << 30,
	} {
		var s byteSize
		if err := s.Set(text); err != nil || int(s) != want {
			t.Errorf("%s: %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "MB", "-1", "0.5", "1e99", "NaN", "10 apples"} {
		var s byteSize
		if err := s.Set(text); err == nil {
			t.Errorf("%q is taken as %d", text, s)
		}
	}
}

func TestServeLog(t *testing.T) {
	t.Parallel()
	s := serve(t, "--log", "json", "--log-payloads")
	w := dial(t, s.addrs[0], nil)
	w.call(t,
		`[{"jsonrpc":"2.0","id":"a","method":"math/add","params":[2,3]},{"jsonrpc":"2.0",`+
			`"method":"update"},{"jsonrpc":"2.0","id":1.0,"method":"nope"},7]`)
	type record struct {
		Level, Msg        string
		ID                json.RawMessage
		Method            string
		Code              int
		LatencyMS         *float64 `json:"latency_ms"`
		BytesIn           int      `json:"bytes_in"`
		BytesOut          int      `json:"bytes_out"`
		Transport, Conn   string
		Batch             bool
		Request, Response string
	}
	byID := map[string]record{}
	for _, line := range s.logged(t, 4, `"batch":true`) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.LatencyMS == nil || r.Transport != "tcp" || r.Conn == "" {
			t.Errorf("incomplete: %s", line)
		}
		byID[string(r.ID)] = r
	}
	a, n := byID[`"a"`], byID[""]
	if a.Method != "math/add" || a.Code != 0 || a.Level != "INFO" || a.BytesIn != len(a.Request) ||
		a.BytesOut != len(a.Response) ||
		a.Request != `{"jsonrpc":"2.0","id":"a","method":"math/add","params":[2,3]}` ||
		a.Response != `{"jsonrpc":"2.0","result":5,"id":"a"}` {
		t.Errorf("call: %+v", a)
	}
	if r := byID["1.0"]; r.Code != -32601 || r.Level != "WARN" || r.Method != "nope" {
		t.Errorf("unknown method: %+v", r)
	}
	if r := byID["null"]; r.Code != -32600 || r.Request != "7" {
		t.Errorf("invalid element: %+v", r)
	}
	if n.Msg != "notification" || n.Method != "update" || n.Response != "" {
		t.Errorf("notification: %+v", n)
	}
	request(t, httpClient(nil), "POST", s.addrs[0]+"/rpc",
		`{"jsonrpc":"2.0","id":5,"method":"fail","params":{"kind":"internal"}}`)
	if line := s.logged(t, 1, `"transport":"http"`)[0]; !strings.Contains(line,
		"a cause that stays in the log") || !strings.Contains(line, `"level":"ERROR"`) {
		t.Errorf("the cause of an internal error is not in %s", line)
	}
	request(t, httpClient(nil), "GET", s.addrs[0]+"/rpc/stream?method=math/add_stream&params=[1,2]",
		"")
	s.logged(t, 1, `"method":"math/add_stream".*"transport":"sse","conn":"http-2"`)
	s.stop(t)
}

func TestServeLimitsAndDetails(t *testing.T) {
	t.Parallel()
	s := serve(t, "--max-message", "1KB", "--details", "--v1")
	big := `{"jsonrpc":"2.0","id":1,"method":"echo","params":["` + strings.Repeat("x", 1000) + `"]}`
	w := dial(t, s.addrs[0], nil)
	if got := w.call(t, big); !strings.Contains(got, `"error":{"code":-32012`) {
		t.Errorf("too large: %s", got)
	}
	if got := w.call(t, afterwards); got != afterwardsAnswer {
		t.Errorf("after what was too large: %s", got)
	}
	if res := request(t, httpClient(nil), "POST", s.addrs[0]+"/rpc",
		big); res.status != http.StatusRequestEntityTooLarge || !strings.Contains(res.body, `"error"`) {
		t.Errorf("too large over HTTP: %d %s", res.status, res.body)
	}
	if got := w.call(t,
		`{"jsonrpc":"2.0","id":2,"method":"fail","params":{"kind":"internal"}}`); !strings.Contains(got,
		"a cause that stays in the log") {
		t.Errorf("with --details: %s", got)
	}
	if got := w.call(t, `{"id":3,"method":"subtract","params":[42,23]}`); got !=
		`{"id":3,"result":19,"error":null}` && got != `{"result":19,"error":null,"id":3}` {
		t.Errorf("JSON-RPC 1.0: %s", got)
	}
	s.stop(t)

	s = serve(t)
	w = dial(t, s.addrs[0], nil)
	if got := w.call(t,
		`{"jsonrpc":"2.0","id":2,"method":"fail","params":{"kind":"internal"}}`); got !=
		`{"jsonrpc":"2.0","error":{"code":-32603,"message":"Internal error"},"id":2}` {
		t.Errorf("without --details: %s", got)
	}
	if got := w.call(t, `{"id":3,"method":"subtract","params":[42,23]}`); !strings.Contains(got,
		"-32600") {
		t.Errorf("JSON-RPC 1.0 without --v1: %s", got)
	}
	s.stop(t)
}

func TestServePaths(t *testing.T) {
	t.Parallel()
	s := serve(t)
	base, client := s.addrs[0], httpClient(nil)
	for path, want := range map[string]struct {
		status      int
		contentType string
		body        string
	}{
		"/":          {200, "text/html; charset=utf-8", "<title>farcall"},
		"/main.js":   {200, "text/javascript; charset=utf-8", "import"},
		"/style.css": {200, "text/css; charset=utf-8", "prefers-color-scheme"},
		"/icon.svg":  {200, "image/svg+xml", "<svg"},
		"/healthz":   {200, "text/plain; charset=utf-8", "ok\n"},
		"/readyz":    {200, "text/plain; charset=utf-8", "ready\n"},
		"/mcp":       {405, "application/json", `Mcp-Session-Id`},
		"/messages":  {405, "application/json", `"error"`},
		"/nope":      {404, "application/json", `"id":null}`},
		"/rpc":       {405, "application/json", `"error"`},
		"/rpc/stream?method=math/add_stream&a=0&b=1": {
			200, "text/event-stream",
			`data: {"jsonrpc":"2.0","result":0,"id":1}` + "\n\n" +
				`data: {"jsonrpc":"2.0","result":1,"id":1}`,
		},
	} {
		res := request(t, client, "GET", base+path, "")
		if res.status != want.status || res.header.Get("Content-Type") != want.contentType ||
			!strings.Contains(res.body, want.body) {
			t.Errorf("GET %s: %d, %s, %.300s", path, res.status, res.header.Get("Content-Type"), res.body)
		}
	}
	if policy := request(t, client, "GET", base+"/",
		"").header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "unsafe") {
		t.Errorf("Content-Security-Policy: %q", policy)
	}
	if res := request(t, client, "POST", base+"/", "{}"); res.status != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %d", res.status)
	}
	s.stop(t)
}

func TestVersion(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := execute(t, "version")
	if code != 0 || !strings.HasPrefix(stdout, "farcall ") || strings.Count(stdout, "\n") != 1 ||
		stderr != "" {
		t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
	}
	if code, again, _ := execute(t, "--version"); code != 0 || again != stdout {
		t.Errorf("--version: exit code %d, %q, and version prints %q", code, again, stdout)
	}
	built := commit // what the linker or the build info says
	if info, ok := debug.ReadBuildInfo(); ok && built == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				built = s.Value[:12]
			}
		}
	}
	if built == "" && strings.Contains(stdout, "commit") || !strings.Contains(stdout, built) {
		t.Errorf("%q, built from commit %q", stdout, built)
	}
	code, _, stderr = execute(t, "serv")
	if code != exitUsage || !strings.Contains(stderr, "Did you mean 'farcall serve'?") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
