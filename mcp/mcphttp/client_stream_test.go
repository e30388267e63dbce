package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// TestResume has streams that end before the response, and what the client makes
// of it: the Last-Event-ID of each GET, and when it came.
func TestResume(t *testing.T) {
	type get struct {
		id    string
		after time.Duration // the least time since the connection before
	}
	one := result(1)
	for _, c := range []struct {
		name  string
		parts []func(w http.ResponseWriter) // the POST, and each GET
		gets  []get
		want  []string
		err   error
		open  bool // the last connection is left open
	}{
		{
			"closed on purpose, with retry",
			[]func(http.ResponseWriter){
				func(w http.ResponseWriter) { events(w, "id: 1\nretry: 5000\ndata:\n\n") },
				func(w http.ResponseWriter) { events(w, event("2", one)) },
			},
			[]get{{"1", 5 * time.Second}},
			[]string{one},
			nil, false,
		},
		{
			"broken, twice",
			[]func(http.ResponseWriter){
				func(w http.ResponseWriter) { events(w, event("1", notice)+"id: 2\ndata: {"); breakOff() },
				func(w http.ResponseWriter) { events(w, event("3", notice)); breakOff() },
				func(w http.ResponseWriter) { events(w, event("4", one)) },
			},
			[]get{{"1", 250 * time.Millisecond}, {"3", 250 * time.Millisecond}},
			[]string{notice, notice, one},
			nil, false,
		},
		{
			"nothing new at first, and a server that restarts",
			[]func(http.ResponseWriter){
				func(w http.ResponseWriter) { events(w, event("1", "")) },
				func(w http.ResponseWriter) { events(w, ": nothing\n\n") },
				func(w http.ResponseWriter) { http.Error(w, "", http.StatusServiceUnavailable) },
				func(w http.ResponseWriter) { events(w, event("", one)) },
			},
			[]get{{"1", 250 * time.Millisecond}, {"1", 500 * time.Millisecond}, {"1", time.Second}},
			[]string{one},
			nil, false,
		},
		{
			"the rest stays open after the response",
			[]func(http.ResponseWriter){
				func(w http.ResponseWriter) { events(w, event("1", "")) },
				func(w http.ResponseWriter) { events(w, event("2", one)) },
			},
			[]get{{"1", 250 * time.Millisecond}},
			[]string{one},
			nil, true,
		},
		{
			"a server without resumption",
			[]func(http.ResponseWriter){
				func(w http.ResponseWriter) { events(w, event("1", "")) },
				func(w http.ResponseWriter) { w.WriteHeader(http.StatusMethodNotAllowed) },
			},
			[]get{{"1", 0}},
			nil,
			farcall.ErrProtocol, false,
		},
		{
			"the session is gone",
			[]func(http.ResponseWriter){
				func(w http.ResponseWriter) { events(w, event("1", "")) },
				func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
			},
			[]get{{"1", 0}},
			nil,
			mcphttp.ErrSessionLost, false,
		},
		{
			"another kind of content",
			[]func(http.ResponseWriter){
				func(w http.ResponseWriter) { events(w, event("1", "")) },
				func(w http.ResponseWriter) { sendJSON(w, 200, one) },
			},
			[]get{{"1", 0}},
			nil,
			farcall.ErrProtocol, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gets []get
				var last time.Time
				x := offline(t, func(w http.ResponseWriter, r *http.Request) {
					body := bodyOf(r)
					if body == initialize || r.Method == http.MethodDelete {
						w.Header().Set("Mcp-Session-Id", "s")
						sendJSON(w, 200, result(0))
						return
					}
					if r.Method == http.MethodGet {
						gets = append(gets, get{r.Header.Get("Last-Event-Id"), time.Since(last)})
						if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Mcp-Session-Id") != "s" ||
							r.Header.Get("Mcp-Protocol-Version") == "" {
							t.Error(r.Header)
						}
					}
					last = time.Now()
					part := c.parts[len(gets)]
					if part(w); c.open && len(gets) == len(c.gets) {
						<-r.Context().Done()
					}
				}, nil)
				if _, err := exchange(t.Context(), x, initialize); err != nil {
					t.Fatal(err)
				}
				x.Use(era.LatestLegacy())
				got, err := exchange(t.Context(), x, call(1, "x"))
				if !slices.Equal(got, c.want) || !errors.Is(err, c.err) {
					t.Errorf("%q, %v", got, err)
				}
				ok := len(gets) == len(c.gets)
				for i := 0; ok && i < len(gets); i++ {
					ok = gets[i].id == c.gets[i].id && gets[i].after >= c.gets[i].after &&
						(c.gets[i].after == 0 || gets[i].after <= c.gets[i].after*5/4)
				}
				if !ok {
					t.Errorf("GETs: %v, want %v", gets, c.gets)
				}
			})
		})
	}
}

// TestResumeInitialize resumes the answer that has begun the session.
func TestResumeInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := offline(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost:
				w.Header().Set("Mcp-Session-Id", "new")
				events(w, event("1", ""))
			case r.Header.Get("Mcp-Session-Id") != "new":
				t.Errorf("%s without the session", r.Method)
			default:
				events(w, event("2", result(0)))
			}
		}, nil)
		if got, err := exchange(t.Context(), x, initialize); err != nil || len(got) != 1 {
			t.Error(got, err)
		}
	})
}

func TestResumeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gets := 0
		x := offline(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				gets++
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			events(w, event("1", ""))
		}, nil)
		begin := time.Now()
		_, err := exchange(t.Context(), x, call(1, "x"))
		if took := time.Since(begin); !errors.Is(err, mcphttp.ErrConnect) || gets != 9 ||
			took < 30*time.Second || took > 3*time.Minute {
			t.Errorf("%v after %d GETs, %v", err, gets, took)
		}
	})
}

// TestPoll has a server that takes every connection, says nothing on it and
// closes it in order, as one may with a tool that is still running (SEP-1699).
func TestPoll(t *testing.T) {
	for retry, most := range map[string]int{"": 10, "retry: 1\n\n": 3000, "retry: 10000\n\n": 10} {
		synctest.Test(t, func(t *testing.T) {
			gets := 0
			x := offline(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					gets++
					events(w, ": still busy\n\n"+retry)
					return
				}
				events(w, event("1", "")+retry)
			}, nil)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := exchange(ctx, x, call(1, "x")); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			if gets > most || gets < most/3 {
				t.Errorf("%q: %d GETs in a minute", retry, gets)
			}
		})
	}
}

func TestBatchIsAnsweredInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := offline(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				events(w, event("2", "["+result(1)+"]"))
				<-r.Context().Done()
				return
			}
			events(w, event("1", result(2)))
		}, nil)
		got, err := exchange(t.Context(), x, "["+call(1, "a")+","+notice+","+call(2, "b")+"]")
		if err != nil || len(got) != 2 {
			t.Error(got, err)
		}
	})
}

func TestCancel(t *testing.T) {
	for _, c := range []struct {
		name  string
		frame string
		want  []string // what the server gets after the call
	}{
		{"stateless", stateless(1, "x", ""), nil},
		{
			"legacy", `{"jsonrpc":"2.0","id":"a","method":"x"}`,
			[]string{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"deadline exceeded"}}`},
		},
		{"initialize", initialize, nil},
		{"notification", notice, nil},
		{"batch", "[" + call(1, "a") + "," + call(2, "b") + "]", []string{
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,` +
				`"reason":"deadline exceeded"}}`,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2,` +
				`"reason":"deadline exceeded"}}`,
		}},
	} {
		for _, kind := range []string{"silent", "events"} {
			t.Run(c.name+"/"+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var log recorder
					closed := 0
					x := offline(t, func(w http.ResponseWriter, r *http.Request) {
						body := log.note(r)
						if strings.Contains(body, "cancelled") {
							w.WriteHeader(http.StatusAccepted)
							return
						}
						if kind == "events" {
							events(w, event("1", ""))
						}
						<-r.Context().Done()
						closed++
					}, nil)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := exchange(ctx, x, c.frame)
					if c.name == "notification" && kind == "events" {
						if err != nil { // its answer is of no interest
							t.Error(err)
						}
						return
					}
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					if c.name == "notification" {
						<-time.After(2 * time.Second) // it goes on, so that it harms no other request
					}
					synctest.Wait()
					var want []string
					for _, w := range c.want {
						want = append(want, "POST "+w)
					}
					if seen := log.seen(); !slices.Equal(seen[1:], want) || closed != 1 {
						t.Errorf("%q, %d closed", seen, closed)
					}
				})
			})
		}
	}
}

// TestCancelIsBounded has a server that does not take the cancellation: neither
// the call nor Close may wait for it for long.
func TestCancelIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := offline(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		for range 2 { // the second has no time at all
			if _, err := exchange(ctx, x, call(1, "x")); !errors.Is(err, context.DeadlineExceeded) ||
				time.Since(begin) != time.Second {
				t.Error(err, time.Since(begin))
			}
		}
		x.Close()
		if took := time.Since(begin); took > 3*time.Second {
			t.Error(took)
		}
	})
}

func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := offline(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodDelete {
				<-r.Context().Done()
			}
			w.Header().Set("Mcp-Session-Id", "s")
			sendJSON(w, 200, result(0))
		}, nil)
		if _, err := exchange(t.Context(), x, initialize); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		x.Close()
		if took := time.Since(begin); took != 2*time.Second {
			t.Error(took)
		}
	})
}

func TestListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets []string
		var last time.Time
		x := offline(t, func(w http.ResponseWriter, r *http.Request) {
			gets = append(gets,
				fmt.Sprintf("%s %v", r.Header.Get("Last-Event-Id"), time.Since(last).Round(time.Second)))
			last = time.Now()
			switch len(gets) {
			case 1:
				events(w, event("1", ""), event("2", notice), "retry: 10000\n\n")
			case 2:
				breakOff()
			case 3:
				w.WriteHeader(http.StatusBadGateway)
			case 4:
				events(w, event("", notice), ": beat\n\n", event("3", notice),
					"event: other\nid: 4\ndata: {}\n\n")
				breakOff()
			default:
				events(w, event("5", notice))
				<-r.Context().Done()
			}
		}, nil)
		x.Use(era.LatestLegacy())
		last = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		err := x.Listen(ctx, nil, func(frame []byte) error {
			if string(frame) != notice {
				t.Errorf("%s", frame)
			}
			if n++; n == 4 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) || n != 4 {
			t.Error(err, n)
		}
		if len(gets) != 5 || gets[0] != " 0s" || !strings.HasPrefix(gets[1], "2 1") ||
			!strings.HasPrefix(gets[4], "4 1") {
			t.Errorf("%q", gets)
		}
	})
}

// TestResponseOnTheWrongStream has a server that sends a response on the first
// stream that it gets hold of.
func TestResponseOnTheWrongStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		called := make(chan struct{})
		x := offline(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				close(called)
				events(w, event("1", ""))
			} else if r.Header.Get("Last-Event-Id") == "" {
				<-called
				events(w, event("2", notice), event("3", result(1)), event("4", result(9)))
			}
			<-r.Context().Done()
		}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var heard []string
		ended := make(chan error)
		go func() {
			ended <- x.Listen(ctx, nil, func(frame []byte) error {
				heard = append(heard, string(frame))
				return nil
			})
		}()
		if got, err := exchange(t.Context(), x, call(1, "x")); err != nil ||
			!slices.Equal(got, []string{result(1)}) {
			t.Error(got, err)
		}
		synctest.Wait()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) ||
			!slices.Equal(heard, []string{notice, result(9)}) {
			t.Errorf("%v, %q", err, heard)
		}
	})
}

func TestListenEnds(t *testing.T) {
	no := errors.New("no")
	for _, c := range []struct {
		name    string
		rev     *era.Revision
		answer  http.HandlerFunc
		session bool
		err     error
	}{
		{"no stream", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusMethodNotAllowed)
		}, false, nil},
		{"stateless", era.Latest(), func(http.ResponseWriter, *http.Request) {
			t.Error("a GET")
		}, false, nil},
		{"nothing to get", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
		}, false, nil},
		{"lost", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusNotFound)
		}, true, mcphttp.ErrSessionLost},
		{"unauthorized", nil, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		}, true, farcall.ErrProtocol},
		{"json", nil, func(w http.ResponseWriter, _ *http.Request) {
			sendJSON(w, 200, "{}")
		}, true, farcall.ErrProtocol},
		{"event too large", nil, func(w http.ResponseWriter, _ *http.Request) {
			events(w, event("", strings.Repeat("x", 5000)))
		}, true, farcall.ErrProtocol},
		{"reply", nil, func(w http.ResponseWriter, _ *http.Request) {
			events(w, event("", notice))
		}, true, no},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := offline(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						c.answer(w, r)
						return
					}
					if c.session {
						w.Header().Set("Mcp-Session-Id", "s")
					}
					sendJSON(w, 200, result(0))
				}, &mcphttp.DialOptions{MaxEvent: 4096})
				if _, err := exchange(t.Context(), x, initialize); err != nil {
					t.Fatal(err)
				}
				x.Use(c.rev)
				opened := 0
				if err := x.Listen(t.Context(), func() {
					opened++
				}, func([]byte) error { return no }); !errors.Is(err, c.err) {
					t.Error(err)
				}
				if opened != 1 {
					t.Errorf("opened %d times", opened)
				}
			})
		})
	}
}

// TestListenBacksOff counts how often a server that is down is asked in an hour.
func TestListenBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gets atomic.Int32
		x := offline(t, func(w http.ResponseWriter, r *http.Request) {
			gets.Add(1)
			w.WriteHeader(http.StatusServiceUnavailable)
		}, nil)
		ended := make(chan error)
		go func() { ended <- x.Listen(t.Context(), nil, nil) }()
		<-time.After(time.Hour)
		x.Close()
		if err := <-ended; !errors.Is(err, farcall.ErrClosed) {
			t.Error(err)
		}
		if n := gets.Load(); n < 90 || n > 130 {
			t.Errorf("%d requests", n)
		}
	})
}
