package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The stream for what belongs to no call is there before Dial returns: a server
// may drop what it would send on it before.
func TestEventsFirst(t *testing.T) {
	for _, test := range []struct {
		name   string
		answer func(w http.ResponseWriter, r *http.Request, answered *atomic.Bool)
		probe  time.Duration
		want   bool
	}{
		{"late", func(w http.ResponseWriter, r *http.Request, answered *atomic.Bool) {
			<-time.After(30 * time.Millisecond)
			answered.Store(true)
			w.Header().Set("Content-Type", "text/event-stream")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, time.Minute, true},
		{"refused", func(w http.ResponseWriter, _ *http.Request, answered *atomic.Bool) {
			answered.Store(true)
			w.WriteHeader(http.StatusMethodNotAllowed)
		}, time.Minute, true},
		{"silent", func(_ http.ResponseWriter, r *http.Request, _ *atomic.Bool) {
			<-r.Context().Done()
		}, 30 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var answered atomic.Bool
			_, url := httpFake(t, legacyFake(nil),
				func(_ *fakeServer, w http.ResponseWriter, r *http.Request, _ []byte) bool {
					if r.Method != http.MethodGet {
						return false
					}
					test.answer(w, r, &answered)
					return true
				})
			mustDial(t, url, &ClientOptions{
				Era: "legacy", ProbeTimeout: test.probe,
				Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) {
					return nil, nil
				},
			})
			if answered.Load() != test.want {
				t.Errorf("the stream is there: %t", answered.Load())
			}
		})
	}
}

// One bad message of an event stream spoils neither the call nor the answers to
// what the server asks there.
func TestBadEvents(t *testing.T) {
	const asks = `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`
	for _, test := range []struct{ name, bad, want string }{
		{"none", ``, ""},
		{"no JSON", `garbage`, "no message"},
		{"a member twice", `{"jsonrpc":"2.0","id":1,"method":"roots/list","method":"ping"}`, "twice"},
		{"no jsonrpc", `{"method":"notifications/message"}`, "no message"},
		{"bad params", `{"jsonrpc":"2.0","method":"notifications/message","params":5}`, "no message"},
		{"unknown response", `{"jsonrpc":"2.0","id":777,"result":{}}`, ""},
		{"unknown progress", `{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`, ""},
		{"id null", `{"jsonrpc":"2.0","id":null,"method":"roots/list"}`, "id that is null"},
		{
			"in a batch", `[5,{"jsonrpc":"2.0"},{"jsonrpc":"2.0","method":"notifications/x"}]`,
			"no message",
		},
		{"an empty batch", `[]`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			answered := make(chan string, 10)
			_, url := httpFake(t, legacyFake(nil),
				func(_ *fakeServer, w http.ResponseWriter, r *http.Request, body []byte) bool {
					var m struct {
						ID     json.RawMessage
						Method string
					}
					json.Unmarshal(body, &m)
					switch {
					case m.Method == "tools/call":
						w.Header().Set("Content-Type", "text/event-stream")
						fmt.Fprintf(w, "data: %s\n\ndata: %s\n\n", test.bad, asks)
						_ = http.NewResponseController(w).Flush()
						<-answered
						fmt.Fprintf(w, "data: [%s,{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}]\n\n",
							`{"jsonrpc":"2.0"}`, m.ID)
					case m.Method == "" && r.Method == http.MethodPost:
						answered <- string(body)
						w.WriteHeader(http.StatusAccepted)
					default:
						return false
					}
					return true
				})
			var warned warnings
			c := mustDial(t, url, &ClientOptions{
				Era: "legacy", OnWarning: warned.add, Timeout: 10 * time.Second,
				Roots: func(context.Context) ([]spec.Root, error) { return nil, nil },
			})
			if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
				t.Error(err)
			}
			if len(answered) > 0 {
				t.Errorf("answered %s as well", <-answered)
			}
			if text := warned.text(); !strings.Contains(text, test.want) {
				t.Errorf("warnings %q, want %q", text, test.want)
			}
		})
	}
}

// An answer that is no message says so.
func TestBadAnswer(t *testing.T) {
	_, url := httpFake(t, legacyFake(nil),
		func(_ *fakeServer, w http.ResponseWriter, _ *http.Request, body []byte) bool {
			if !strings.Contains(string(body), "tools/call") {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","method":"x","method":"x"}`)
			return true
		})
	c := mustDial(t, url, &ClientOptions{Era: "legacy"})
	if _, err := c.CallTool(t.Context(), "x", nil); !errors.Is(err, farcall.ErrProtocol) ||
		!strings.Contains(err.Error(), "twice") {
		t.Error(err)
	}
}

// Progress belongs to the call with the token that it has, whatever stream it comes on.
func TestProgressElsewhere(t *testing.T) {
	reports := make(chan string)
	released := make(chan struct{})
	_, url := httpFake(t, legacyFake(nil), func(
		_ *fakeServer, w http.ResponseWriter, r *http.Request, body []byte,
	) bool {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
			}
		}
		json.Unmarshal(body, &m)
		switch {
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			for {
				_ = http.NewResponseController(w).Flush()
				select {
				case report := <-reports:
					fmt.Fprintf(w, "data: %s\n\n", report)
				case <-r.Context().Done():
					return true
				}
			}
		case m.Method == "tools/call":
			for n := range 3 {
				reports <- fmt.Sprintf(
					`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,`+
						`"progress":%d}}`, m.Params.Meta.ProgressToken, n)
			}
			reports <- `{"jsonrpc":"2.0","method":"notifications/progress",` +
				`"params":{"progressToken":"unknown","progress":9}}`
			<-released
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}`, m.ID)
		default:
			return false
		}
		return true
	})
	c := mustDial(t, url,
		&ClientOptions{Era: "legacy", OnLog: func(*spec.LoggingMessageNotificationParams) {}})
	var got []float64
	ctx := OnProgress(t.Context(), func(p spec.ProgressNotificationParams) {
		if got = append(got, p.Progress); len(got) == 3 {
			close(released)
		}
	})
	if _, err := c.CallTool(ctx, "x", nil); err != nil || !slices.Equal(got, []float64{0, 1, 2}) {
		t.Error(err, got)
	}
	c.cur.mu.Lock()
	defer c.cur.mu.Unlock()
	if len(c.cur.reports) != 0 {
		t.Errorf("%d calls still wait for progress", len(c.cur.reports))
	}
}
