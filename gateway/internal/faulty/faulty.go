// Package faulty answers one question: what may a child process do wrong?
//
// It is for tests. A test binary that calls [Main] first is also a small MCP
// server on standard input and output, of the revisions with a handshake, which
// misbehaves as its mode says; [Command] says how to start it. All calls of
// tools answer {"content":[{"type":"text","text":NAME}]} as far as the mode lets
// them, and the tools are "echo" (answers its argument "text"), "pid",
// "work", and "safe", which may be called twice.
//
//	ok               does nothing wrong
//	crash-start      writes two lines to standard error, exits with 3; an argument is what it writes in place of the second
//	crash-call       exits with 4 in each tools/call, unanswered
//	crash-tool T F   exits with 4 in each call of the tools T (safe,work), unanswered; a line is added to the file F for each call
//	crash-after N    answers N messages and exits with 5
//	hang-close       survives the end of its input; SIGTERM ends it
//	ignore-sigterm   survives the end of its input, SIGTERM, SIGINT and SIGHUP
//	flood-stderr N   writes N lines to standard error (default 10,000) before each answer of tools/call
//	binary-stderr    writes NUL, escapes and a very long line there, once
//	fork             starts a child that sleeps, ignores signals and says {"pid":N} as params of the notification "test/forked"
//	fork-away        the same in its own session
//	fork-daemon      the same, and the process between them has exited
//	fork-free        the same as fork-away, with nothing in its environment
//	fork-bare        the same as fork, with nothing in its environment
//	fork-exit        as fork-away, and exits with 7 at once
//	late             answers tools/call once that was cancelled
//	twice            answers each request twice
//	wrong-id         answers tools/call with another id, then rightly
//	garbage          prints banners, a JSON log, half a message, NUL bytes and a very long line between its answers
//	slow-start D     sleeps D (default 500ms) before it reads
//	big N            answers tools/call with N MB of text (default 50)
//	ask              elicits in each tools/call and answers what the user said
//	roots D          asks for the roots when it begins and when they have changed, makes use of them D later, and answers those in use
//	silent           reads and never answers
//	deaf             never reads
//	mute-stdin       closes its input and stays
package faulty

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	variable = "FARCALL_FAULTY"
	header   = "FARCALL_FAULTY_HEADER" // speak with Content-Length
	end      = "FARCALL_FAULTY_END"    // the file of EndEnv
	forever  = 5 * time.Minute
	sleep    = "sleep" // the mode of a child's child
)

// Main plays the child and does not return, when this process was started by
// [Command]. Otherwise it does nothing.
//
//	func TestMain(m *testing.M) { faulty.Main(); os.Exit(leak.Main(m)) }
func Main() {
	mode, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	s := &server{
		mode: mode, args: os.Args[1:], in: bufio.NewReader(os.Stdin),
		header: os.Getenv(header) != "",
	}
	exit(s.run())
}

// EndEnv is set in the environment of a child to the name of a file, to which it adds when
// it ended, as its last act: [Ended] reads that. Beside other work a process takes seconds
// to start, and what is measured from its end does not depend on that.
const EndEnv = end

// noteEnd adds a line to the file.
func noteEnd(path string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // it is the test's
	if err != nil {
		return // Ended says so
	}
	fmt.Fprintln(f, time.Now().UnixNano())
	_ = f.Close()
}

// Ended says when the first child ended that had this file as its [EndEnv].
func Ended(path string) (time.Time, error) {
	all, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, err
	}
	first, _, _ := strings.Cut(string(all), "\n")
	nanoseconds, err := strconv.ParseInt(first, 10, 64)
	return time.Unix(0, nanoseconds), err
}

// Command returns how to start a child: this very program, with an environment
// that is complete.
func Command(mode string, args ...string) (path string, arguments, env []string) {
	path, err := os.Executable()
	if err != nil {
		path = os.Args[0]
	}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, variable) && !strings.HasPrefix(v, "GORACE=") {
			env = append(env, v)
		}
	}
	// The race detector would hold up each exit by a second.
	return path, args, append(env, variable+"="+mode, "GORACE=atexit_sleep_ms=0")
}

// HeaderEnv is appended to the environment of a child that is to speak with
// Content-Length in place of lines.
const HeaderEnv = header + "=1"

// server is the child.
type server struct {
	mode   string
	args   []string
	in     *bufio.Reader
	header bool

	mu   sync.Mutex // held by the goroutine that writes
	held []byte     // the id of a call that is answered late
	asks map[string][]byte
	n    int

	roots atomic.Pointer[string] // in use
}

func (s *server) run() int {
	switch s.mode {
	case sleep:
		signal.Ignore(syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
		<-time.After(forever)
	case "crash-start":
		fmt.Fprintln(os.Stderr, "reading the configuration")
		fmt.Fprintln(os.Stderr, s.arg("cannot open the database"))
		return 3
	case "ignore-sigterm":
		signal.Ignore(syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	case "binary-stderr":
		_, _ = os.Stderr.WriteString("a\x00b\x1b[31mred\x1b[0m\x1b]0;title\a\xff\u202etxt\n" +
			strings.Repeat("x", 1<<20) + "\nwithout an end")
	case "garbage":
		s.print("Starting the server...\n[INFO] listening\n{\"level\":\"info\",\"msg\":\"up\"}\n")
	case "slow-start":
		d, err := time.ParseDuration(s.arg("500ms"))
		if err != nil {
			return 2
		}
		<-time.After(d)
	case "deaf":
		<-time.After(forever)
	case "mute-stdin":
		_ = os.Stdin.Close()
		<-time.After(forever)
	}
	if strings.HasPrefix(s.mode, "fork") {
		if err := s.fork(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		if s.mode == "fork-exit" {
			return 7
		}
	}
	code := s.serve()
	if s.mode == "hang-close" || s.mode == "ignore-sigterm" {
		<-time.After(forever)
	}
	return code
}

func (s *server) arg(otherwise string) string {
	if len(s.args) > 0 {
		return s.args[0]
	}
	return otherwise
}

func (s *server) number(otherwise int) int {
	if n, err := strconv.Atoi(s.arg("")); err == nil {
		return n
	}
	return otherwise
}

// fork starts a process that wants to outlive all of this, and says its id.
func (s *server) fork() error {
	path, _, env := Command(sleep)
	cmd := exec.Command(path) //nolint:noctx // it is meant to stay
	if s.mode == "fork-daemon" {
		cmd = exec.Command("/bin/sh", "-c", `"$0" >/dev/null 2>&1 </dev/null & echo $!`, path) //nolint:noctx // it is meant to stay
	}
	// What marks the children of farcall is inherited.
	cmd.Env = env
	if s.mode == "fork-free" || s.mode == "fork-bare" {
		cmd.Env = []string{variable + "=" + sleep}
	}
	if s.mode != "fork" && s.mode != "fork-bare" {
		ownSession(cmd)
	}
	var pid int
	if s.mode == "fork-daemon" {
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("fork: %w", err)
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(out))); err != nil {
			return fmt.Errorf("fork: %w", err)
		}
	} else {
		cmd.Stderr = os.Stderr // held open
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("fork: %w", err)
		}
		pid = cmd.Process.Pid
	}
	s.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"test/forked","params":{"pid":%d}}`, pid))
	return nil
}

// read returns the next message.
func (s *server) read() ([]byte, error) {
	if !s.header {
		return s.in.ReadBytes('\n')
	}
	size := 0
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return nil, err //nolint:wrapcheck // an end
		}
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		if value, ok := strings.CutPrefix(line, "Content-Length:"); ok {
			size, _ = strconv.Atoi(strings.TrimSpace(value))
		}
	}
	body := make([]byte, size)
	_, err := io.ReadFull(s.in, body)
	return body, err //nolint:wrapcheck // an end
}

// send writes a message; where that fails, the client is gone.
func (s *server) send(message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.header {
		fmt.Fprintf(os.Stdout, "Content-Length: %d\r\n\r\n%s", len(message), message)
	} else {
		_, _ = os.Stdout.Write(append(message, '\n'))
	}
}

func (s *server) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = os.Stdout.WriteString(text)
}

func (s *server) answer(id []byte, result string) {
	if s.mode == "garbage" {
		s.print("\x00\x01\xff binary\n" + `{"jsonrpc":"2.0","id":1,"resu` +
			"\nTraceback (most recent call last):\n" + strings.Repeat("z", 1<<20) + "\n")
	}
	message := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	s.send(message)
	if s.mode == "twice" {
		s.send(message)
	}
	if s.n++; s.mode == "crash-after" && s.n >= s.number(1) {
		fmt.Fprintln(os.Stderr, "out of luck after", s.n)
		exit(5)
	}
}

func exit(code int) {
	if path := os.Getenv(end); path != "" {
		noteEnd(path)
	}
	os.Exit(code) //nolint:forbidigo // the child has no other main
}

// text is a result of tools/call.
func text(said string) string {
	return string(jsonrpc.AppendString([]byte(`{"content":[{"type":"text","text":`), said)) + "}]}"
}

func member(message []byte, path ...string) []byte {
	for _, name := range path {
		message = scan.Member(message, name)
	}
	return message
}

func plain(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return string(raw)
	}
	return string(scan.Unquote(raw))
}
