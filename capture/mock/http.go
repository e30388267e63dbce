package mock

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	maxBody       = 50 << 20 // bytes of a request
	maxSessions   = 1024
	headerSession = "Mcp-Session-Id"
)

// Speaks reports whether the script answers a client that begins with this frame as it is: the
// client speaks a revision of MCP that the capture has, or the capture is not one of MCP.
func (s *Script) Speaks(frame []byte) bool {
	m := parse(frame)
	return !s.MCP || s.revisions[string(m.revision())]
}

// Handler answers requests of HTTP with the frames of the capture. Those of clients that the script
// does not speak to go to next. It does not look at the host and the origin of a request.
func (s *Script) Handler(next http.Handler, o *Options) http.Handler {
	sessions := share.NewTable[string, *player](share.Bounds{Total: maxSessions})
	return &handler{script: s, next: next, o: o, alone: newPlayer(s, o), sessions: sessions}
}

type handler struct {
	script *Script
	next   http.Handler
	o      *Options
	alone  *player // of requests without a session

	mu       sync.Mutex
	sessions *share.Table[string, *player] // by the address of the client
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	session := r.Header.Get(headerSession)
	h.mu.Lock()
	p, _, _ := h.sessions.Get(session)
	if p != nil && r.Method == http.MethodDelete {
		h.sessions.Remove(session)
	}
	h.mu.Unlock()
	switch {
	case r.Method == http.MethodPost:
		h.post(w, r, p)
	case p == nil:
		h.next.ServeHTTP(w, r)
	case r.Method != http.MethodDelete: // what the server sent is sent with answers
		w.Header().Set("Allow", "POST, DELETE")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

func (h *handler) post(w http.ResponseWriter, r *http.Request, p *player) {
	frame, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if p == nil && !h.script.Speaks(frame) {
		r.Body = io.NopCloser(bytes.NewReader(frame))
		h.next.ServeHTTP(w, r)
		return
	}
	m := parse(frame)
	if p == nil {
		p = h.alone
		if m.method == methodInitialize {
			p = h.begin(w.Header(), r.RemoteAddr)
		}
	}
	a := &reply{w: w, events: strings.Contains(r.Header.Get("Accept"), "text/event-stream")}
	answered := make(chan struct{})
	p.frame(r.Context(), frame, a.write, func() { close(answered) })
	<-answered
	if !a.begun {
		w.WriteHeader(http.StatusAccepted)
	}
}

// begin begins a session. When there are too many, the address that has most loses its oldest.
func (h *handler) begin(header http.Header, address string) *player {
	p, id := newPlayer(h.script, h.o), rand.Text()
	header.Set(headerSession, id)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions.Put(owner.Address(address), id, p, 1)
	return p
}

// reply is the answer to one request: an event stream when something comes before the answer, and
// the client takes that.
type reply struct {
	w      http.ResponseWriter
	events bool

	mu    sync.Mutex
	begun bool
}

func (a *reply) write(frame []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := parse(frame)
	switch {
	case m.method != "" && !a.events:
		return
	case m.method == "" && !a.begun:
		a.w.Header().Set("Content-Type", "application/json")
		_, _ = a.w.Write(frame) //nolint:gosec // it is JSON; an error says that the client is gone
	default:
		a.w.Header().Set("Content-Type", "text/event-stream") // later ones have no effect
		event := append([]byte("data: "), bytes.ReplaceAll(frame, []byte("\n"), []byte("\ndata: "))...)
		_, _ = a.w.Write(append(event, "\n\n"...))  //nolint:gosec // as above
		_ = http.NewResponseController(a.w).Flush() // as above
	}
	a.begun = true
}

// newPlayer returns a player of a script without a connection.
func newPlayer(s *Script, o *Options) *player {
	p := &player{
		script: s, next: map[string]int{},
		asked: map[string]chan struct{}{}, running: map[string]context.CancelFunc{},
	}
	p.o = *cmp.Or(o, &Options{})
	return p
}
