package inspect

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/mock"
	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A ticket lets one HTTP request of the page through, which cannot show the token: a download or
// an upload. It is good once, for a minute.
type tickets struct {
	mu   sync.Mutex
	open map[string]ticket
}

type ticket struct {
	of      *Inspector // of the page
	expires time.Time
	save    *saveParams
	open    *openParams
}

const (
	ticketTime = time.Minute
	maxTickets = 64
	// maxUpload bounds a capture that a page sends.
	maxUpload = 8 << 30
)

type ticketResult struct {
	Ticket string `json:"ticket"`
	Name   string `json:"name,omitzero"`
}

func (t *tickets) add(one *ticket) (*ticketResult, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for key, old := range t.open {
		if now.After(old.expires) {
			delete(t.open, key)
		}
	}
	if len(t.open) >= maxTickets {
		return nil, jsonrpc.Errorf(
			jsonrpc.InvalidRequest, "too many files are about to be opened or saved")
	}
	one.expires = now.Add(ticketTime)
	key := rand.Text()
	t.open[key] = *one
	return &ticketResult{Ticket: key}, nil
}

// take returns a ticket and makes it void.
func (t *tickets) take(key string) (one ticket, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok = t.open[key]
	delete(t.open, key)
	return one, ok && time.Now().Before(one.expires)
}

type saveParams struct {
	Conn   int      `json:"conn,omitzero"` // 0: all servers
	Filter string   `json:"filter,omitzero"`
	Seqs   []uint64 `json:"seqs,omitzero" maxItems:"1000"` // only these frames
	Raw    bool     `json:"raw,omitzero"`                  // keeps secrets
}

// save prepares the download of a capture.
func (i *Inspector) save(_ context.Context, p saveParams) (*ticketResult, error) {
	if _, err := traffic.Parse(p.Filter); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%s", err.Error())
	}
	r, err := i.tickets.add(&ticket{of: i, save: &p})
	if err == nil {
		r.Name = "farcall-" + time.Now().Format("20060102-150405") + ".jsonl"
	}
	return r, err
}

type openParams struct {
	Name string `json:"name" maxLength:"200"`
}

// openFile prepares the upload of a capture.
func (i *Inspector) openFile(_ context.Context, p openParams) (*ticketResult, error) {
	return i.tickets.add(&ticket{of: i, open: &p})
}

// serveTicket serves a download or an upload.
func (i *Inspector) serveTicket(w http.ResponseWriter, r *http.Request, path string) {
	t, ok := i.tickets.take(r.URL.Query().Get("ticket"))
	switch {
	case ok && path == "save" && t.save != nil && r.Method == http.MethodGet:
		h := w.Header()
		h.Set("Content-Type", "application/x-ndjson")
		h.Set("Content-Disposition", "attachment")
		h.Set("Cache-Control", "no-store")
		if err := t.of.write(r.Context(), w, t.save); err != nil {
			i.opts.Logger.Warn("a capture was not saved", "error", err)
			panic(http.ErrAbortHandler) //nolint:forbidigo // so the browser sees that it is not whole
		}
	case ok && path == "open" && t.open != nil && r.Method == http.MethodPost:
		t.of.upload(w, r, t.open.Name)
	default:
		const used = "This link is good once, for a minute. Begin again in the page."
		http.Error(w, used, http.StatusForbidden)
	}
}

// upload shows a capture that a page sends.
func (i *Inspector) upload(w http.ResponseWriter, r *http.Request, name string) {
	in, err := capture.NewReader(http.MaxBytesReader(w, r.Body, maxUpload))
	if err != nil {
		why := "This is not a capture: " + shorten(err.Error(), 1000)
		http.Error(w, why, http.StatusUnprocessableEntity)
		return
	}
	defer in.Close() //nolint:errcheck // it was only read
	x, err := i.add(&Server{Name: name, Capture: name})
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	x.mu.Lock()
	x.sent = true
	x.setLocked(stateConnecting, "")
	x.mu.Unlock()
	if err := x.load(r.Context(), in); err != nil {
		x.mu.Lock()
		x.setLocked(stateFailed, err.Error())
		x.mu.Unlock()
		http.Error(w, shorten(err.Error(), 1000), http.StatusUnprocessableEntity)
		return
	}
	fmt.Fprint(w, x.id)
}

// write writes what was seen as a capture.
func (i *Inspector) write(ctx context.Context, out io.Writer, p *saveParams) error {
	f, err := traffic.Parse(p.Filter)
	if err != nil {
		return err
	}
	s := saver{i: i, conns: map[savedConn]uint64{}}
	s.r, err = capture.New(&capture.Options{
		Out: out, Raw: p.Raw, MaxFrame: maxSavedFrame, Buffer: savedBuffer, Began: i.began,
		Program: "farcall inspect",
	})
	if err != nil {
		return err
	}
	first, next := i.store.First()
	for from := first; from < next && ctx.Err() == nil; {
		size := 0
		from = i.store.Rows(from, filterPart, func(row *traffic.Row, raw []byte) bool {
			if p.has(row) && f.Match(row, raw) {
				s.put(row, raw)
				size += len(raw) + 1024
			}
			return size < savedBuffer/2-maxSavedFrame
		})
		if err := s.r.Flush(); err != nil {
			break // Close returns it
		}
	}
	err = s.r.Close()
	if n := s.r.Dropped(); n > 0 && err == nil {
		err = fmt.Errorf("%d frames could not be written", n)
	}
	return errors.Join(err, ctx.Err())
}

const (
	maxSavedFrame = 16 << 20
	savedBuffer   = 64 << 20
)

// has reports whether a row is to be saved: what passed on a connection of the page.
func (p *saveParams) has(row *traffic.Row) bool {
	if row.Kind == traffic.Note || row.Hop || p.Conn != 0 && row.Conn != p.Conn {
		return false
	}
	return len(p.Seqs) == 0 || slices.Contains(p.Seqs, row.Seq) || slices.Contains(p.Seqs, row.Ref)
}

// A saver gives frames of the traffic to a recorder.
type saver struct {
	i     *Inspector
	r     *capture.Recorder
	conns map[savedConn]uint64
}

type savedConn struct {
	conn int
	part uint64
}

// put writes a frame. Over HTTP all exchanges with a server are one connection.
func (s *saver) put(row *traffic.Row, raw []byte) {
	key := savedConn{row.Conn, row.Link}
	exchange := uint64(0)
	about := &capture.Record{Transport: "other"}
	if x, err := s.i.slot(row.Conn); err == nil {
		x.mu.Lock()
		about.Label, about.Command = x.server.name(), x.server.Command
		if x.mcp != nil {
			about.Era = x.mcp.Server().Revision
		}
		t, err := x.server.target()
		x.mu.Unlock()
		switch {
		case err == nil && t != nil && t.Kind == target.HTTP:
			about.Transport, key.part, exchange = "http", 0, row.Link
		case len(about.Command) > 0:
			about.Transport = "stdio"
		}
	}
	switch {
	case row.Part&ofCall != 0:
		key.part, exchange = 0, row.Link
	case row.Part != 0:
		if key.part = row.Part; row.Link != row.Part {
			exchange = row.Link
		}
	}
	conn, ok := s.conns[key]
	if !ok {
		conn = s.r.Connect(about)
		s.conns[key] = conn
	}
	s.r.FrameAt(conn, exchange, row.Dir == '>', raw, time.UnixMicro(row.Time))
}

type mockParams struct {
	Conn   int    `json:"conn"`
	Filter string `json:"filter,omitzero"`
}

// mock offers a server that answers as one has answered so far.
func (i *Inspector) mock(ctx context.Context, p mockParams) (*serverView, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	in, out := io.Pipe()
	i.tasks.Go(func() {
		err := i.write(ctx, out, &saveParams{Conn: p.Conn, Filter: p.Filter, Raw: true})
		_ = out.CloseWithError(err) // it returns nil
	})
	defer in.Close() //nolint:errcheck // it returns nil
	r, err := capture.NewReader(in)
	if err != nil {
		return nil, public(err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	script, err := mock.Load(r, &mock.Part{Redacted: true})
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "%s", shorten(err.Error(), 1000))
	}
	s := &Server{
		Name: "mock of " + strings.TrimPrefix(x.view().Name, "mock of "), Protocol: protocolRPC,
		Dial: func(context.Context) (farcall.Transport, error) {
			near, far := farcall.Pipe()
			i.tasks.Go(func() { _ = script.Serve(i.ctx, far, nil) }) // it ends with the connection
			return near, nil
		},
	}
	if script.MCP {
		s.Protocol = protocolMCP
	}
	return i.offer(s, nil)
}
