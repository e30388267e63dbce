package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"

	"github.com/coder/websocket"
	"github.com/creachadair/jrpc2"
	jchannel "github.com/creachadair/jrpc2/channel"
	sourcegraph "github.com/sourcegraph/jsonrpc2"
)

// profileEnv names the directory for the profiles of child processes.
const profileEnv = "FARCALL_BENCH_PROFILE"

// serveChild is the child process. It prints its address, answers each line of
// its input with its own number, and ends when its input does; or its input
// and output are what it serves.
func serveChild(kind string, in io.Reader, out io.Writer) (err error) {
	if dir := os.Getenv(profileEnv); dir != "" {
		stop, err := profile(dir, kind)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	if name, ok := strings.CutPrefix(kind, "stdio "); ok {
		return mcpStdio[name](context.Background())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	if err := serveKind(kind, l); err != nil {
		return err
	}
	fmt.Fprintln(out, l.Addr())
	for lines := bufio.NewScanner(in); lines.Scan(); {
		n, err := figure(lines.Text())
		if err != nil {
			return err
		}
		fmt.Fprintln(out, n)
	}
	return nil
}

// profile writes what this process computes until stop into a file that is named after its kind.
func profile(dir, kind string) (stop func() error, err error) {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, fmt.Sprintf("%.30s", kind))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%d.pprof", name, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// figure is a number about this process.
func figure(name string) (int, error) {
	switch name {
	case "rss":
		return residentMemory("self")
	case "heap": // what is alive
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools still held
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc), nil
	case "goroutines":
		return runtime.NumGoroutine(), nil
	}
	return 0, errors.New("no figure is called " + name)
}

func residentMemory(process string) (int, error) {
	file := "/proc/" + process + "/statm"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0, fmt.Errorf("%s has %q", file, text)
	}
	pages, err := strconv.Atoi(fields[1])
	return pages * os.Getpagesize(), err
}

func serveKind(kind string, l net.Listener) error {
	if name, ok := strings.CutPrefix(kind, "mcp "); ok {
		if serve := mcpListeners[name]; serve != nil {
			return serve(l)
		}
		go http.Serve(l, mcpHandlers[name]())
		return nil
	}
	if order, ok := strings.CutPrefix(kind, "guard "); ok {
		return serveGuarded(order, l)
	}
	s, err := gethServer()
	if err != nil {
		return err
	}
	switch kind {
	case "tcp floor":
		go accept(l, func(c net.Conn) { go echoLines(c) })
	case "tcp farcall":
		go accept(l, farcallTCP())
	case "tcp jrpc2":
		go accept(l, func(c net.Conn) { jrpc2.NewServer(jrpc2Methods, nil).Start(jchannel.Line(c, c)) })
	case "tcp sourcegraph":
		go accept(l, func(c net.Conn) {
			sourcegraph.NewConn(context.Background(), sourcegraph.NewPlainObjectStream(c),
				sourcegraph.HandlerWithError(sourcegraphEcho))
		})
	case "tcp geth":
		go s.ServeListener(l)
	case "ws floor":
		go http.Serve(l, http.HandlerFunc(echoWebSocket))
	case "ws farcall":
		go http.Serve(l, farcallWebSocket())
	case "ws geth":
		go http.Serve(l, s.WebsocketHandler([]string{"*"}))
	default:
		return errors.New("no server is called " + kind)
	}
	return nil
}

func accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		serve(c)
	}
}

// echoLines has no buffer while it waits: it reads the first byte alone.
func echoLines(c net.Conn) {
	var first [1]byte
	for {
		if _, err := c.Read(first[:]); err != nil {
			return
		}
		rest := make([]byte, 4096)
		rest[0] = first[0]
		n := 1
		for rest[n-1] != '\n' {
			m, err := c.Read(rest[n:])
			if err != nil {
				return
			}
			n += m
		}
		if _, err := c.Write(rest[:n]); err != nil {
			return
		}
	}
}

func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	for {
		kind, data, err := c.Read(context.Background())
		if err != nil {
			return
		}
		if err := c.Write(context.Background(), kind, data); err != nil {
			return
		}
	}
}
