package mcp

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

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
		{"silent", func(_ http.ResponseWriter, r *http.Request, _ *atomic.Bool) { <-r.Context().Done() }, 30 * time.Millisecond, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			var answered atomic.Bool
			_, url := httpFake(t, legacyFake(nil), func(_ *fakeServer, w http.ResponseWriter, r *http.Request, _ []byte) bool {
				if r.Method != http.MethodGet {
					return false
				}
				test.answer(w, r, &answered)
				return true
			})
			mustDial(t, url, &ClientOptions{
				Era: "legacy", ProbeTimeout: test.probe,
				Elicit: func(context.Context, *spec.ElicitRequestParams) (*spec.ElicitResult, error) { return nil, nil },
			})
			if answered.Load() != test.want {
				t.Errorf("the stream is there: %t", answered.Load())
			}
		})
	}
}
