package mcphttp

import (
	"encoding/base64"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/slow"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// maxOwn bounds the streams that one client opens with GET.
	maxOwn = 16
	// maxStreams is how many numbers a process has for the streams of a session.
	maxStreams = 1 << 20
)

var (
	errNotKept  = errors.New("the client is not connected, and nothing is kept for it")
	errNoEvents = errors.New("no events to replay")
)

// stream is one sequence of messages to a client. It outlives the connections
// that carry it, one at a time: what is sent while there is none, or is lost
// with one, is in the event store.
type stream struct {
	s         *session
	accept    accepts // of the call that is answered on it
	connected atomic.Bool
	call      jsonrpc.ID // that is answered on it, where it may be asked for at another replica

	mu sync.Mutex
	// 0 until the first event; event 7 of stream 3 has the id "3-7". Changed with both locks held.
	id    uint64
	conn  *events // nil: none at the moment
	last  uint64  // the last event
	sent  uint64  // the last event that a connection has taken
	ended bool
	past  bool // it has ended, and what is not in the store is not known
	lost  bool // it was another process's: whether its call was answered is not known
}

// name notes which call is answered on the stream.
func (st *stream) name(call jsonrpc.ID) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.id == 0 {
		st.call = call
	}
}

// push sends a message of the call that is answered on the stream. It reports
// false when the stream cannot carry it: the client reads no event streams, has
// gone before there was one, or the call has been answered.
func (st *stream) push(frame []byte) (taken bool, err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.accept&acceptsEvents == 0 || !st.begin() {
		return false, nil
	}
	return true, st.write(frame)
}

// send sends a message on a stream that is no call's.
func (st *stream) send(frame []byte) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended {
		return errSessionEnded
	}
	return st.write(frame)
}

// begin makes the answer of a call a stream. It reports false when it is too
// late for that.
func (st *stream) begin() bool {
	if st.ended || st.id == 0 && st.conn == nil {
		return false
	}
	if st.id > 0 {
		return true
	}
	if !st.s.named() { // its headers would come too early
		return false
	}
	st.s.number(st)
	st.call = st.call.Clone() // the stream outlives the request
	if rev := st.s.revision(); rev != nil && rev.PollingStreams {
		st.check(st.conn.prime(st.eventID(0)))
	}
	return true
}

// write keeps a message and sends it, when the client is connected.
func (st *stream) write(frame []byte) error {
	if st.s.only != nil {
		if st.conn == nil {
			return errNotKept
		}
		return st.conn.event(sse.Event{Type: "message", Data: frame})
	}
	st.last++
	kept := st.keep(frame)
	if st.conn == nil {
		st.s.missed()
		return kept
	}
	if err := st.conn.event(st.event(st.last, frame)); err != nil {
		st.check(err)
		st.s.missed()
		return kept
	}
	st.sent = st.last
	return nil
}

// keep keeps the last message for a client that comes back.
func (st *stream) keep(frame []byte) error {
	o, group := &st.s.h.opts, st.s.owner.Group().Text()
	if o.SharedEvents != nil && st.s.isSealed() {
		if err := o.SharedEvents.Append(group, st.s.key, st.id, st.last, frame); err != nil {
			st.s.h.debug("an event is not shared with the other replicas", "error", err)
		}
	}
	return o.Events.Append(group, st.s.key, st.id, st.last, frame)
}

func (st *stream) event(n uint64, data []byte) sse.Event {
	ev := sse.Event{Data: data}
	if rev := st.s.revision(); rev != nil && rev.ResumableStreams {
		ev.ID = st.eventID(n)
	}
	return ev
}

// open makes the answer of a call a stream, if it can be one, because it is long
// in coming.
func (st *stream) open() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.begin() && st.conn != nil {
		st.check(st.conn.open())
	}
}

// check lets go of a connection that has failed.
func (st *stream) check(err error) {
	if err != nil {
		st.drop()
	}
}

// drop lets go of the connection.
func (st *stream) drop() {
	if st.conn != nil {
		st.conn.end()
		st.conn = nil
	}
	st.connected.Store(false)
}

// answer ends the stream with the answer of the call: plain JSON when nothing
// was sent before it.
func (st *stream) answer(status int, frame []byte) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.id > 0:
		if err := st.write(frame); err != nil {
			st.s.h.debug("lost an answer: the client has gone, and it cannot be kept", "error", err)
		}
	case st.conn == nil:
		st.s.h.debug("lost an answer: the client has gone, and it did not begin a stream")
	case st.accept&acceptsJSON == 0 && (status == 0 || status == http.StatusOK):
		if st.begin() {
			_ = st.write(frame) // kept, or the client has gone
		}
	default:
		st.conn.plain(func(w http.ResponseWriter) { onhttp.Answer(w, status, frame) })
	}
	st.finish()
}

// silence ends the stream without an answer: there is none to give, or the call
// was cancelled.
func (st *stream) silence(cancelled bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case st.conn == nil || st.id > 0:
	case cancelled && st.accept&acceptsEvents != 0:
		_ = st.conn.open() // a stream of no events: a request is answered with JSON or a stream
	default:
		st.conn.plain(func(w http.ResponseWriter) { slow.AnswerNothing(w, http.StatusAccepted) })
	}
	st.finish()
}

// end ends the stream.
func (st *stream) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.finish()
}

func (st *stream) finish() {
	if st.ended {
		return
	}
	st.ended = true
	st.drop()
	st.s.unlist(st)
}

// staysOpen reports whether it is certain that letGo will do nothing.
func (st *stream) staysOpen() bool {
	rev := st.s.revision()
	return rev != nil &&
		(st.s.h.opts.KeepConnections || !rev.PollingStreams || st.accept&acceptsEvents == 0)
}

// letGo closes the connection, but not the stream.
func (st *stream) letGo() bool {
	if rev := st.s.revision(); rev == nil || st.staysOpen() {
		return false
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.begin() {
		return false
	}
	st.drop()
	return true
}

// detach takes back a connection that has ended.
func (st *stream) detach(e *events) {
	e.end() // first: it may be what a writer waits for
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.conn == e {
		st.drop()
	}
}

// fromSent is the cursor of a client that names no event.
const fromSent = math.MaxUint64

// attach gives the stream a connection, and sends what comes after the event
// with the number after, and before that what is left of a stream that was lost. A connection that
// it has is taken for broken.
func (st *stream) attach(e *events, after uint64, before rest) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if after == fromSent {
		after = st.sent
	}
	if after > st.last && !st.past {
		return errNoEvents
	}
	if !st.lost {
		kept, _ := st.kept(after) // it has said what is wrong
		before.lost += kept.lost
		before.events = append(before.events, kept.events...)
	} else if !st.call.IsAbsent() && !before.more && !st.answered(before.events) {
		frame := jsonrpc.V2.AppendError(nil, st.call, errSilent("unknown"))
		before.events = append(before.events, sse.Event{Data: frame})
	}
	if st.ended && len(before.events) == 0 {
		return errNoEvents
	}
	if st.conn != nil {
		st.drop()
	}
	if err := st.resume(e, after, before); err != nil || st.ended {
		e.end()
	} else {
		st.conn = e
	}
	st.connected.Store(st.conn != nil)
	return nil
}

// resume writes the begin of a connection that carries the stream on.
func (st *stream) resume(e *events, after uint64, before rest) error {
	open := e.open
	if rev := st.s.revision(); rev != nil && rev.PollingStreams {
		open = func() error { return e.prime(st.eventID(after)) }
	}
	if err := open(); err != nil {
		return err
	}
	if before.lost > 0 {
		st.s.h.debug("a client came back too late for some events", "stream", st.id, "lost", before.lost)
		if err := e.comment(
			strconv.FormatUint(before.lost, 10) + " events are lost: they were kept no longer"); err != nil {
			return err
		}
	}
	for _, ev := range before.events {
		if err := e.event(ev); err != nil {
			return err
		}
	}
	st.sent = max(st.sent, st.last)
	return nil
}

// rest is what a client is to get that comes back.
type rest struct {
	events []sse.Event
	lost   uint64 // how many are missing
	more   bool   // there are others behind them: the client comes back for those
}

// maxRest bounds the bytes of what another process has sent that are read at once.
const maxRest = 1 << 20

var errEnough = errors.New("no more at once")

// kept returns the events after the one with that number.
func (st *stream) kept(after uint64) (r rest, err error) {
	last, size := after, 0
	replay := st.s.h.opts.Events.Replay
	if shared := st.s.h.opts.SharedEvents; st.lost && shared != nil {
		replay = shared.Replay
	}
	err = replay(st.s.key, st.id, after, func(n uint64, data []byte) error {
		if size += len(data); st.lost && size > maxRest && last > after {
			return errEnough
		}
		last = n
		r.events = append(r.events, st.event(n, data))
		return nil
	})
	if r.more = errors.Is(err, errEnough); r.more {
		err = nil
	}
	if err != nil {
		st.s.h.debug("the event store has failed", "error", err)
	}
	if !st.past {
		last = st.last
	}
	r.lost = last - after - uint64(len(r.events))
	return r, err
}

// answered reports whether the events of a call end with its answer.
func (st *stream) answered(events []sse.Event) bool {
	if len(events) == 0 {
		return false
	}
	m, _ := st.s.h.peek(events[len(events)-1].Data)
	return m.Kind == jsonrpc.Response
}

// number gives a stream its number, and makes it known.
func (s *session) number(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st.id = s.nextStreamLocked(false)
	s.pushes.streams = append(s.pushes.streams, st)
}

// unlist forgets a stream that has ended. Its events are kept.
func (s *session) unlist(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pushes
	if p == nil {
		return
	}
	is := func(o *stream) bool { return o == st }
	if p.streams = slices.DeleteFunc(p.streams, is); len(p.streams) == 0 {
		p.streams = nil // an idle session is small
	}
	p.own = slices.DeleteFunc(p.own, is)
}

// stream returns the stream with that number; when it has ended, what the store
// may have of it.
func (s *session) stream(id uint64) *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pushingLocked()
	for _, list := range [][]*stream{p.streams, p.own} {
		for _, st := range list {
			if st.id == id {
				return st
			}
		}
	}
	if id > p.lastStream && s.h.sealed == nil {
		return nil
	}
	lost := s.isSealed() && (id > p.lastStream || p.lastStream-id >= maxStreams)
	return &stream{s: s, id: id, ended: true, past: true, lost: lost}
}

// ownStream returns the stream for what belongs to no call: of those that the
// client has opened with GET the newest that is connected. It reports whether
// there is one. Otherwise the messages wait in the newest, or in a first one.
func (s *session) ownStream() (st *stream, open bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pushingLocked()
	if s.closed {
		return nil, false, errSessionEnded
	}
	for _, st := range slices.Backward(p.own) {
		if st.connected.Load() {
			return st, true, nil
		}
	}
	if len(p.own) == 0 {
		s.addOwn()
	}
	return p.own[len(p.own)-1], false, nil
}

func (s *session) addOwn() *stream {
	st := &stream{s: s, id: s.nextStreamLocked(true)}
	s.pushes.own = append(s.pushes.own, st)
	return st
}

// nextStreamLocked returns the number of a new stream: where a session may go on in another
// process, an odd one for the client's own, so that the other one can tell them apart.
func (s *session) nextStreamLocked(own bool) uint64 {
	p := s.pushingLocked()
	p.lastStream++
	if s.h.sealed != nil && p.lastStream&1 == 1 != own {
		p.lastStream++
	}
	return p.lastStream
}

// claim returns a stream for a client that opens one, which is the newest then:
// one that has lost its connection, or a new one. Of a client that opens too
// many, the oldest connection is taken for broken.
func (s *session) claim() (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pushingLocked()
	if s.closed {
		return nil, errSessionEnded
	}
	if p.opened != nil {
		close(p.opened)
		p.opened = nil
	}
	for i, st := range slices.Backward(p.own) {
		if st.connected.CompareAndSwap(false, true) {
			p.own = append(slices.Delete(p.own, i, i+1), st)
			return st, nil
		}
	}
	if len(p.own) >= maxOwn {
		st := p.own[0]
		p.own = append(slices.Delete(p.own, 0, 1), st)
		return st, nil
	}
	st := s.addOwn()
	st.connected.Store(true)
	return st, nil
}

// maxNamed bounds the id of a call that is in the ids of events, in bytes.
const maxNamed = 64

// eventID is the id of event n; event 0 is before the first. Where another replica may be asked for
// the rest of the stream, it has the id of the call, too: that replica ends the call with an error
// when this one is gone.
func (st *stream) eventID(n uint64) string {
	id := eventID(st.id, n)
	if call := st.call.Raw(); len(call) > 0 && len(call) <= maxNamed {
		id += "." + base64.RawURLEncoding.EncodeToString(call)
	}
	return id
}

func eventID(stream, n uint64) string {
	return strconv.FormatUint(stream, 10) + "-" + strconv.FormatUint(n, 10)
}

// parseEventID reads what the method eventID writes.
func parseEventID(id string) (stream, n uint64, call jsonrpc.ID, ok bool) {
	id, named, with := strings.Cut(id, ".")
	a, b, _ := strings.Cut(id, "-")
	stream, err1 := strconv.ParseUint(a, 10, 62)
	n, err2 := strconv.ParseUint(b, 10, 62)
	ok = err1 == nil && err2 == nil && stream > 0 && id == eventID(stream, n)
	if with {
		raw, err := base64.RawURLEncoding.Strict().DecodeString(named)
		call, err1 = jsonrpc.ParseID(raw)
		// base64 ignores line ends, and one id has one text.
		if err != nil || err1 != nil || len(raw) > maxNamed || strings.ContainsAny(named, "\r\n") {
			return 0, 0, call, false
		}
	}
	return stream, n, call, ok
}
