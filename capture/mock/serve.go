package mock

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// maxCalls bounds the calls that one connection may have in flight.
const maxCalls = 1024

// Options adjust a server. Nil means the defaults.
type Options struct {
	// Pace answers as slowly as the server of the capture did.
	Pace bool
}

// Serve answers the requests of one connection until it ends. It closes the transport.
func (s *Script) Serve(ctx context.Context, t farcall.Transport, o *Options) error {
	ctx, cancel := context.WithCancel(ctx)
	c := newPlayer(s, o)
	c.t = t
	stop := context.AfterFunc(ctx, func() { _ = t.Close() }) // Read reports it
	err := c.read(ctx)
	cancel()
	stop()
	c.calls.Wait()
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, t.Close())
}

// player plays a script for one client.
type player struct {
	script *Script
	o      Options
	t      farcall.Transport // nil: it is HTTP
	calls  sync.WaitGroup

	writing sync.Mutex

	mu      sync.Mutex
	next    map[string]int           // by key: which answer is the next one
	asked   map[string]chan struct{} // questions by their id
	count   int                      // of questions with an id of ours
	running map[string]context.CancelFunc
}

func (c *player) read(ctx context.Context) error {
	for {
		frame, err := c.t.Read()
		if refused := new(jsonrpc.Error); errors.As(err, &refused) {
			c.write(errorAnswer([]byte("null"), refused.Code, refused.Message))
			continue
		}
		if err != nil {
			c.mu.Lock()
			idle := len(c.running) == 0
			c.mu.Unlock()
			if half, ok := errors.AsType[interface {
				error
				HalfClosed() bool
			}](err); ok && half.HalfClosed() && !idle {
				c.finish()
			}
			return err
		}
		c.frame(ctx, bytes.Clone(frame), c.write, func() {})
	}
}

// finish waits for the calls of a client that has closed its side, which answers no question any
// more.
func (c *player) finish() {
	c.mu.Lock()
	for id, answered := range c.asked {
		close(answered)
		delete(c.asked, id)
	}
	c.mu.Unlock()
	c.calls.Wait()
}

// frame handles a frame. Answers go to write; done is called when there are no more.
func (c *player) frame(ctx context.Context, frame []byte, write func([]byte), done func()) {
	if isBatch(frame) {
		c.batch(ctx, frame, write, done)
	} else {
		c.message(ctx, frame, write, done)
	}
}

// batch answers a batch with one.
func (c *player) batch(ctx context.Context, frame []byte, write func([]byte), done func()) {
	var (
		mu      sync.Mutex
		all     [][]byte
		pending sync.WaitGroup
	)
	for element := range scan.Elements(frame) {
		pending.Add(1)
		c.message(ctx, element, func(answer []byte) {
			if parse(answer).method != "" {
				write(answer)
				return
			}
			mu.Lock()
			all = append(all, answer)
			mu.Unlock()
		}, pending.Done)
	}
	c.calls.Go(func() {
		defer done()
		pending.Wait()
		if len(all) > 0 {
			write(append(append([]byte("["), bytes.Join(all, []byte(","))...), ']'))
		}
	})
}

// message handles one message.
func (c *player) message(ctx context.Context, data []byte, write func([]byte), done func()) {
	m := parse(data)
	if m.method != "" && m.id != nil {
		c.request(ctx, &m, write, done)
		return
	}
	defer done()
	switch {
	case m.id != nil:
		c.answered(string(m.id))
	case m.method == methodCancelled:
		c.mu.Lock()
		if cancel := c.running[string(at(data, "params", "requestId"))]; cancel != nil {
			cancel()
		}
		c.mu.Unlock()
	}
}

func (c *player) request(ctx context.Context, m *message, write func([]byte), done func()) {
	x := c.pick(m)
	if x == nil {
		defer done()
		switch others := c.script.methods[m.method]; {
		case m.method == methodPing:
			write(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{}}`, m.id))
		case others == 0:
			write(errorAnswer(m.id, jsonrpc.MethodNotFound, "the capture has no call of "+m.method))
		default:
			write(errorAnswer(m.id, jsonrpc.InvalidParams, fmt.Sprintf(
				"the capture has no call of %s with these params; it has %d with others",
				m.method, others)))
		}
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	c.mu.Lock()
	full := len(c.running) >= maxCalls
	if !full {
		c.running[string(m.id)] = cancel
	}
	c.mu.Unlock()
	if full {
		cancel()
		defer done()
		write(errorAnswer(m.id, jsonrpc.InternalError, "too many calls are in flight"))
		return
	}
	c.calls.Go(func() {
		defer done()
		defer cancel()
		defer func() {
			c.mu.Lock()
			delete(c.running, string(m.id))
			c.mu.Unlock()
		}()
		c.play(ctx, x, m, write)
	})
}

// pick returns the next answer to a request; the last one is repeated.
func (c *player) pick(m *message) *exchange {
	key := m.key()
	all := c.script.calls[key]
	if all == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := min(c.next[key], len(all)-1)
	c.next[key] = i + 1
	return all[i]
}

// play sends what the server sent.
func (c *player) play(ctx context.Context, x *exchange, m *message, write func([]byte)) {
	token := m.token()
	for _, s := range x.steps {
		switch {
		case ctx.Err() != nil:
			return
		case s.question:
			if !c.ask(ctx, s.frame, write) {
				return
			}
		case s.progress && token == nil:
		case s.progress:
			write(replace(s.frame, token, "params", "progressToken"))
		default:
			write(s.frame)
		}
	}
	if c.o.Pace && x.delay > 0 {
		select {
		case <-time.After(time.Duration(x.delay)):
		case <-ctx.Done():
			return
		}
	}
	if ctx.Err() == nil {
		write(replace(x.response, m.id, "id"))
	}
}

// ask asks the client, and waits for its answer. The question has the id of the capture, unless
// that is in use.
func (c *player) ask(ctx context.Context, frame []byte, write func([]byte)) bool {
	id := at(frame, "id")
	answered := make(chan struct{})
	c.mu.Lock()
	if c.asked[string(id)] != nil {
		c.count++
		id = []byte(strconv.Quote("mock-" + strconv.Itoa(c.count)))
	}
	c.asked[string(id)] = answered
	c.mu.Unlock()
	write(replace(frame, id, "id"))
	select {
	case <-answered:
		return true
	case <-ctx.Done():
		return false
	}
}

func (c *player) answered(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answered := c.asked[id]; answered != nil {
		close(answered)
		delete(c.asked, id)
	}
}

// write writes a frame. When that fails, Read fails, too.
func (c *player) write(frame []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.t.Write(frame); err != nil {
		_ = c.t.Close() // it is of no use
	}
}

func errorAnswer(id []byte, code jsonrpc.Code, text string) []byte {
	dst := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":`, id, code)
	return append(scan.AppendQuoted(dst, text), "}}"...)
}
