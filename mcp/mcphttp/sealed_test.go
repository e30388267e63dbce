package mcphttp

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

func testSealing(tb testing.TB, o Options) *sealing {
	tb.Helper()
	o.Keys = [][]byte{bytes.Repeat([]byte("k"), 32)}
	z, err := newSealing(&o)
	if err != nil {
		tb.Fatal(err)
	}
	return z
}

func FuzzOpenID(f *testing.F) {
	z, err := newSealing(&Options{MaxSessions: 10, SessionAge: time.Hour}) // a key of this process
	if err != nil {
		f.Fatal(err)
	}
	ann := owner.Named("ann")
	id, err := z.sealID(&sealedSession{
		issued: time.Now(), key: "k", address: "192.0.2.1",
		rev: era.LatestLegacy(), state: []byte("{}"),
	}, ann)
	if err != nil {
		f.Fatal(err)
	}
	question := string(z.sealQuestion("k", 7).Raw())
	f.Add(id)
	f.Add(strings.Trim(question, `"`))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if v, err := z.openID(text, ann); err == nil && text != id {
			t.Errorf("%q is a session: %v", text, v)
		}
		if _, err := z.openID(text, owner.Key{}); err == nil {
			t.Errorf("%q is a session of another owner", text)
		}
		if q, ok := z.openQuestion("k", text); ok && `"`+text+`"` != question {
			t.Errorf("%q is a question: %v", text, q)
		}
	})
}

func TestSealedQuestions(t *testing.T) {
	z := testSealing(t, Options{
		MaxSessions: 10, SessionAge: time.Hour,
		Advertise: "http://10.0.0.3:7331/",
	})
	other := testSealing(t, Options{MaxSessions: 10, SessionAge: time.Hour})
	for _, n := range []uint64{1, 300, 1 << 63} {
		id := strings.Trim(string(z.sealQuestion("key", n).Raw()), `"`)
		if q, ok := other.openQuestion("key", id); !ok ||
			q != (questionID{n, z.replica, "http://10.0.0.3:7331"}) {
			t.Errorf("%v %t", q, ok)
		}
		if _, ok := z.openQuestion("other", id); ok {
			t.Error("the question of another session")
		}
	}
}

// The client of a session that was ended here does not find it again, until it has expired. When
// there are too many, those of the owner with most are forgotten.
func TestEndedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e ended
		e.init(20)
		callers := []owner.Key{
			owner.Named("ann"), owner.Named("bob"), owner.Session("s", "192.0.2.1"),
			owner.Session("t", "198.51.100.7"),
		}
		for i, greedy := range callers {
			for j, other := range callers {
				if i == j {
					continue
				}
				e.init(20)
				e.add(other, "other", time.Now().Add(time.Hour))
				for n := range 100 {
					e.add(greedy, fmt.Sprint(n), time.Now().Add(time.Minute))
				}
				if !e.has("other") || !e.has("99") || e.sessions.Len() != 20 {
					t.Errorf("%v fills the table of %v: %d", greedy, other, e.sessions.Len())
				}
			}
		}
		e.init(20)
		e.add(callers[0], "a", time.Now().Add(time.Minute))
		<-time.After(2 * time.Minute)
		e.add(callers[0], "b", time.Now().Add(time.Minute))
		if e.has("a") || !e.has("b") {
			t.Error("what has expired is kept")
		}
	})
}

// resumer is a backend of sealed sessions.
type resumer struct{ quiet }

func (resumer) Accept(context.Context, farcall.Caller) Session { return &resumable{} }

func (resumer) Resume(
	_ context.Context, _ farcall.Caller, rev *era.Revision, _ []byte,
) (Session, error) {
	s := &resumable{}
	s.rev.Store(rev)
	return s, nil
}

type resumable struct{ quietSession }

func (*resumable) State() ([]byte, error) { return []byte("{}"), nil }
func (*resumable) Local() bool            { return false }

func TestSealedOptions(t *testing.T) {
	keys := [][]byte{bytes.Repeat([]byte("k"), 32)}
	for want, o := range map[string]*Options{
		"Options.Sessions is \"sticky\"":    {Sessions: "sticky"},
		"the key 0 has 1 bytes":             {Keys: [][]byte{{1}}},
		"Options.Advertise is \"10.0.0.3\"": {Keys: keys, Advertise: "10.0.0.3"},
		"\"http://a/b\"":                    {Keys: keys, Advertise: "http://a/b"},
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("%s, want %s", got, want)
				}
			}()
			NewHandler(resumer{}, o)
		}()
	}
	if h := NewHandler(newFake(), &Options{Keys: keys}); h.opts.Sessions != sessionsMemory {
		t.Errorf("a backend that cannot resume has %s sessions", h.opts.Sessions)
	}
	h := NewHandler(resumer{}, &Options{Keys: keys})
	defer shutDown(h)
	id := begin(t, h)
	if h.opts.Sessions != sessionsSealed || ping(h, id) != http.StatusOK {
		t.Errorf("%s", h.opts.Sessions)
	}
}

// The client's own stream goes on at another replica, which does not know its events.
func TestStreamGoesOnElsewhere(t *testing.T) {
	o := Options{Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}}
	one, other := NewHandler(resumer{}, &o), NewHandler(resumer{}, &o)
	defer shutDown(one)
	defer shutDown(other)
	id := begin(t, one)
	for stream, want := range map[uint64]int{
		1<<40 + 1: http.StatusOK,
		1<<40 + 2: http.StatusBadRequest,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		w := directTo(ctx, other, "GET", "Mcp-Session-Id", id, "Last-Event-ID", eventID(stream, 3),
			"Accept", "text/event-stream")
		cancel()
		if w.Code != want {
			t.Errorf("stream %d: %d %s", stream, w.Code, w.Body)
		}
	}
}

// waiting is a resumer with calls that end when they are cancelled, or answer is closed.
type waiting struct {
	resumer
	answer chan struct{}
}

func (w waiting) Accept(context.Context, farcall.Caller) Session {
	return &waitingSession{answer: w.answer}
}

type waitingSession struct {
	resumable
	answer chan struct{}
}

func (s *waitingSession) ServeRPC(ctx context.Context, r *farcall.Request) (any, error) {
	if r.Method != "tools/call" {
		return s.resumable.ServeRPC(ctx, r)
	}
	select {
	case <-s.answer:
		return jsonrpc.Raw(`{"content":[]}`), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A client that lost the stream of a call gets the rest where the call runs. Another replica ends
// the call with an error that says that its outcome is unknown, so that the client does not wait.
func TestCallEndsElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}}
		w := waiting{answer: make(chan struct{})}
		one, other := NewHandler(w, &o), NewHandler(resumer{}, &o)
		session := begin(t, one)
		ctx, leave := context.WithTimeout(t.Context(), heartbeat+time.Second)
		defer leave()
		r := httptest.NewRequestWithContext(ctx, "POST", "http://localhost/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":"q\n1","method":"tools/call","params":{"name":"wait"}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", session)
		r.Header.Set("Mcp-Protocol-Version", "2025-11-25")
		r.Header.Set("Accept", "application/json, text/event-stream")
		got := httptest.NewRecorder()
		one.ServeHTTP(got, r)
		_, id, _ := strings.Cut(got.Body.String(), "id: ")
		id, _, _ = strings.Cut(id, "\n")
		rest := func(h *Handler) string {
			got := directTo(t.Context(), h, "GET", "Mcp-Session-Id", session, "Last-Event-ID", id,
				"Mcp-Protocol-Version", "2025-11-25", "Accept", "text/event-stream")
			return fmt.Sprint(got.Code, " ", got.Body)
		}
		if text := rest(other); !strings.HasPrefix(text, "200 ") || strings.Count(text, "data: {") != 1 ||
			!strings.Contains(text, `},"id":"q\n1"}`) || !strings.Contains(text, `"sent":"unknown"`) {
			t.Errorf("at another replica, after %q: %s", id, text)
		}
		time.AfterFunc(time.Second, func() { close(w.answer) })
		if text := rest(one); !strings.Contains(text, `"result":{"content":[]},"id":"q\n1"}`) ||
			strings.Contains(text, "error") {
			t.Errorf("where it runs: %s", text)
		}
		if text := rest(one); !strings.Contains(text, `"result"`) || strings.Contains(text, "error") {
			t.Errorf("where it has run: %s", text)
		}
		shutDown(one)
		shutDown(other)
	})
}

// An answer with an id that no replica has made matches no question.
func TestForgedQuestion(t *testing.T) {
	h := NewHandler(resumer{}, &Options{Keys: [][]byte{bytes.Repeat([]byte("k"), 32)}})
	defer shutDown(h)
	id := begin(t, h)
	for _, answer := range []jsonrpc.ID{
		jsonrpc.IntID(1), jsonrpc.StringID("x"),
		jsonrpc.StringID(strings.Repeat("A", 5000)), h.sealed.sealQuestion("other", 1),
	} {
		w := direct(h, "POST", `{"jsonrpc":"2.0","id":`+string(answer.Raw())+`,"result":{}}`,
			"Mcp-Session-Id", id)
		if w.Code != http.StatusAccepted {
			t.Errorf("%.40s: %d %s", answer.Raw(), w.Code, w.Body)
		}
	}
}
