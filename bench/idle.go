package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv tells the program that it is a server in its own process, and
// its kind.
const childEnv = "FARCALL_BENCH_CHILD"

// idleKinds are the servers, by transport and implementation. "floor" is a
// goroutine that waits in Read, and over WebSocket the library that farcall
// uses, alone.
var idleKinds = []string{
	"tcp floor", "tcp farcall", "tcp jrpc2", "tcp sourcegraph", "tcp geth",
	"ws floor", "ws farcall", "ws geth",
}

// An idleResult is what idle connections take of a server's resident memory.
type idleResult struct {
	connections  int
	fresh, after float64 // bytes for each: as opened, and after one call on each
}

// worst is what the marks look at.
func (r *idleResult) worst() float64 { return max(r.fresh, r.after) }

func idleGroup(kind string) string {
	transport, _, _ := strings.Cut(kind, " ")
	return map[string]string{
		"tcp": "idle TCP connections",
		"ws":  "idle WebSocket connections",
	}[transport]
}

// measureIdle opens n connections to a child process and reads the child's
// resident memory before, between and after.
func measureIdle(kind string, n int) (result, error) {
	_, name, _ := strings.Cut(kind, " ")
	r := result{group: idleGroup(kind), name: name, idle: &idleResult{connections: n}}
	c, err := startChild(kind)
	if err != nil {
		return r, err
	}
	conns := make([]net.Conn, 0, n)
	defer func() {
		for _, conn := range conns {
			conn.Close()
		}
		c.stop()
	}()
	base, err := c.rss()
	if err != nil {
		return r, err
	}
	use := usage[kind[:strings.Index(kind, " ")]]
	for range n {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			return r, err
		}
		conns = append(conns, conn)
		if err := use.open(conn); err != nil {
			return r, err
		}
	}
	fresh, err := c.rss()
	if err != nil {
		return r, err
	}
	line := httpRequest
	if name == "geth" {
		line = gethRequest
	}
	for _, conn := range conns {
		if err := use.call(conn, line); err != nil {
			return r, err
		}
	}
	after, err := c.rss()
	r.idle.fresh = float64(fresh-base) / float64(n)
	r.idle.after = float64(after-base) / float64(n)
	return r, err
}

// usage is how the measuring side uses a connection: by hand, so that it takes
// little memory and time itself.
var usage = map[string]struct {
	open func(net.Conn) error
	call func(c net.Conn, request string) error
}{
	"tcp": {
		open: func(net.Conn) error { return nil },
		call: func(c net.Conn, request string) error {
			if _, err := c.Write([]byte(request + "\n")); err != nil {
				return err
			}
			return expect(c, `"add"`, "\n")
		},
	},
	"ws": {
		open: func(c net.Conn) error {
			const hello = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n" +
				"Connection: Upgrade\r\n" +
				"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
			if _, err := c.Write([]byte(hello)); err != nil {
				return err
			}
			return expect(c, "101 ", "\r\n\r\n")
		},
		call: func(c net.Conn, request string) error {
			// RFC 6455 §5.2: a final text frame of less than 126 bytes, with a mask of zeroes.
			if len(request) > 125 {
				return errors.New("the request is too long for a short frame")
			}
			frame := append([]byte{0x81, 0x80 | byte(len(request)), 0, 0, 0, 0}, request...)
			if _, err := c.Write(frame); err != nil {
				return err
			}
			return expect(c, `"add"`, "}")
		},
	},
}

// expect reads until an answer that ends so has come, and looks for a part.
func expect(c net.Conn, part, suffix string) error {
	if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	var got []byte
	for buf := make([]byte, 1024); ; {
		n, err := c.Read(buf)
		got = append(got, buf[:n]...)
		if err != nil {
			return fmt.Errorf("after %q: %w", got, err)
		}
		if strings.HasSuffix(string(got), suffix) && strings.Contains(string(got), part) {
			return nil
		}
	}
}

// A child is the server in its own process.
type child struct {
	cmd     *exec.Cmd
	address string
	in      io.WriteCloser
	out     *bufio.Reader
}

// startChild starts a server that listens.
func startChild(kind string) (*child, error) {
	cmd, err := selfAs(kind)
	if err != nil {
		return nil, err
	}
	return startListening(cmd)
}

// selfAs returns the command of this program as a server.
func selfAs(kind string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childEnv+"="+kind)
	return cmd, nil
}

// startListening starts a server that prints its address.
func startListening(cmd *exec.Cmd) (*child, error) {
	c, err := start(cmd)
	if err != nil {
		return nil, err
	}
	if c.address, err = c.line(); err != nil {
		c.stop()
		return nil, fmt.Errorf("%s printed no address: %w", cmd, err)
	}
	return c, nil
}

// start starts a command that reads and writes.
func start(cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd}
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewReader(out)
	return c, c.cmd.Start()
}

func (c *child) line() (string, error) {
	s, err := c.out.ReadString('\n')
	return strings.TrimSpace(s), err
}

// rss asks for the resident memory in bytes.
func (c *child) rss() (int, error) { return c.ask("rss") }

// ask asks for a figure.
func (c *child) ask(figure string) (int, error) {
	if _, err := io.WriteString(c.in, figure+"\n"); err != nil {
		return 0, err
	}
	s, err := c.line()
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}

// cpuTime returns how long the process has been computing, all threads together.
func (c *child) cpuTime() (time.Duration, error) { return cpuTimeOf(c.cmd.Process.Pid) }

func cpuTimeOf(pid int) (time.Duration, error) {
	// What clock_getcpuclockid(3) returns: a clock in nanoseconds, unlike getrusage and /proc.
	clock := ^pid<<3 | 2
	var t unix.Timespec
	if err := unix.ClockGettime(int32(clock), &t); err != nil {
		return 0, fmt.Errorf("the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

func (c *child) stop() {
	c.in.Close() // the child ends when its input does
	c.cmd.Wait()
}
