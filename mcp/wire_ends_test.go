package mcp_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// wireSettle is how long nothing must happen before what has come is all. It is
// virtual, and longer than a burst of changes is collected.
const wireSettle = 20 * time.Millisecond

// wireFrames splits what is sent into messages. A text that is no JSON is one.
func wireFrames(block []byte) (frames []string) {
	text := ""
	for line := range strings.Lines(string(block)) {
		text += strings.TrimSuffix(line, "\n")
		if json.Valid([]byte(text)) {
			frames = append(frames, compactJSON(text))
			text = ""
		}
	}
	if text != "" {
		frames = append(frames, text)
	}
	return frames
}

// frameReader collects the frames of a transport.
type frameReader struct{ got chan string }

func newFrameReader(t farcall.Transport) *frameReader {
	r := &frameReader{got: make(chan string, 10_000)}
	go func() {
		for {
			frame, err := t.Read()
			if err != nil {
				return
			}
			r.got <- string(frame)
		}
	}()
	return r
}

func (r *frameReader) collect(prefix string) (got []wireGot) {
	<-time.After(wireSettle)
	synctest.Wait()
	for len(r.got) > 0 {
		got = append(got, wireGot{prefix, <-r.got})
	}
	return got
}

// wireStream is a raw client of a server on a stream.
type wireStream struct {
	*frameReader
	p      *wirePlay
	end    farcall.Transport
	server *mcp.Server
	done   chan error
}

func newWireStream(p *wirePlay) *wireStream {
	ours, theirs := farcall.Pipe()
	s := &wireStream{
		p: p, end: ours, server: wireServer(p.t, p.file.server),
		done: make(chan error, 1),
	}
	s.frameReader = newFrameReader(ours)
	go func() { s.done <- s.server.Serve(p.t.Context(), theirs) }()
	return s
}

func (s *wireStream) begin(capabilities string) {
	s.write(wireHello(s.p.file.revision, capabilities))
	synctest.Wait()
	if got := <-s.got; !strings.Contains(got, `"result"`) {
		s.p.t.Fatal(got)
	}
	s.write(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func wireHello(revision, capabilities string) string {
	if capabilities == "" {
		capabilities = "{}"
	}
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,`+
			`"capabilities":%s,"clientInfo":{"name":"client","version":"1.0"}}}`,
		revision, capabilities)
}

func (s *wireStream) write(frame string) {
	if err := s.end.Write([]byte(frame)); err != nil {
		s.p.t.Fatal(err)
	}
}

func (s *wireStream) send(_ string, block []byte) {
	for _, frame := range wireFrames(block) {
		s.write(frame)
	}
}

func (s *wireStream) do(command string)  { s.p.t.Fatalf("%s is for clients", command) }
func (s *wireStream) collect() []wireGot { return s.frameReader.collect("<") }

func (s *wireStream) close() {
	s.end.Close()
	if err := <-s.done; err != nil {
		s.p.t.Error(err)
	}
	s.server.Close()
}

// wireHTTP is a raw client of a server over HTTP: each request has its own
// connection.
type wireHTTP struct {
	p       *wirePlay
	server  *mcp.Server
	handler *mcphttp.Handler
	http    *http.Server
	conns   chan net.Conn
	open    map[string]net.Conn
	order   []string
	got     chan wireGot
}

func newWireHTTP(p *wirePlay) *wireHTTP {
	h := &wireHTTP{
		p: p, server: wireServer(p.t, p.file.server), conns: make(chan net.Conn),
		open: map[string]net.Conn{},
		got:  make(chan wireGot, 10_000),
	}
	h.handler = mcphttp.NewHandler(h.server, nil)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h.handler)
	mux.HandleFunc("/sse", h.handler.ServeSSE)
	mux.HandleFunc("/messages", h.handler.ServeMessages)
	h.http = &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = h.http.Serve(pipeListener{h.conns}) }()
	return h
}

// pipeListener accepts connections in memory.
type pipeListener struct{ conns chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l pipeListener) Close() error   { return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80} }

func (h *wireHTTP) begin(capabilities string) {
	common := "POST /mcp\n"
	h.send("", []byte(common+wireHello(h.p.file.revision, capabilities)+"\n"))
	for _, got := range h.collect() {
		h.p.learn(got.text)
	}
	common += h.p.filled(
		"Mcp-Session-Id: <session>\nMCP-Protocol-Version: " + h.p.file.revision + "\n")
	h.send("", []byte(common+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"))
}

func (h *wireHTTP) do(command string) { h.p.t.Fatalf("%s is for clients", command) }

// send sends a request: its first line, its headers, and its body.
func (h *wireHTTP) send(name string, block []byte) {
	if string(block) == "gone\n" {
		h.open[name].Close()
		return
	}
	lines := strings.Split(strings.TrimSuffix(string(block), "\n"), "\n")
	header := http.Header{"Host": {"127.0.0.1"}}
	method, path, _ := strings.Cut(lines[0], " ")
	lines = lines[1:]
	for len(lines) > 0 {
		key, value, ok := strings.Cut(lines[0], ": ")
		if !ok || strings.ContainsAny(key, `{"[`) {
			break
		}
		header.Set(key, value)
		lines = lines[1:]
	}
	body := compactJSON(strings.Join(lines, ""))
	if header.Get("Accept") == "" {
		header.Set("Accept", "application/json, text/event-stream")
	}
	if body != "" && header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	header.Set("Content-Length", fmt.Sprint(len(body)))
	var request bytes.Buffer
	fmt.Fprintf(&request, "%s %s HTTP/1.1\r\n", method, path)
	_ = header.Write(&request) // to memory
	fmt.Fprintf(&request, "\r\n%s", body)

	ours, theirs := net.Pipe()
	h.conns <- theirs
	h.open[name] = ours
	if !slices.Contains(h.order, name) {
		h.order = append(h.order, name)
	}
	go h.read(name, method, ours)
	go func() { _, _ = ours.Write(request.Bytes()) }() // the answer tells
}

// wireHeaders are the headers of an answer that matter.
var wireHeaders = []string{"Allow", "Content-Type", "Mcp-Session-Id", "X-Accel-Buffering"}

// read collects the answer to a request.
func (h *wireHTTP) read(name, method string, c net.Conn) {
	say := func(text string) { h.got <- wireGot{name + "<", text} }
	r, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		if !errors.Is(err, io.ErrClosedPipe) {
			say("no answer: " + err.Error())
		}
		return
	}
	defer c.Close()
	defer r.Body.Close()
	say(r.Status)
	for _, key := range wireHeaders {
		if value := r.Header.Get(key); value != "" {
			say(key + ": " + value)
		}
	}
	if r.Header.Get("Content-Type") != "text/event-stream" {
		if body, _ := io.ReadAll(r.Body); len(body) > 0 {
			say(strings.TrimSpace(string(body)))
		}
		return
	}
	lines := bufio.NewScanner(r.Body)
	for lines.Scan() {
		if text := lines.Text(); text != "" {
			say(text)
		}
	}
	if lines.Err() == nil {
		say("end")
	}
}

// collect orders what came by request, for the order among them is open.
func (h *wireHTTP) collect() (got []wireGot) {
	<-time.After(wireSettle)
	synctest.Wait()
	for len(h.got) > 0 {
		got = append(got, <-h.got)
	}
	slices.SortStableFunc(got, func(a, b wireGot) int {
		return slices.Index(h.order, strings.TrimSuffix(a.prefix, "<")) -
			slices.Index(h.order, strings.TrimSuffix(b.prefix, "<"))
	})
	return got
}

func (h *wireHTTP) close() {
	for _, c := range h.open {
		c.Close()
	}
	if err := h.handler.Shutdown(h.p.t.Context()); err != nil {
		h.p.t.Error(err)
	}
	close(h.conns)
	h.server.Close()
	synctest.Wait()
	h.http.Close()
}
