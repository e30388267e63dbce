package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/era"
)

// telling is a backend of sessions that the test sends to.
type telling struct {
	waiting

	clients chan farcall.Caller
}

func (b telling) Accept(ctx context.Context, c farcall.Caller) Session {
	b.clients <- c
	return b.waiting.Accept(ctx, c)
}

// failing are shared events that may not be there.
type failing struct {
	*memoryStore

	fails bool
}

func (f *failing) Replay(s string, stream, n uint64, yield func(uint64, []byte) error) error {
	if f.fails {
		return errors.New("the store does not answer")
	}
	return f.memoryStore.Replay(s, stream, n, yield)
}

// sharing has two replicas with shared events, and a session at the first.
type sharing struct {
	t          *testing.T
	events     *failing
	backend    telling
	one, other *Handler
	session    string
	client     farcall.Caller
}

func newSharing(t *testing.T) *sharing {
	t.Helper()
	s := &sharing{
		t: t, events: &failing{memoryStore: newMemoryStore(8 << 20)},
		backend: telling{waiting{answer: make(chan struct{})}, make(chan farcall.Caller, 2)},
	}
	o := Options{Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}, SharedEvents: s.events}
	s.one, s.other = NewHandler(s.backend, &o), NewHandler(resumer{}, &o)
	s.session = begin(t, s.one)
	s.client = <-s.backend.clients
	return s
}

// read is what a client of a session reads within a time, and the id of the last event.
func (s *sharing) read(
	h *Handler, session string, d time.Duration, method string, more ...string,
) (text, id string) {
	ctx, leave := context.WithTimeout(s.t.Context(), d)
	defer leave()
	headers := []string{
		"Mcp-Session-Id", session, "Mcp-Protocol-Version", "2025-11-25", "Accept",
		"application/json, text/event-stream",
	}
	got := directTo(ctx, h, method, append(headers, more...)...)
	text = got.Body.String()
	if at := strings.LastIndex(text, "id: "); at >= 0 {
		id, _, _ = strings.Cut(text[at+len("id: "):], "\n")
	}
	return fmt.Sprint(got.Code, " ", text), id
}

// rest is what a client gets at the other replica that comes back after an event.
func (s *sharing) rest(session, last string) (text, id string) {
	return s.read(s.other, session, time.Second, "GET", "Last-Event-Id", last)
}

// call begins a call, leaves it, and returns its last event.
func (s *sharing) call() (last string) {
	_, last = s.read(s.one, s.session, heartbeat+time.Second, "POST", "",
		`{"jsonrpc":"2.0","id":"q","method":"tools/call","params":{"name":"wait"}}`)
	return last
}

// What a replica has sent after its client had gone is at another replica, which goes on with the
// session: the answer to a call, once and without an error, and what came on the stream of the
// client. Another session has nothing of it. While the store does not answer, the client waits.
func TestSharedEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t)
		another := begin(t, s.one)
		called := s.call()
		_, listened := s.read(s.one, s.session, time.Second, "GET")
		close(s.backend.answer)
		for n := range 3 {
			if err := s.client.Notify(t.Context(), fmt.Sprint("notifications/", n), nil); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		shutDown(s.one) // it is gone

		s.events.fails = true
		for _, last := range []string{called, listened} {
			if text, _ := s.rest(s.session, last); strings.Contains(text, "data:") {
				t.Errorf("while the store does not answer: %s", text)
			}
		}
		s.events.fails = false
		text, _ := s.rest(s.session, called)
		if strings.Count(text, "data: {") != 1 ||
			!strings.Contains(text, `"result":{"content":[]},"id":"q"}`) {
			t.Errorf("the rest of the call: %s", text)
		}
		text, last := s.rest(s.session, listened)
		for n := range 3 {
			if strings.Count(text, fmt.Sprint("notifications/", n)) != 1 {
				t.Errorf("the stream of the client lacks notification %d: %s", n, text)
			}
		}
		if text, _ = s.rest(s.session, last); strings.Contains(text, "notifications/") {
			t.Errorf("after the last one: %s", text)
		}
		for _, id := range []string{called, listened} {
			if text, _ := s.rest(another, id); strings.Contains(text, "notifications/") ||
				strings.Contains(text, "result") {
				t.Errorf("another session has %s", text)
			}
		}
		shutDown(s.other)
	})
}

// More than is read at once comes in parts, for which a client comes back, and in its order.
func TestSharedEventsInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t)
		_, last := s.read(s.one, s.session, time.Second, "GET")
		const n = 40
		for i := range n {
			params := map[string]string{"x": strings.Repeat("x", 60<<10)}
			if err := s.client.Notify(t.Context(), fmt.Sprintf("notifications/%02d", i),
				params); err != nil {
				t.Error(err)
			}
		}
		shutDown(s.one)
		got, parts := "", 0
		for strings.Count(got, "notifications/") < n && parts < n {
			text, id := s.rest(s.session, last)
			if len(text) > maxRest+100<<10 {
				t.Errorf("%d bytes at once", len(text))
			}
			got, last = got+text, id
			parts++
		}
		for i := range n {
			if strings.Count(got, fmt.Sprintf("notifications/%02d", i)) != 1 {
				t.Errorf("notification %d is there %d times", i,
					strings.Count(got, fmt.Sprintf("notifications/%02d", i)))
			}
		}
		if parts < 2 {
			t.Errorf("%d parts", parts)
		}
		shutDown(s.other)
	})
}

// After its client has ended a session nothing of it is anywhere.
func TestSharedEventsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSharing(t)
		_, listened := s.read(s.one, s.session, time.Second, "GET")
		if err := s.client.Notify(t.Context(), "notifications/secret", nil); err != nil {
			t.Error(err)
		}
		if text, _ := s.read(s.one, s.session, time.Second, "DELETE"); !strings.HasPrefix(text, "204 ") {
			t.Errorf("DELETE: %s", text)
		}
		if text, _ := s.rest(s.session, listened); strings.Contains(text, "secret") {
			t.Errorf("elsewhere: %s", text)
		}
		shutDown(s.one)
		shutDown(s.other)
	})
}

// undecided is a backend of sessions for which the store does not answer.
type undecided struct {
	resumer

	asked, made *atomic.Int64
}

func (b undecided) Resume(context.Context, farcall.Caller, *era.Revision, []byte) (Session, error) {
	return &undecidedSession{undecided: b}, nil
}

type undecidedSession struct {
	resumable
	undecided
}

func (s *undecidedSession) Again() ([][]byte, error) {
	s.asked.Add(1)
	return nil, errors.New("no quorum")
}

func (s *undecidedSession) MadeAgain() { s.made.Add(1) }

// What a client has asked of another replica is asked for again while the store does not answer,
// and given up in the end, so that what the client asks here is stored.
func TestAgainIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}}
		b := undecided{asked: new(atomic.Int64), made: new(atomic.Int64)}
		one, other := NewHandler(resumer{}, &o), NewHandler(b, &o)
		session := begin(t, one)
		ping(other, session)
		<-time.After(2 * storePause)
		ping(other, session)
		if b.asked.Load() < 2 || b.made.Load() != 0 {
			t.Errorf("at first asked %d times, made %d times", b.asked.Load(), b.made.Load())
		}
		<-time.After(storeTries * storePause)
		if b.asked.Load() != storeTries || b.made.Load() != 1 {
			t.Errorf("asked %d times, made %d times", b.asked.Load(), b.made.Load())
		}
		shutDown(one)
		shutDown(other)
	})
}
