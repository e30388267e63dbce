package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// kept is a server that has the sessions "1", "2", …, hangs at the method "hang", and
// serves to the GETs what streams has for them, in order.
type kept struct {
	recorder
	streams []func(w http.ResponseWriter, r *http.Request)
	hung    chan struct{}

	mu       sync.Mutex
	sessions int
	gets     []string // Last-Event-ID of each GET
}

func (k *kept) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body := k.note(r)
	k.mu.Lock()
	if body == initialize {
		k.sessions++
		w.Header().Set("Mcp-Session-Id", fmt.Sprint(k.sessions))
	}
	var stream func(w http.ResponseWriter, r *http.Request)
	if r.Method == http.MethodGet {
		if n := len(k.gets); n < len(k.streams) {
			stream = k.streams[n]
		}
		k.gets = append(k.gets, r.Header.Get("Last-Event-Id"))
	}
	k.mu.Unlock()
	switch {
	case stream != nil:
		stream(w, r)
	case r.Method == http.MethodGet:
		http.Error(w, "no stream", http.StatusMethodNotAllowed)
	case strings.Contains(body, `"hang"`):
		close(k.hung)
		<-r.Context().Done()
	default:
		sendJSON(w, http.StatusOK, result(0))
	}
}

func (k *kept) dial(t *testing.T) *mcphttp.Client {
	t.Helper()
	c := offline(t, k.ServeHTTP, nil)
	c.Use(era.LatestLegacy())
	return c
}

func begun(t *testing.T, k *kept) *mcphttp.Client {
	t.Helper()
	c := k.dial(t)
	if _, err := exchange(t.Context(), c, initialize); err != nil {
		t.Fatal(err)
	}
	return c
}

// After Detach Close sends nothing, whatever is under way; a session that comes later is ended.
func TestDetach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &kept{hung: make(chan struct{})}
		c := begun(t, k)
		for _, wrong := range []string{"", "2"} {
			if _, err := c.Detach(wrong); !errors.Is(err, mcphttp.ErrSessionLost) {
				t.Errorf("the session %q is detached: %v", wrong, err)
			}
		}
		if event, err := c.Detach("1"); event != "" || err != nil {
			t.Error(event, err)
		}
		hanging := make(chan error, 1)
		go func() {
			_, err := exchange(context.Background(), c, call(1, "hang"))
			hanging <- err
		}()
		<-k.hung
		before := k.seen()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-hanging; !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
		if after := k.seen(); !slices.Equal(after, before) {
			t.Errorf("Close sent %q", after[len(before):])
		}
		if _, err := c.Detach("1"); !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}

		c = begun(t, k)
		if _, err := c.Detach("2"); err != nil {
			t.Error(err)
		}
		if _, err := exchange(t.Context(), c, initialize); err != nil {
			t.Error(err)
		}
		if _, err := c.Detach("2"); !errors.Is(err, mcphttp.ErrSessionLost) {
			t.Error(err)
		}
		c.Close()
		k.mu.Lock()
		defer k.mu.Unlock()
		if last := k.all[len(k.all)-1]; last.Method != http.MethodDelete ||
			last.Header.Get("Mcp-Session-Id") != "3" {
			t.Errorf("the last request is %s of session %s", last.Method, last.Header.Get("Mcp-Session-Id"))
		}
	})
}

// sends returns a stream of events that stays open, and broken one that ends.
func sends(ids ...string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, id := range ids {
			events(w, event(id, notice))
		}
		events(w, ":\n\n")
		<-r.Context().Done()
	}
}

func broken(ids ...string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, id := range ids {
			events(w, event(id, notice))
		}
		breakOff()
	}
}

func refuses(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "unknown event", http.StatusBadRequest)
}

// Each client in a row asks for the events after those that the client before has handled, with the
// session and the revision in each request, and sends neither initialize nor DELETE.
func TestAttach(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		streams []func(http.ResponseWriter, *http.Request) // of each GET
		// by client: how many messages each Listen gets
		listens [][]int
		gets    []string // Last-Event-ID of each GET
		last    string   // what the last Detach returns
	}{
		{"events go on", []func(http.ResponseWriter, *http.Request){
			sends("a", "b"), sends("c"),
			sends("d"),
		}, [][]int{{2}, {1}, {1}}, []string{"", "b", "c"}, "d"},
		{
			"no event yet",
			[]func(http.ResponseWriter, *http.Request){sends("a"), sends(), sends("b")},
			[][]int{{1}, {0}, {1}},
			[]string{"", "a", "a"},
			"b",
		},
		{
			"a client that does not listen",
			[]func(http.ResponseWriter, *http.Request){sends("a"), sends("b")},
			[][]int{{1}, nil, {1}},
			[]string{"", "a"},
			"b",
		},
		{"a stream that breaks", []func(http.ResponseWriter, *http.Request){
			sends("a"), broken("b"),
			sends("c"),
		}, [][]int{{1}, {2}}, []string{"", "a", "b"}, "c"},
		{"the first Listen only", []func(http.ResponseWriter, *http.Request){
			sends("a"), sends("b"),
			sends("c"),
		}, [][]int{{1}, {1, 1}}, []string{"", "a", ""}, "c"},
		{"events are not kept", []func(http.ResponseWriter, *http.Request){
			sends("a"), refuses, sends(),
			sends(),
		}, [][]int{{1}, {0}, {0}}, []string{"", "a", "", ""}, ""},
		{
			"events have no ids",
			[]func(http.ResponseWriter, *http.Request){sends(""), sends("")},
			[][]int{{1}, {1}},
			[]string{"", ""},
			"",
		},
		{
			"an id that is no header",
			[]func(http.ResponseWriter, *http.Request){sends("a", "\x7f"), sends()},
			[][]int{{2}, {0}},
			[]string{"", ""},
			"",
		},
		{
			"an id that is long",
			[]func(http.ResponseWriter, *http.Request){sends(strings.Repeat("a", 5000)), sends()},
			[][]int{{1}, {0}},
			[]string{"", ""},
			"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := &kept{streams: test.streams}
				c := begun(t, k)
				last := ""
				for n, listens := range test.listens {
					if n > 0 {
						c = k.dial(t)
						if err := c.Attach("1", last); err != nil {
							t.Fatal(err)
						}
						if _, err := exchange(t.Context(), c, call(n, "x")); err != nil {
							t.Error(err)
						}
					}
					for _, want := range listens {
						ctx, cancel := context.WithCancel(t.Context())
						got := 0
						listened := make(chan error, 1)
						opened := make(chan struct{})
						go func() {
							listened <- c.Listen(ctx, func() { close(opened) }, func([]byte) error {
								if got++; got == want {
									go func() {
										synctest.Wait()
										cancel()
									}()
								}
								return nil
							})
						}()
						if <-opened; want == 0 {
							synctest.Wait()
							cancel()
						}
						if err := <-listened; !errors.Is(err, context.Canceled) || got != want {
							t.Errorf("client %d got %d messages; want %d: %v", n, got, want, err)
						}
					}
					var err error
					if last, err = c.Detach("1"); err != nil {
						t.Error(err)
					}
					c.Close()
				}
				if last != test.last || !slices.Equal(k.gets, test.gets) {
					t.Errorf("the last event is %q, want %q; Last-Event-ID is %q, want %q", last, test.last,
						k.gets, test.gets)
				}
				for n, r := range k.all[1:] {
					if r.Method == http.MethodDelete || k.in[n+1] == "POST "+initialize ||
						r.Header.Get("Mcp-Session-Id") != "1" ||
						r.Header.Get("Mcp-Protocol-Version") != era.LatestLegacy().Name {
						t.Error(k.in[n+1], r.Header)
					}
				}
			})
		})
	}
}

// A server refuses a session that it does not know with 404 or, where the session is from Attach
// and no request in it was accepted before, with 400.
func TestAttachUnknown(t *testing.T) {
	t.Parallel()
	of := func(code int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"m"}}`, code)
	}
	for _, test := range []struct {
		status   int
		body     string
		lost     bool // at once
		lostLate bool // after an accepted request, and in a session that is not from Attach
	}{
		{404, "", true, true},
		{404, of(-32001), true, true},
		{404, of(-32601), false, false},
		{400, "Bad Request", true, false},
		{400, of(-32000), true, false},
		{400, of(-32600), true, false},
		{400, of(-32601), false, false},
		{400, of(-32602), false, false},
		{401, "", false, false},
		{403, "", false, false},
		{500, "", false, false},
	} {
		for _, before := range []string{"attach", "attach, accepted", "initialize"} {
			t.Run(fmt.Sprint(test.status, test.body, " ", before), func(t *testing.T) {
				t.Parallel()
				refuse := false
				c := offline(t, func(w http.ResponseWriter, r *http.Request) {
					if w.Header().Set("Mcp-Session-Id", "s"); refuse && r.Method == http.MethodPost {
						sendJSON(w, test.status, test.body)
						return
					}
					sendJSON(w, http.StatusOK, result(0))
				}, nil)
				c.Use(era.LatestLegacy())
				want := test.lost
				if before == "initialize" {
					if _, err := exchange(t.Context(), c, initialize); err != nil {
						t.Fatal(err)
					}
					want = test.lostLate
				} else if err := c.Attach("s", ""); err != nil {
					t.Fatal(err)
				}
				if before == "attach, accepted" {
					if _, err := exchange(t.Context(), c, call(1, "x")); err != nil {
						t.Fatal(err)
					}
					want = test.lostLate
				}
				refuse = true
				_, err := exchange(t.Context(), c, call(2, "x"))
				var status *mcphttp.StatusError
				if errors.Is(err, mcphttp.ErrSessionLost) != want || !errors.As(err, &status) ||
					status.Status != test.status {
					t.Errorf("%v; lost: want %v", err, want)
				}
			})
		}
	}
	for _, status := range []int{400, 404} {
		c := offline(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "", status) }, nil)
		c.Use(era.LatestLegacy())
		if err := c.Attach("s", "e"); err != nil {
			t.Fatal(err)
		}
		if err := c.Listen(t.Context(), nil, nil); !errors.Is(err, mcphttp.ErrSessionLost) {
			t.Errorf("%d to GET: %v", status, err)
		}
	}
}

// Attach refuses what no header can carry, and changes nothing then.
func TestAttachRefuses(t *testing.T) {
	t.Parallel()
	k := new(kept)
	c := k.dial(t)
	for _, bad := range [][2]string{
		{"", ""},
		{" ", ""},
		{"a b", ""},
		{"a\n", ""},
		{"\x00", ""},
		{"a\x7f", ""},
		{"é", ""},
		{"s", "a\n"},
		{"s", "\r"},
		{"s", "\x00"},
		{"s", "\x7f"},
		{"s", "é"},
		{"s", strings.Repeat("e", 4097)},
	} {
		if err := c.Attach(bad[0], bad[1]); err == nil || c.Session() != "" {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if err := c.Attach("s", "an event"); err != nil || c.Session() != "s" {
		t.Error(err)
	}
}
