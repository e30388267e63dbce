package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// The ways in which a hook can be wrong: what it answers, or what becomes of it.
var wrongs = map[string]struct {
	text           string
	status, exit   int
	hangs, vanishs bool
}{
	"no JSON":              {text: "yes"},
	"nothing":              {text: ""},
	"no object":            {text: `["allow"]`},
	"two texts":            {text: `{"decision":"allow"}{"decision":"deny"}`},
	"no decision":          {text: `{"reason":"x"}`},
	"another decision":     {text: `{"decision":"ask"}`},
	"decision no text":     {text: `{"decision":true}`},
	"reason no text":       {text: `{"decision":"deny","reason":{}}`},
	"an unknown member":    {text: `{"decision":"allow","argument":{}}`},
	"a member in capitals": {text: `{"Decision":"allow"}`},
	"a member twice":       {text: `{"decision":"deny","decision":"allow"}`},
	"an escaped twin":      {text: `{"decision":"deny","\u0064ecision":"allow"}`},
	"arguments no object":  {text: `{"decision":"allow","arguments":[],"result":[]}`},
	"both phases":          {text: `{"decision":"allow","arguments":{},"result":{}}`},
	"too deep": {
		text: `{"decision":"allow","arguments":` + strings.Repeat(`{"a":`, 300) + `1` +
			strings.Repeat(`}`, 300) + `}`,
	},
	"too large": {
		text: `{"decision":"allow","reason":"` + strings.Repeat("x", MaxAnswer) + `"}`,
	},
	"bad status or exit": {text: `{"decision":"allow"}`, status: 500, exit: 1},
	"a redirect":         {text: `{"decision":"allow"}`, status: 302, exit: 2},
	"accepted":           {text: `{"decision":"allow"}`, status: 202, exit: 3},
	"hangs":              {hangs: true},
	"vanishes":           {vanishs: true, text: `{"decision":`},
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// atURL has a hook of HTTP answer with a handler.
func atURL(t *testing.T, o Options, h http.HandlerFunc) *Hook {
	t.Helper()
	s := httptest.NewServer(h)
	o.URL, o.Client, o.Logger = s.URL,
		&http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}, quiet()
	k := New(&o)
	t.Cleanup(func() { k.Close(); s.CloseClientConnections(); s.Close() })
	return k
}

func shell(o Options, script string) *Hook {
	o.Command, o.Logger = func() []string { return []string{"/bin/sh", "-c", script} }, quiet()
	return New(&o)
}

// A hook that fails in any way refuses the call, or lets it pass unchanged where the configuration
// says so.
func TestFailures(t *testing.T) {
	for name, c := range wrongs {
		for _, after := range []bool{false, true} {
			for _, open := range []bool{false, true} {
				for _, kind := range []string{"http", "exec"} {
					if kind == "exec" && runtime.GOOS == "windows" {
						continue
					}
					t.Run(fmt.Sprintf("%s/after %v/open %v/%s", name, after, open, kind), func(t *testing.T) {
						t.Parallel()
						o := Options{Name: "h", After: after, Open: open, Timeout: 30 * time.Second, MaxInFlight: 1}
						if c.hangs {
							o.Timeout = 50 * time.Millisecond
						}
						var h *Hook
						if kind == "http" {
							h = atURL(t, o, func(w http.ResponseWriter, r *http.Request) {
								_, _ = io.Copy(io.Discard, r.Body)
								switch {
								case c.hangs:
									<-r.Context().Done()
								case c.vanishs:
									panic(http.ErrAbortHandler)
								case c.status != 0:
									w.Header().Set("Location", "/elsewhere")
									w.WriteHeader(c.status)
								}
								_, _ = io.WriteString(w, c.text)
							})
						} else {
							script := fmt.Sprintf("cat >/dev/null; cat <<'END'\n%s\nEND\nexit %d", c.text, c.exit)
							switch {
							case c.hangs:
								script = "sleep 1000"
							case c.vanishs:
								script = "printf '{'; kill -9 $$"
							case len(c.text) > MaxAnswer:
								script = "yes"
							}
							h = shell(o, script)
						}
						v, err := h.Ask(t.Context(),
							&Call{Owner: owner.Named("ann"), Upstream: "u", Tool: "t", Value: jsonrpc.Raw(`{}`)})
						want := Failed
						if open {
							want = FailedOpen
						}
						if err != nil || v.Outcome != want || v.Err == nil || v.Value != nil ||
							v.Outcome.Passes() != open {
							t.Errorf("%+.200v, %v", v, err)
						}
					})
				}
			}
		}
	}
}

// What a hook gets is what it is to know, and what it answers is taken as it is.
func TestAnswers(t *testing.T) {
	for _, after := range []bool{false, true} {
		member := map[bool]string{false: "arguments", true: "result"}[after]
		var got string
		say := ""
		h := atURL(t, Options{
			Name: "scan", After: after, Timeout: time.Minute, MaxInFlight: 1,
			Header: http.Header{"X-Token": {"t"}},
		}, func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			got = r.Method + " " + r.Header.Get("X-Token") + " " + r.Header.Get("Content-Type") + " " +
				string(b)
			_, _ = io.WriteString(w, say)
		})
		for text, want := range map[string]Verdict{
			`{"decision":"allow"}`:          {Outcome: Allowed},
			" {\"decision\" : \"allow\"}\n": {Outcome: Allowed},
			`{"decision":"allow","` + member + `":{"a":1}}`: {
				Outcome: Changed,
				Value:   jsonrpc.Raw(`{"a":1}`),
			},
			`{"decision":"deny"}`: {Outcome: Denied},
			`{"decision":"deny","reason":"no \u00e9","` + member + `":{}}`: {
				Outcome: Denied,
				Reason:  "no é",
			},
			`{"decision":"deny","reason":"` + strings.Repeat("é", maxReason) + `"}`: {
				Outcome: Denied,
				Reason:  strings.Repeat("é", maxReason/2),
			},
		} {
			say = text
			v, err := h.Ask(t.Context(),
				&Call{
					Upstream: "files", Tool: "read", Revision: "r", Session: "s", Method: "key", Kind: "user",
					Issuer: "i", ID: `a"b`, TraceParent: "p", TraceState: "q", Value: jsonrpc.Raw(`{"x":1}`),
				})
			if err != nil || v.Outcome != want.Outcome || v.Reason != want.Reason ||
				string(v.Value) != string(want.Value) {
				t.Errorf("%.80s: %.200v %v", text, v, err)
			}
		}
		phase := map[bool]string{false: "before", true: "after"}[after]
		if want := `POST t application/json {"version":1,"hook":"scan","phase":"` + phase +
			`","upstream":"files","tool":"read","revision":"r","session":"s","traceparent":"p",` +
			`"tracestate":"q",` +
			`"principal":{"method":"key","kind":"user","issuer":"i","id":"a\"b"},"` + member +
			`":{"x":1}}`; got != want {
			t.Errorf("it gets %s\nnot %s", got, want)
		}
		if _, err := h.Ask(t.Context(), &Call{Upstream: "files", Tool: "read"}); err != nil {
			t.Error(err)
		}
		if want := `"principal":null,"` + member + `":{}}`; !strings.HasSuffix(got, want) {
			t.Errorf("it gets %s", got)
		}
	}
}

// A caller with calls that hang takes a share of the places only: calls of another one are
// examined.
func TestFairPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, now atomic.Int64
		h := New(
			&Options{
				Name: "h", Open: true, Timeout: time.Second, MaxInFlight: 8, Logger: quiet(),
				Client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					n := now.Add(1)
					defer now.Add(-1)
					for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
					}
					b, _ := io.ReadAll(r.Body)
					if strings.Contains(string(b), `"tool":"hang"`) {
						<-r.Context().Done()
						return nil, r.Context().Err()
					}
					return &http.Response{
						StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"decision":"allow"}`)),
					}, nil
				})},
			})
		var busy, failed atomic.Int64
		for range 100 {
			go func() {
				switch v, _ := h.Ask(t.Context(), &Call{Owner: owner.Named("eve"), Tool: "hang"}); v.Outcome {
				case Busy:
					busy.Add(1)
				case FailedOpen:
					failed.Add(1)
				default:
					t.Errorf("%+v", v)
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		for range 10 {
			if v, err := h.Ask(t.Context(), &Call{Owner: owner.Named("ann"), Tool: "look"}); err != nil ||
				v.Outcome != Allowed {
				t.Errorf("%+v %v", v, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("another caller has waited for %v", took)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := h.Ask(gone, &Call{Owner: owner.Named("eve"), Tool: "hang"}); !errors.Is(err,
			context.Canceled) {
			t.Errorf("the caller has gone: %v", err)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if most.Load() > 8 || failed.Load() == 0 || busy.Load() == 0 || busy.Load()+failed.Load() != 100 {
			t.Errorf("%d at once; %d failed, %d were busy", most.Load(), failed.Load(), busy.Load())
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzAnswer has hooks say anything. Nothing but a well-formed "allow" lets a call pass, and what
// it changes is one JSON object.
func FuzzAnswer(f *testing.F) {
	for _, c := range wrongs {
		if len(c.text) < 1<<10 {
			f.Add([]byte(c.text))
		}
	}
	f.Add([]byte(`{"decision":"allow","arguments":{"a":[1,null,"\ud83d\ude00"]}}`))
	f.Add([]byte(`{"decision":"deny","reason":"\ud800"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parse(b, "arguments", false)
		switch {
		case err != nil && (a.deny || a.value != nil || a.reason != ""):
			t.Errorf("an error with %+v", a)
		case err != nil:
			return
		case len(a.reason) > maxReason:
			t.Errorf("the reason has %d bytes", len(a.reason))
		case a.deny && a.value != nil, !a.deny && a.reason != "":
			t.Errorf("%+v", a)
		case !a.deny && string(scan.Member(b, "decision")) == `"deny"`:
			t.Errorf("%q passes", b)
		}
		if a.value != nil {
			if _, fault := scan.Text(a.value, maxDepth); fault != scan.OK || a.value[0] != '{' {
				t.Errorf("%q is no object: %v", a.value, fault)
			}
		}
	})
}
