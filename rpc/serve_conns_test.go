package rpc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/stream"
)

const (
	modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	modernAdd = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"math_add",` +
		`"arguments":{"a":2,"b":3},` + modernMeta + `}}`
	modernListen = `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen",` +
		`"params":{"notifications":{"toolsListChanged":true},` + modernMeta + `}}`
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c",` +
		`"version":"1"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// opened are the connections of a server in this process, of a handler and a server of MCP.
type opened struct {
	*conns
	mcp *mcp.Server
}

type sleepParams struct {
	MS int `json:"ms"`
}

// sleep takes its time, or as long as its context lasts.
func sleep(ctx context.Context, p sleepParams) (sleepParams, error) {
	timer := time.NewTimer(time.Duration(p.MS) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return p, nil
	case <-ctx.Done():
		return p, ctx.Err()
	}
}

type addParams struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

func add(_ context.Context, p addParams) (float64, error) { return p.A + p.B, nil }

func newOpened() *opened {
	mux := farcall.NewMux()
	farcall.Handle(mux, "math/add", add)
	farcall.Handle(mux, "sleep", sleep)
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, mcp.Tool{Name: "math_add", Description: "Adds."}, add)
	mcp.AddTool(s, mcp.Tool{Name: "sleep", Description: "Sleeps."}, sleep)
	return &opened{newConns(mux, &ServeOptions{MCP: s}), s}
}

func (o *opened) close(t *testing.T) {
	t.Helper()
	began := time.Now()
	o.mcp.Close()
	ctx, cancel := context.WithTimeout(t.Context(), drainTime)
	defer cancel()
	_ = o.shutdown(ctx)
	if d := time.Since(began); d >= drainTime {
		t.Errorf("the drain took %v", d)
	}
	if len(o.alive) > 0 {
		t.Errorf("%d connections are left", len(o.alive))
	}
}

// start serves a connection over a pipe.
func (o *opened) start(t farcall.Transport) { go o.accept(nil).Serve(t) }

// dial returns a connection and its lines.
func (o *opened) dial(t *testing.T, framing stream.Framing) (net.Conn, *bufio.Reader) {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close() })
	o.start(stream.New(theirs, framing, &stream.Options{MaxMessage: 1000}))
	return ours, bufio.NewReader(ours)
}

const (
	addCall    = `{"jsonrpc":"2.0","method":"math/add","params":[2,3],"id":1}`
	addAnswer  = `{"jsonrpc":"2.0","result":5,"id":1}`
	pingAnswer = `{"jsonrpc":"2.0","result":{},"id":1}`
	parseError = `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error","data":{"reason":"`
)

// The first message says what a connection speaks, in however many pieces it
// comes, and so does what comes before it and is no message.
func TestOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send string
		want []string // in the lines that come back, in their order
	}{
		"JSON-RPC": {addCall + "\n", []string{addAnswer}},
		"JSON-RPC, then MCP": {
			addCall + "\n" + modernAdd + "\n",
			[]string{addAnswer, "Method not found"},
		},
		"modern MCP": {
			modernAdd + "\n" + modernAdd + "\n",
			[]string{`"structuredContent":5`, `"structuredContent":5`},
		},
		"legacy MCP": {
			initialize + "\n" + initialized + "\n" + `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n",
			[]string{`"protocolVersion":"2025-11-25"`, pingAnswer},
		},
		"ping, then MCP": {
			`{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n" + initialize + "\n",
			[]string{pingAnswer, `"serverInfo"`},
		},
		"both eras": {
			modernAdd + "\n" + initialize + "\n",
			[]string{`"structuredContent":5`, `"serverInfo"`},
		},
		"MCP without an opening": {
			`{"jsonrpc":"2.0","id":1,"method":"tools/list"}` + "\n",
			[]string{"open a session with initialize"},
		},
		"blank lines": {"\r\n \n\n" + initialize + "\n", []string{`"serverInfo"`}},
		"garbage":     {"garbage\n" + addCall + "\n", []string{parseError, addAnswer}},
		"garbage, then MCP": {
			"garbage\n" + initialize + "\n",
			[]string{parseError, "Method not found"},
		},
		"too large": {
			`"` + strings.Repeat("x", 1001) + `"` + "\n" + addCall + "\n",
			[]string{"too large", addAnswer},
		},
		"a batch":             {"[" + addCall + "]\n", []string{"[" + addAnswer + "]"}},
		"no end of line":      {addCall, []string{addAnswer}},
		"MCP, no end of line": {modernAdd, []string{`"structuredContent":5`}},
		"half a message":      {`{"jsonrpc":"2.0","id"`, []string{parseError}},
		"nothing":             {"", nil},
		"blank lines only":    {"\n\n", nil},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					o := newOpened()
					a, b := farcall.Pipe()
					half := &halfClosed{frames: a, size: size, rest: []byte(c.send)}
					o.start(stream.New(half, stream.NDJSON, &stream.Options{MaxMessage: 1000}))
					for _, want := range c.want {
						line, err := b.Read()
						if err != nil || !strings.Contains(string(line), want) {
							t.Fatalf("%s, %v, want %s", line, err, want)
						}
					}
					synctest.Wait()
					if _, err := b.Read(); !errors.Is(err, io.EOF) {
						t.Errorf("the connection is still open: %v", err)
					}
					o.close(t)
				})
			})
		}
	}
}

// halfClosed is the server's end of a connection; its client says something, in
// pieces, and closes its sending half. What is written goes into frames.
type halfClosed struct {
	frames farcall.Transport
	size   int
	rest   []byte
}

func (h *halfClosed) Read(p []byte) (int, error) {
	if len(h.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, h.rest[:min(h.size, len(h.rest))])
	h.rest = h.rest[n:]
	return n, nil
}

func (h *halfClosed) Write(p []byte) (int, error) {
	for line := range strings.SplitAfterSeq(string(p), "\n") {
		if line == "" {
			continue
		}
		if err := h.frames.Write([]byte(line)); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (h *halfClosed) Close() error { return h.frames.Close() }

// The framing with headers carries both as well.
func TestOpenHeaderFraming(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpened()
		for _, x := range []struct{ send, want string }{
			{addCall, addAnswer},
			{modernAdd, `"structuredContent":5`},
			{initialize, `"serverInfo"`},
		} {
			conn, r := o.dial(t, stream.Header)
			client := stream.New(struct {
				io.Reader
				io.WriteCloser
			}{r, conn}, stream.Header, nil)
			if err := client.Write([]byte(x.send)); err != nil {
				t.Fatal(err)
			}
			if got, err := client.Read(); err != nil || !strings.Contains(string(got), x.want) {
				t.Errorf("%s, %v", got, err)
			}
			conn.Close()
		}
		synctest.Wait()
		o.close(t)
	})
}

// Connections that say nothing do not keep the server from stopping.
func TestDrainSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpened()
		silent, r := o.dial(t, stream.NDJSON)
		begun, r2 := o.dial(t, stream.NDJSON)
		if _, err := io.WriteString(begun, initialize[:20]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		o.close(t)
		if d := time.Since(began); d > 0 {
			t.Errorf("the drain took %v", d)
		}
		for _, r := range []*bufio.Reader{r, r2} {
			if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		silent.Close()
		late, r := o.dial(t, stream.NDJSON)
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("a connection is served after the drain: %v", err)
		}
		late.Close()
	})
}

// The calls in flight are finished, of both protocols, and a subscription ends
// with its result.
func TestDrainBoth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpened()
		slow, slowLines := o.dial(t, stream.NDJSON)
		plain, plainLines := o.dial(t, stream.NDJSON)
		legacy, legacyLines := o.dial(t, stream.NDJSON)
		listening, listenLines := o.dial(t, stream.NDJSON)
		for _, x := range []struct {
			conn net.Conn
			text string
		}{
			{
				slow, strings.Replace(modernAdd, `"math_add","arguments":{"a":2,"b":3}`,
					`"sleep","arguments":{"ms":2000}`, 1),
			},
			{plain, `{"jsonrpc":"2.0","id":1,"method":"sleep","params":[3000]}`},
			{legacy, initialize},
			{listening, modernListen},
		} {
			if _, err := io.WriteString(x.conn, x.text+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(r *bufio.Reader, want string) {
			t.Helper()
			line, err := r.ReadString('\n')
			if err != nil || !strings.Contains(line, want) {
				t.Errorf("%s, %v, want %s", line, err, want)
			}
		}
		expect(legacyLines, `"serverInfo"`)
		if _, err := io.WriteString(legacy,
			initialized+"\n"+
				`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"sleep",`+
				`"arguments":{"ms":1000}}}`+"\n"); err != nil {
			t.Fatal(err)
		}
		expect(listenLines, "notifications/subscriptions/acknowledged")
		synctest.Wait()
		drained := make(chan struct{})
		go func() { o.close(t); close(drained) }()
		expect(listenLines, `"method":"notifications/cancelled"`)
		expect(listenLines, `"id":"l"`)
		expect(legacyLines, `"structuredContent":{"ms":1000}`)
		expect(slowLines, `"structuredContent":{"ms":2000}`)
		expect(plainLines, `{"jsonrpc":"2.0","result":{"ms":3000},"id":1}`)
		for _, r := range []*bufio.Reader{slowLines, plainLines, legacyLines, listenLines} {
			if rest, err := r.ReadString('\n'); !errors.Is(err, io.EOF) {
				t.Errorf("%s, %v", rest, err)
			}
		}
		<-drained
	})
}

// What does not finish in time is given up.
func TestDrainGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newOpened()
		conn, r := o.dial(t, stream.NDJSON)
		if _, err := io.WriteString(conn,
			strings.Replace(modernAdd, `"math_add","arguments":{"a":2,"b":3}`,
				`"sleep","arguments":{"ms":60000}`, 1)+"\n"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		o.close(t)
		if rest, err := r.ReadString('\n'); !errors.Is(err, io.EOF) {
			t.Errorf("%s, %v", rest, err)
		}
	})
}

// An idle connection costs the goroutine that reads from it, and one of MCP
// another. Not parallel: it counts.
func TestIdleConnections(t *testing.T) {
	for name, c := range map[string]struct {
		send, want string
		goroutines int
	}{
		"silent":   {"", "", 1},
		"JSON-RPC": {addCall, addAnswer, 1},
		"MCP":      {modernAdd, `"structuredContent":5`, 2},
	} {
		o := newOpened()
		before := runtime.NumGoroutine()
		const connections = 50
		var clients []farcall.Transport
		for range connections {
			ours, theirs := farcall.Pipe()
			clients = append(clients, ours)
			o.start(theirs)
			if c.send == "" {
				continue
			}
			if err := ours.Write([]byte(c.send)); err != nil {
				t.Fatal(err)
			}
			if got, err := ours.Read(); err != nil || !strings.Contains(string(got), c.want) {
				t.Fatalf("%s, %v", got, err)
			}
		}
		want := before + connections*c.goroutines
		for deadline := time.Now().Add(30 * time.Second); runtime.NumGoroutine() >
			want; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %d goroutines for %d connections, want %d each", name,
					runtime.NumGoroutine()-before, connections, c.goroutines)
			}
		}
		for _, client := range clients {
			if err := client.Close(); err != nil {
				t.Error(err)
			}
		}
		o.close(t)
	}
}
