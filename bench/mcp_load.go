package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"sync"
	"time"
)

// mcpLoads are calls of servers in their own processes, by clients that do
// next to nothing, so that the server decides.
var (
	mcpHTTP      = fmt.Sprintf("MCP tools/call over HTTP, %d in flight", inFlight)
	mcpStdioLoad = fmt.Sprintf("MCP tools/call of a stdio child, %d in flight", inFlight)
)

func mcpLoadGroups() []group {
	web := group{name: mcpHTTP, workers: inFlight, longer: 4, base: "farcall", subjects: []subject{
		{"net/http echo", webServer("net/http echo", false)},
		{"fasthttp echo", webServer("fasthttp echo", false)},
		{"farcall", webServer("farcall", false)},
		{"farcall, rpc.Server", webServer("farcall, rpc.Server", false)},
		{"farcall, net/http", webServer("farcall, net/http", false)},
		{"farcall, http.Server", webServer("farcall, http.Server", false)},
		{"farcall, " + modernRevision, webServer("farcall", true)},
		{"mcp-go", webServer("mcp-go", false)},
		{"go-sdk", webServer("go-sdk", false)},
		{"go-sdk, a session", webServer("go-sdk, a session", false)},
		{"TypeScript", typeScriptServer},
	}}
	stdio := group{name: mcpStdioLoad, workers: inFlight, longer: 4, base: "farcall"}
	for _, name := range []string{"farcall", "mcp-go", "go-sdk"} {
		stdio.subjects = append(stdio.subjects, subject{name, func() (*running, error) {
			return stdioServer(name)
		}})
	}
	return []group{web, stdio}
}

// A callFrame is a request that is sent again and again, under another id each
// time.
type callFrame struct {
	text []byte
	at   int // of the id
	id   int64
}

// newCallFrame gives the worker ids that no other has: worker, worker+64, … .
func newCallFrame(text []byte, worker int) *callFrame {
	first, _ := strconv.ParseInt(callID, 10, 64)
	return &callFrame{text, bytes.Index(text, []byte(callID)), first/inFlight*inFlight + int64(worker)}
}

func (f *callFrame) next() []byte {
	f.id += inFlight
	strconv.AppendInt(f.text[:f.at], f.id, 10)
	return f.text
}

// webServer starts a server in a child process.
func webServer(name string, modern bool) func() (*running, error) {
	return func() (*running, error) {
		c, err := startChild("mcp " + name)
		if err != nil {
			return nil, err
		}
		return c.webLoad(modern)
	}
}

// typeScriptServer starts the server in node/.
func typeScriptServer() (*running, error) {
	node, err := findNode("@modelcontextprotocol/server")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(node, "server.js")
	cmd.Dir = "node"
	c, err := startListening(cmd)
	if err != nil {
		return nil, err
	}
	r, err := c.webLoad(false)
	if err != nil {
		return nil, err
	}
	r.warm = 5000
	return r, nil
}

// webLoad has a connection for each worker, and a session for each where there
// are sessions.
func (c *child) webLoad(modern bool) (*running, error) {
	revision := legacyRevision
	if modern {
		revision = modernRevision
	}
	clients, err := openCallers(c.address, revision, inFlight, inFlight)
	if err != nil {
		c.stop()
		return nil, err
	}
	return &running{worker: clients.worker(), cpu: c.cpuTime, stop: func() {
		clients.close()
		c.stop()
	}}, nil
}

// callers have a connection each, and a call that they make.
type callers struct {
	conns  []*webConn
	frames []*callFrame
}

// openCallers connects them. Where there are sessions they share so many.
func openCallers(address, revision string, n, sessions int) (*callers, error) {
	c := &callers{}
	call, all := legacyCall, make([]map[string]string, sessions)
	for i := range n {
		conn, err := dialWeb(address)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
		headers := all[i%sessions]
		switch {
		case revision == modernRevision:
			call, headers = modernCall, modernHeaders
		case headers == nil:
			if headers, err = conn.openSession(revision); err != nil {
				c.close()
				return nil, err
			}
			all[i] = headers
		}
		c.frames = append(c.frames, newCallFrame(conn.request(call, headers), i))
	}
	return c, nil
}

func (c *callers) close() {
	for _, conn := range c.conns {
		conn.Close()
	}
}

func (c *callers) worker() func() func(int) error {
	started := 0
	return func() func(int) error {
		conn, frame := c.conns[started%len(c.conns)], c.frames[started%len(c.conns)]
		started++
		return func(n int) error {
			if err := conn.refresh(); err != nil {
				return err
			}
			for range n {
				if _, err := conn.call(frame.next()); err != nil {
					return err
				}
			}
			conn.used = time.Now()
			return nil
		}
	}
}

// stdioServer starts a server that speaks on its standard input and output.
func stdioServer(name string) (*running, error) {
	cmd, err := selfAs("stdio " + name)
	if err != nil {
		return nil, err
	}
	c, err := start(cmd)
	if err != nil {
		return nil, err
	}
	l := &lines{child: c}
	if err := l.begin(); err != nil {
		c.stop()
		return nil, err
	}
	for i := range l.answers {
		l.answers[i] = make(chan error, 1)
	}
	go l.read()
	started := 0
	worker := func() func(int) error {
		frame, answer := newCallFrame([]byte(legacyCall+"\n"), started%inFlight),
			l.answers[started%inFlight]
		started++
		return func(n int) error {
			for range n {
				if err := l.write(frame.next()); err != nil {
					return err
				}
				if err := <-answer; err != nil {
					return err
				}
			}
			return nil
		}
	}
	return &running{worker: worker, stop: c.stop, cpu: c.cpuTime}, nil
}

// lines is the client of a child's standard input and output.
type lines struct {
	*child
	mu      sync.Mutex
	answers [inFlight]chan error // by worker
}

// begin initializes the session.
func (l *lines) begin() error {
	if err := l.write([]byte(initialize + "\n")); err != nil {
		return err
	}
	if _, err := l.line(); err != nil {
		return err
	}
	return l.write([]byte(initialized + "\n"))
}

func (l *lines) write(line []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.in.Write(line)
	return err
}

// read gives each answer to the worker with the id that it has.
func (l *lines) read() {
	for {
		line, err := l.out.ReadSlice('\n')
		if err != nil {
			for _, answer := range l.answers {
				answer <- err
			}
			return
		}
		_, rest, _ := bytes.Cut(line, []byte(`"id":`))
		if len(rest) < len(callID) {
			continue
		}
		id, err := strconv.ParseInt(string(rest[:len(callID)]), 10, 64)
		if err != nil {
			continue
		}
		if err = nil; !bytes.Contains(line, []byte(callResult)) {
			err = fmt.Errorf("answered %q", line)
		}
		l.answers[id%inFlight] <- err
	}
}
