package fault

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A port is one end of a connection, as the other end of it sees us.
type port interface {
	// read returns the next frame, which is the caller's.
	read() ([]byte, error)
	// write sends one frame in pieces, with pauses between them.
	write(ctx context.Context, pause time.Duration, pieces ...[]byte) error
	// half sends the beginning of a frame, and close must follow.
	half(part []byte) error
	// reset closes without good manners, where the transport can.
	reset()
	close()
}

// errEnded ends a connection on purpose.
var errEnded = errors.New("fault: the connection was ended")

// A channel is one direction of a connection.
type channel struct {
	in      *Injector
	number  int
	to      Direction
	decider *decider
	calls   *calls
	out     port
	// turns is of HTTP, where each frame has its own place: what comes late is waited for.
	turns *turns
	wg    *sync.WaitGroup

	mu     sync.Mutex // of what follows, and of writing
	frames int
	silent bool
	held   []byte // is sent after the next frame
	lastID jsonrpc.Raw
}

// calls remembers the methods of requests until their answers come.
type calls struct {
	mu      sync.Mutex
	methods map[string]string // by direction and id
}

const maxCalls = 10000 // that are remembered

func (c *calls) add(to Direction, id, method string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.methods) < maxCalls {
		c.methods[to.String()+id] = method
	}
}

func (c *calls) take(asked Direction, id string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := asked.String() + id
	method := c.methods[key]
	delete(c.methods, key)
	return method
}

// look says what a frame is.
func (l *channel) look(frame []byte) (k Kind, m jsonrpc.Message, method string) {
	var dec jsonrpc.Decoder
	var batch jsonrpc.Batch
	if dec.Decode(frame, &batch) != nil || len(batch.Messages) == 0 {
		return Any, m, ""
	}
	m = batch.Messages[0]
	if batch.Array {
		m.Raw = nil // faults that change a message leave a batch alone
	}
	switch m.Kind {
	case jsonrpc.Request:
		l.calls.add(l.to, string(m.ID.Raw()), string(m.Method))
		return Request, m, string(m.Method)
	case jsonrpc.Notification:
		return Notification, m, string(m.Method)
	case jsonrpc.Response:
		return Answer, m, l.calls.take(1-l.to, string(m.ID.Raw()))
	}
	return Any, m, string(m.Method)
}

// pass sends a frame on, with its faults. errEnded says that the connection is to be closed.
func (l *channel) pass(ctx context.Context, frame []byte) error {
	k, m, method := l.look(frame)
	rules := l.decider.decide(l.to, k, method)
	id := jsonrpc.Raw(nil)
	if m.Kind == jsonrpc.Request || m.Kind == jsonrpc.Response {
		id = m.ID.Raw()
	}
	l.mu.Lock()
	l.frames++
	n := l.frames
	last := l.lastID
	if id != nil {
		l.lastID = append(jsonrpc.Raw(nil), id...)
	}
	silent := l.silent
	l.mu.Unlock()
	if silent {
		return l.lost(ctx)
	}
	d := delivery{frame: frame, pieces: [][]byte{frame}}
	for _, r := range rules {
		if f := l.in.opts.OnFault; f != nil {
			f(Event{
				Connection: l.number, Fault: r.Fault, To: l.to, Frame: n, Method: method, ID: string(id),
			})
		}
		if done, err := l.apply(ctx, r, &m, last, &d); done {
			return err
		}
	}
	return l.deliver(ctx, &d)
}

// A delivery is what becomes of a frame.
type delivery struct {
	frame  []byte
	pieces [][]byte // of frame
	before []byte   // a frame that comes first
	pause  time.Duration
	twice  bool
	late   time.Duration // the frame alone
	hold   time.Duration // until the next frame, at most
	after  time.Duration // nothing is read for so long
}

func (d *delivery) change(frame []byte) { d.frame, d.pieces = frame, [][]byte{frame} }

// apply applies a rule. done: nothing is to be delivered.
func (l *channel) apply(ctx context.Context, r *Rule, m *jsonrpc.Message, last jsonrpc.Raw,
	d *delivery,
) (done bool, err error) {
	switch r.Fault {
	case "delay":
		return backoff.Sleep(ctx, r.Delay) != nil, ctx.Err()
	case "late":
		d.late = r.Delay
	case "reorder":
		d.hold = r.Delay
	case "drop":
		return true, l.lost(ctx)
	case "silence":
		l.mu.Lock()
		l.silent = true
		l.mu.Unlock()
		return true, l.lost(ctx)
	case "duplicate":
		d.twice = true
	case "garbage":
		d.before = l.decider.garbage(r.Size)
	case "split":
		d.pieces, d.pause = split(d.frame, r.Size), r.Delay
	case "slow":
		d.after = r.Delay
	case "half":
		_ = l.out.half(d.frame[:len(d.frame)/2]) // it ends anyway
		return true, errEnded
	case "close":
		return true, errEnded
	case "reset":
		l.out.reset()
		return true, errEnded
	default:
		d.change(l.rewrite(r, m, last, d.frame))
	}
	return false, nil
}

// lost is for a frame that does not come. Over HTTP its request waits for as long as the client
// does.
func (l *channel) lost(ctx context.Context) error {
	if l.turns != nil {
		<-ctx.Done()
	}
	return nil
}

// deliver sends a frame.
func (l *channel) deliver(ctx context.Context, d *delivery) error {
	wait := max(d.late, d.hold)
	switch {
	case wait == 0:
		return l.send(ctx, d)
	case l.turns != nil && d.late > 0:
		if backoff.Sleep(ctx, d.late) != nil {
			return ctx.Err()
		}
		return l.send(ctx, d)
	case l.turns != nil:
		l.turns.wait(ctx, d.hold)
		return l.send(ctx, d)
	}
	if d.hold > 0 {
		l.mu.Lock()
		l.held = d.frame
		l.mu.Unlock()
	}
	l.wg.Go(func() {
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
		if d.late > 0 {
			_ = l.send(ctx, d) // a connection that has ended meanwhile shows when it is read
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		_ = l.release(ctx)
	})
	return nil
}

// turns lets an answer of HTTP wait for another one.
type turns struct {
	mu   sync.Mutex
	next chan struct{} // closed when another frame was sent
}

// wait waits for another frame to be sent.
func (t *turns) wait(ctx context.Context, most time.Duration) {
	t.mu.Lock()
	if t.next == nil {
		t.next = make(chan struct{})
	}
	next := t.next
	t.mu.Unlock()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-next:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (t *turns) sent() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next != nil {
		close(t.next)
		t.next = nil
	}
}

// send writes what is to be sent.
func (l *channel) send(ctx context.Context, d *delivery) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.before != nil {
		if err := l.out.write(ctx, 0, d.before); err != nil {
			return err
		}
	}
	for range 2 {
		if err := l.out.write(ctx, d.pause, d.pieces...); err != nil {
			return err
		}
		if !d.twice {
			break
		}
	}
	if l.turns != nil {
		l.turns.sent()
	}
	err := l.release(ctx)
	if err == nil && backoff.Sleep(ctx, d.after) != nil {
		err = ctx.Err()
	}
	return err
}

// release sends the frame that is held, with l.mu held.
func (l *channel) release(ctx context.Context) error {
	if l.held == nil {
		return nil
	}
	frame := l.held
	l.held = nil
	return l.out.write(ctx, 0, frame)
}

// join copies frames between two ports until one of them ends.
func (in *Injector) join(ctx context.Context, client, server port) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	number := int(in.sessions.Add(1))
	var wg sync.WaitGroup
	known := &calls{methods: map[string]string{}}
	ends := make(chan error, 2)
	pump := func(to Direction, from, out port) {
		l := &channel{
			in: in, number: number, to: to, decider: in.decider(number, to), calls: known, out: out, wg: &wg,
		}
		for {
			frame, err := from.read()
			if err == nil {
				err = l.pass(ctx, frame)
			}
			if err != nil {
				ends <- err
				return
			}
		}
	}
	wg.Go(func() { pump(ToServer, client, server) })
	wg.Go(func() { pump(ToClient, server, client) })
	var err error
	select {
	case err = <-ends:
	case <-ctx.Done():
		err = ctx.Err()
	}
	cancel()
	client.close()
	server.close()
	wg.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, errEnded) {
		return nil
	}
	return err
}

// Proxy copies frames between two byte streams until one of them ends or the context does, and
// closes both. Frames are lines, or with headers what Content-Length says.
func (in *Injector) Proxy(ctx context.Context, client, server io.ReadWriteCloser,
	headers bool,
) error {
	return in.join(ctx, in.bytePort(client, headers), in.bytePort(server, headers))
}

func (in *Injector) bytePort(c io.ReadWriteCloser, headers bool) *bytePort {
	return &bytePort{
		c: c, in: bufio.NewReaderSize(c, 64<<10), headers: headers, most: in.opts.MaxFrame,
	}
}

// A bytePort is a byte stream.
type bytePort struct {
	c       io.ReadWriteCloser
	in      *bufio.Reader
	headers bool
	most    int
	once    sync.Once
}

func (p *bytePort) read() ([]byte, error) {
	if p.headers {
		return p.readHeaders()
	}
	var frame []byte
	for {
		part, err := p.in.ReadSlice('\n')
		if len(frame)+len(part) > p.most {
			return nil, fmt.Errorf("fault: a frame of more than %d bytes", p.most)
		}
		frame = append(frame, part...)
		if err == bufio.ErrBufferFull { //nolint:errorlint // it is returned as it is
			continue
		}
		line := bytes.TrimRight(frame, "\r\n")
		if len(line) > 0 && (err == nil || err == io.EOF) {
			return line, nil
		}
		if err != nil {
			return nil, err
		}
		frame = frame[:0]
	}
}

func (p *bytePort) readHeaders() ([]byte, error) {
	header, err := textproto.NewReader(p.in).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil || n < 0 || n > p.most {
		return nil, fmt.Errorf("fault: Content-Length %q: a number up to %d is needed",
			header.Get("Content-Length"), p.most)
	}
	frame := make([]byte, n)
	_, err = io.ReadFull(p.in, frame)
	return frame, err
}

func (p *bytePort) write(ctx context.Context, pause time.Duration, pieces ...[]byte) error {
	total := 0
	for _, piece := range pieces {
		total += len(piece)
	}
	for i, piece := range pieces {
		if i > 0 && backoff.Sleep(ctx, pause) != nil {
			return ctx.Err()
		}
		if i == 0 && p.headers {
			piece = append(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", total), piece...)
		}
		if i == len(pieces)-1 && !p.headers {
			piece = append(slices.Clip(piece), '\n')
		}
		if _, err := p.c.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

func (p *bytePort) half(part []byte) error {
	if p.headers {
		part = append(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n", 2*len(part)+1), part...)
	}
	_, err := p.c.Write(part)
	return err
}

// reset makes the kernel send a reset in place of an orderly end, on TCP.
func (p *bytePort) reset() {
	if tcp, ok := p.c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // then the close resets
	}
	p.close()
}

func (p *bytePort) close() { p.once.Do(func() { _ = p.c.Close() }) }
