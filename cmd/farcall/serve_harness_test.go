package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// waitLimit bounds every wait for something that must happen.
const waitLimit = 30 * time.Second

// served is a running farcall serve.
type served struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	addrs  []string // of the ready lines, such as http://127.0.0.1:4711

	mu      sync.Mutex
	change  sync.Cond
	lines   []string // standard error, without the ready lines
	ended   bool     // standard error
	waited  bool
	waitErr error
}

var readyForm = regexp.MustCompile(
	`^farcall: ready ((?:https?://127\.[0-9.]+:[0-9]+)|(?:(?:unix|nats):.+))$`)

// serve starts farcall serve and waits for its ready lines: one for each
// --listen, one without any, none for --stdio alone.
func serve(t *testing.T, args ...string) *served {
	t.Helper()
	return serveProgram(t, program(t, "serve"), args...)
}

// serveProgram is serve of a program that is ready to be started.
func serveProgram(t *testing.T, cmd *exec.Cmd, args ...string) *served {
	t.Helper()
	cmd.Args = append(cmd.Args, args...)
	s := &served{cmd: cmd}
	s.change.L = &s.mu
	want := strings.Count(strings.Join(args, " "), "--listen")
	if want == 0 && !strings.Contains(strings.Join(args, " "), "--stdio") {
		s.cmd.Args = append(s.cmd.Args, "--listen", "127.0.0.1:0")
		want = 1
	}
	stdin, err1 := s.cmd.StdinPipe()
	stdout, err2 := s.cmd.StdoutPipe()
	stderr, err3 := s.cmd.StderrPipe()
	if err := errors.Join(err1, err2, err3, s.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	s.stdin, s.stdout = stdin, bufio.NewReader(stdout)
	lines := bufio.NewScanner(stderr)
	lines.Buffer(nil, 1<<20)
	t.Cleanup(func() { s.kill(t) })
	for len(s.addrs) < want {
		if !lines.Scan() {
			t.Fatalf("farcall serve ended before it was ready: %v", s.lines)
		}
		if m := readyForm.FindStringSubmatch(lines.Text()); m != nil {
			s.addrs = append(s.addrs, m[1])
		} else {
			s.lines = append(s.lines, lines.Text())
		}
	}
	go s.read(lines)
	return s
}

func (s *served) read(lines *bufio.Scanner) {
	for lines.Scan() {
		s.mu.Lock()
		s.lines = append(s.lines, lines.Text())
		s.change.Broadcast()
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.ended = true
	s.change.Broadcast()
	s.mu.Unlock()
}

// logged waits until the log has n lines that match, and returns them.
func (s *served) logged(t *testing.T, n int, match string) []string {
	t.Helper()
	re := regexp.MustCompile(match)
	timer := time.AfterFunc(waitLimit, func() {
		s.mu.Lock()
		s.ended = true
		s.change.Broadcast()
		s.mu.Unlock()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var found []string
		for _, line := range s.lines {
			if re.MatchString(line) {
				found = append(found, line)
			}
		}
		if len(found) >= n {
			return found
		}
		if s.ended {
			t.Fatalf("the log has %d lines like %q, want %d:\n%s", len(found), match, n,
				strings.Join(s.lines, "\n"))
		}
		s.change.Wait()
	}
}

func (s *served) signal(t *testing.T, sig os.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// wait waits for the end of the process and returns its exit code.
func (s *served) wait(t *testing.T) int {
	t.Helper()
	timer := time.AfterFunc(waitLimit, func() { _ = s.cmd.Process.Kill() })
	defer timer.Stop()
	s.mu.Lock()
	for !s.ended { // Wait closes the pipe that is still being read
		s.change.Wait()
	}
	s.mu.Unlock()
	s.waited, s.waitErr = true, s.cmd.Wait()
	if exit := (*exec.ExitError)(nil); s.waitErr != nil && !errors.As(s.waitErr, &exit) {
		t.Error(s.waitErr)
	}
	return s.cmd.ProcessState.ExitCode()
}

// stop ends the server as an operator does, and fails when it does not exit
// with 0.
func (s *served) stop(t *testing.T) {
	t.Helper()
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d after SIGTERM, want 0; log:\n%s", code, strings.Join(s.lines, "\n"))
	}
}

func (s *served) kill(t *testing.T) {
	t.Helper()
	if !s.waited {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	if t.Failed() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.Logf("standard error:\n%s", strings.Join(s.lines, "\n"))
	}
}

// hostport is the TCP address of the first ready line.
func (s *served) hostport(t *testing.T) string {
	t.Helper()
	u, err := url.Parse(s.addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// wire is a raw connection: lines in, lines out.
type wire struct {
	net.Conn
	r *bufio.Reader
}

// dial connects to an address of a ready line, and does TLS where a
// configuration is given.
func dial(t *testing.T, addr string, config *tls.Config) *wire {
	t.Helper()
	network, target := "tcp", addr
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, target = "unix", path
	} else if u, err := url.Parse(addr); err == nil && u.Host != "" {
		target = u.Host
	}
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), network, target)
	if err != nil {
		t.Fatal(err)
	}
	if config != nil {
		conn = tls.Client(conn, config)
	}
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &wire{conn, bufio.NewReader(conn)}
}

func (w *wire) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
}

func (w *wire) line(t *testing.T) string {
	t.Helper()
	line, err := w.r.ReadString('\n')
	if err != nil {
		t.Fatalf("reading a line: %v (got %q)", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// call sends a line and returns the next one.
func (w *wire) call(t *testing.T, text string) string {
	t.Helper()
	w.send(t, text+"\n")
	return w.line(t)
}

// httpClient follows nothing, keeps nothing and gives up in time.
func httpClient(config *tls.Config) *http.Client {
	return &http.Client{
		Timeout: waitLimit,
		Transport: &http.Transport{
			TLSClientConfig: config, ForceAttemptHTTP2: true,
			DisableKeepAlives: true,
		},
	}
}

// reply is the answer to an HTTP request.
type reply struct {
	status      int
	proto, body string
	header      http.Header
}

// request makes an HTTP request and reads the answer.
func request(t *testing.T, client *http.Client, method, target, body string) reply {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Proto, string(text), res.Header}
}
