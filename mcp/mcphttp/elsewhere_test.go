package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/sse"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	here  = "HEREHEREHEREHEREHEREHEREHE"
	there = "THERETHERETHERETHERETHERET"
)

// A replica that is lost answers nothing: what it may have executed is not repeated unless it only
// reads, and an event stream that has begun ends with an error.
func TestForwardFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method      string
		begun, sent bool
		here        bool // after the first try, this replica is to answer
		status      int
		want        string
	}{
		"not sent":            {method: spec.MethodToolsCall, status: 503, want: `"sent":"no"`},
		"not sent, then here": {method: spec.MethodToolsCall, here: true},
		"sent": {
			method: spec.MethodToolsCall, sent: true, here: true, status: 502,
			want: `"sent":"unknown"`,
		},
		"sent, and only reads": {method: spec.MethodToolsList, sent: true, here: true},
		"begun": {
			method: spec.MethodToolsCall, begun: true, sent: true, status: 200,
			want: "event: message\ndata: {",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tries := 0
			h := &Handler{opts: filled(Options{
				Replica: here, Sessions: sessionsSealed, MessagesPath: "/messages",
				Route: func(_ context.Context, home, key string) string {
					if home != there || key != "x" {
						t.Error(home, key)
					}
					if c.here && tries > 0 {
						return here
					}
					return there
				},
				Forward: func(w http.ResponseWriter, _ *http.Request, to string, _ []byte) (bool, bool, error) {
					if tries++; to != there {
						t.Error(to)
					}
					if c.begun {
						w.Header().Set("Content-Type", sse.ContentType)
						_, _ = io.WriteString(w, ": some\n\n")
					}
					return c.begun, c.sent, errors.New("lost")
				},
			})}
			frame := `{"jsonrpc":"2.0","id":5,"method":"` + c.method + `","params":{"name":"x"}}`
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
			r.Header.Set(headerSession, there+"x")
			w := httptest.NewRecorder()
			answered := h.answeredElsewhere(w, r, []byte(frame))
			if answered != (c.status != 0) ||
				answered && (w.Code != c.status || !strings.Contains(w.Body.String(), c.want)) {
				t.Errorf("%v: %d %s", answered, w.Code, w.Body)
			}
		})
	}
}

// Calls and cancellations go where the session began, or goes on; answers of a sealed session
// nowhere, since the id of the question says where; and a request that goes on to the replica that
// its state names, whatever the session says.
func TestForwardTo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ session, frame, home, key string }{
		"a call":    {there + "x", `{"id":1,"method":"tools/call"}`, there, "x"},
		"an answer": {there + "x", `{"jsonrpc":"2.0","id":"q","result":{}}`, "", ""},
		"a cancellation": {
			there + "x", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}`, there, "x",
		},
		"a state": {
			"", `{"id":1,"method":"tools/call","params":{"requestState":"` + there + `~abc"}}`, there, "",
		},
		"another state": {
			"", `{"id":1,"method":"tools/call","params":{"requestState":"abc~def"}}`, "",
			"",
		},
		"no session": {"", `{"id":1,"method":"initialize"}`, "", ""},
		"a short id": {"abc", `{"id":1,"method":"tools/call"}`, "", "abc"},
	} {
		asked := false
		h := &Handler{opts: filled(Options{
			Replica: here, Sessions: sessionsSealed, MessagesPath: "/messages",
			Route: func(_ context.Context, home, key string) string {
				if asked = true; home != c.home || key != c.key {
					t.Errorf("%s: %q, %q", name, home, key)
				}
				return ""
			},
			Forward: func(http.ResponseWriter, *http.Request, string, []byte) (bool, bool, error) {
				return false, false, nil
			},
		})}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
		if c.session != "" {
			r.Header.Set(headerSession, c.session)
		}
		if h.answeredElsewhere(httptest.NewRecorder(), r, []byte(c.frame)) ||
			asked == (name == "an answer") {
			t.Error(name)
		}
	}
}

// A client that says that a replica has forwarded its request does not choose who answers it: only
// what a replica has sealed, for this session, is answered where it arrives.
func TestForwardedBySealOnly(t *testing.T) {
	t.Parallel()
	z := testSealing(t, Options{MaxSessions: 10, SessionAge: time.Hour})
	sealed := func(session string) string {
		return z.questions.Seal(nil, markForwarded+session, time.Now().Add(time.Hour))
	}
	for name, c := range map[string]struct {
		value string
		keys  *sealing
		here  bool
	}{
		"a client's":           {"1", z, false},
		"of another session":   {sealed(there + "y"), z, false},
		"a replica's":          {sealed(there + "x"), z, true},
		"sessions of a memory": {"1", nil, false},
	} {
		asked := false
		h := &Handler{sealed: c.keys, opts: filled(Options{
			Replica: here, Sessions: sessionsSealed, MessagesPath: "/messages",
			Route: func(context.Context, string, string) string {
				asked = true
				return ""
			},
			Forward: func(http.ResponseWriter, *http.Request, string, []byte) (bool, bool, error) {
				return false, false, nil
			},
		})}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", nil)
		r.Header.Set(headerSession, there+"x")
		r.Header.Set(headerForwarded, c.value)
		if h.answeredElsewhere(httptest.NewRecorder(), r,
			[]byte(`{"id":1,"method":"ping"}`)); asked == c.here {
			t.Errorf("%s: another replica was looked for: %v", name, asked)
		}
	}
}

// An answer to a question of a replica that is gone is dropped, as one that matches no call. It
// waits for one that is not reached now, and is refused where that takes it no more.
func TestAnswerForReplica(t *testing.T) {
	keys := [][]byte{bytes.Repeat([]byte("k"), 32)}
	name := func(letter string) string { return strings.Repeat(letter, 26) }
	for what, c := range map[string]struct {
		gone, reached time.Duration // after which; 0: never
		status        int           // of its answer
		want          int
		took          time.Duration
		began         string // where the session has begun; "": here
		sent          bool   // it breaks off when it has the answer, perhaps
	}{
		"it is gone": {gone: 8 * time.Second, want: http.StatusAccepted, took: 8 * time.Second},
		"it is there again": {
			reached: 3 * time.Second, status: http.StatusAccepted,
			want: http.StatusAccepted, took: 3 * time.Second,
		},
		"it is not reached": {want: http.StatusMisdirectedRequest, took: handTime},
		"it ends just now": {
			gone: 8 * time.Second, sent: true, want: http.StatusAccepted,
			took: 8 * time.Second,
		},
		"it refuses the frame": {
			reached: 1, status: http.StatusNotFound,
			want: http.StatusMisdirectedRequest,
		},
		"the session has begun at one that is not reached": {
			reached: 1, status: http.StatusAccepted, want: http.StatusAccepted, began: name("C"),
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			is := func(after time.Duration) bool { return after > 0 && time.Since(began) >= after-1 }
			h := NewHandler(resumer{}, &Options{
				Keys: keys, Replica: name("A"),
				Route: func(_ context.Context, home, _ string) string {
					if home == name("B") && is(c.gone) {
						return ""
					}
					return home
				},
				Forward: func(w http.ResponseWriter, _ *http.Request, to string, _ []byte) (bool, bool, error) {
					if !is(c.reached) || to != name("B") {
						return false, c.sent, errors.New("not reached")
					}
					w.WriteHeader(c.status)
					return true, true, nil
				},
			})
			id := begin(t, h)
			v, err := h.sealed.openID(strings.TrimPrefix(id, name("A")), owner.Key{})
			if err != nil {
				t.Fatal(err)
			}
			other, err := newSealing(
				&Options{Keys: keys, Replica: name("B"), SessionAge: time.Hour, MaxSessions: 10})
			if err != nil {
				t.Fatal(err)
			}
			question := other.sealQuestion(v.key, 7)
			id = cmp.Or(c.began, name("A")) + strings.TrimPrefix(id, name("A"))
			w := direct(h, "POST", `{"jsonrpc":"2.0","id":`+string(question.Raw())+`,"result":{}}`,
				"Mcp-Session-Id", id)
			if took := time.Since(began); w.Code != c.want || took < c.took || took > c.took+handPause {
				t.Errorf("%s: %d %s after %v", what, w.Code, w.Body, took)
			}
			shutDown(h)
		})
	}
}

func filled(o Options) Options { return o.withDefaults() }
