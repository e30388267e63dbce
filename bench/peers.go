package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/creachadair/jrpc2"
	jchannel "github.com/creachadair/jrpc2/channel"
	"github.com/creachadair/jrpc2/handler"
	geth "github.com/ethereum/go-ethereum/rpc"
	sourcegraph "github.com/sourcegraph/jsonrpc2"
)

// echoParams are what every call sends and gets back.
const echoParams = `{"name":"add","arguments":{"a":1,"b":2}}`

// echoLine is what the floor sends and gets back: as long as a request.
const echoLine = `{"jsonrpc":"2.0","id":12345,"method":"echo","params":` + echoParams + "}\n"

// A session is a connection with a server at its other end.
type session struct {
	// caller returns what one goroutine uses to call echo with echoParams. It
	// returns the result, which is valid until the next call.
	caller func() func() ([]byte, error)
	close  func()
}

// A peer is one implementation of calls over a connection.
type peer struct {
	name string
	join func(client, server end) (*session, error)
}

var peers = []peer{
	{"floor", joinFloor},
	{"floor, no reader", joinBareFloor},
	{"farcall", joinFarcall},
	{"jrpc2", joinJRPC2},
	{"sourcegraph", joinSourcegraph},
	{"geth", joinGeth},
}

// callGroups are round trips, one at a time and 64 in flight, on each channel.
func callGroups() []group {
	var groups []group
	for _, workers := range []int{1, inFlight} {
		for _, ch := range channels {
			g := group{name: callGroup(ch.name, workers), workers: workers, base: "floor"}
			for _, p := range peers {
				g.subjects = append(g.subjects, subject{p.name, func() (*running, error) {
					return startPeer(ch, p)
				}})
			}
			if ch.name == "in-memory pipe" {
				g.subjects = append(g.subjects, subject{"farcall.Pipe", func() (*running, error) {
					s, err := joinFarcallPipe()
					return s.running(), err
				}})
			}
			groups = append(groups, g)
		}
	}
	return groups
}

const inFlight = 64

func callGroup(channel string, workers int) string {
	if workers == 1 {
		return "call over " + channel + ", sequential"
	}
	return fmt.Sprintf("call over %s, %d in flight", channel, workers)
}

func startPeer(ch channel, p peer) (*running, error) {
	client, server, err := ch.open()
	if err != nil {
		return nil, err
	}
	s, err := p.join(client, server)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return s.running(), nil
}

// running makes n calls and checks that each was answered.
func (s *session) running() *running {
	if s == nil {
		return nil
	}
	worker := func() func(int) error {
		call := s.caller()
		return func(n int) error {
			for range n {
				res, err := call()
				if err != nil {
					return err
				}
				if len(res) != len(echoParams) && len(res) != len(echoLine) {
					return fmt.Errorf("the answer is %q, want %q", res, echoParams)
				}
			}
			return nil
		}
	}
	return &running{worker: worker, stop: s.close}
}

// shared makes a session of a client that any number of goroutines can use.
func shared(
	call func(ctx context.Context, params, result *json.RawMessage) error, closeAll func(),
) *session {
	ctx := context.Background()
	return &session{
		caller: func() func() ([]byte, error) {
			params, res := json.RawMessage(echoParams), json.RawMessage(nil)
			return func() ([]byte, error) {
				err := call(ctx, &params, &res)
				return res, err
			}
		},
		close: closeAll,
	}
}

// A floor is the least that a connection with many callers can be: one write
// for each line, a goroutine that reads, and callers that wait for it in the
// order in which they wrote.
type floor struct {
	conn end

	mu      sync.Mutex // held while a line is written, so that the queue has the order of the lines
	waiting chan chan []byte
}

func joinFloor(client, server end) (*session, error) {
	go echoBack(server)
	f := &floor{conn: client, waiting: make(chan chan []byte, 1024)}
	go f.read()
	return &session{
		caller: func() func() ([]byte, error) {
			answer, line := make(chan []byte, 1), []byte(echoLine)
			return func() ([]byte, error) { return f.call(line, answer) }
		},
		close: func() { client.Close(); server.Close() },
	}, nil
}

func echoBack(server end) {
	in := bufio.NewReader(server)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if _, err := server.Write(line); err != nil {
			return
		}
	}
}

func (f *floor) read() {
	in, want := bufio.NewReader(f.conn), []byte(echoLine)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return
		}
		if !bytes.Equal(line, want) {
			line = nil
		} else {
			line = want
		}
		(<-f.waiting) <- line
	}
}

func (f *floor) call(line []byte, answer chan []byte) ([]byte, error) {
	f.mu.Lock()
	f.waiting <- answer
	_, err := f.conn.Write(line)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if got := <-answer; got != nil {
		return got, nil
	}
	return nil, errors.New("the line came back changed")
}

// joinBareFloor is the floor for one caller that needs no others: it reads its
// answer itself, so it receives nothing while it does not ask.
func joinBareFloor(client, server end) (*session, error) {
	go echoBack(server)
	in := bufio.NewReader(client)
	var mu sync.Mutex
	return &session{
		caller: func() func() ([]byte, error) {
			line := []byte(echoLine)
			return func() ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if _, err := client.Write(line); err != nil {
					return nil, err
				}
				return in.ReadSlice('\n')
			}
		},
		close: func() { client.Close(); server.Close() },
	}, nil
}

// jrpc2Methods is jrpc2's echo, for streams and HTTP.
var jrpc2Methods = handler.Map{"echo": func(_ context.Context, req *jrpc2.Request) (any, error) {
	var params json.RawMessage
	err := req.UnmarshalParams(&params)
	return params, err
}}

func joinJRPC2(client, server end) (*session, error) {
	s := jrpc2.NewServer(jrpc2Methods, nil).Start(jchannel.Line(server, server))
	c := jrpc2.NewClient(jchannel.Line(client, client), nil)
	return shared(func(ctx context.Context, params, result *json.RawMessage) error {
		return c.CallResult(ctx, "echo", *params, result)
	}, func() { c.Close(); s.Stop() }), nil
}

func sourcegraphEcho(
	_ context.Context, _ *sourcegraph.Conn, req *sourcegraph.Request,
) (any, error) {
	return req.Params, nil
}

func joinSourcegraph(client, server end) (*session, error) {
	ctx := context.Background()
	s := sourcegraph.NewConn(ctx, sourcegraph.NewPlainObjectStream(server),
		sourcegraph.HandlerWithError(sourcegraphEcho))
	c := sourcegraph.NewConn(ctx, sourcegraph.NewPlainObjectStream(client),
		sourcegraph.HandlerWithError(sourcegraphEcho))
	return shared(func(ctx context.Context, params, result *json.RawMessage) error {
		return c.Call(ctx, "echo", *params, result)
	}, func() { c.Close(); s.Close() }), nil
}

// gethService has geth's echo: its method is called bench_echo, and its
// parameters are always positional.
type gethService struct{}

func (gethService) Echo(params json.RawMessage) json.RawMessage { return params }

func gethServer() (*geth.Server, error) {
	s := geth.NewServer()
	return s, s.RegisterName("bench", gethService{})
}

func joinGeth(client, server end) (*session, error) {
	s, err := gethServer()
	if err != nil {
		return nil, err
	}
	go s.ServeCodec(geth.NewCodec(server), 0)
	c, err := geth.DialIO(context.Background(), io.Reader(client), io.Writer(client))
	if err != nil {
		return nil, err
	}
	return shared(func(ctx context.Context, params, result *json.RawMessage) error {
		return c.CallContext(ctx, result, "bench_echo", *params)
	}, func() {
		client.Close()
		c.Close() // DialIO's client waits for the end of what it was given
		s.Stop()
	}), nil
}
