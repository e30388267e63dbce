package upstream

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestDeaf gives up what a client does not take, and not what it takes slowly.
func TestDeaf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLab(t, legacy).upstream(Options{})
		never := make(chan struct{})
		var told atomic.Int32
		tell := func(take func()) (time.Duration, Status) {
			c := toolCall("tell", "x", Caller{})
			told.Store(0)
			c.Progress = func(context.Context, jsonrpc.Raw) { told.Add(1); take() }
			began := time.Now()
			mustDo(t, u, c, "x")
			return time.Since(began), u.Status()
		}
		if d, s := tell(func() {
			<-time.After(20 * time.Second)
		}); d != time.Minute || told.Load() != 3 || s.Dropped != 0 {
			t.Errorf("a slow one: %v, %d told, %+v", d, told.Load(), s)
		}
		if d, s := tell(func() {
			<-never
		}); d < 30*time.Second || d > time.Minute || told.Load() != 1 || s.Dropped != 3 ||
			s.InFlight != 0 {
			t.Errorf("a deaf one: %v, %d told, %+v", d, told.Load(), s)
		}
		close(never)
		synctest.Wait()
		if told.Load() != 1 {
			t.Errorf("%d were notified at last", told.Load())
		}
	})
}

// TestNoteBytes bounds what is kept for one that reads nothing.
func TestNoteBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newLab(t, legacy).upstream(Options{})
		hold := make(chan struct{})
		pc := u.newPendingCall(t.Context(),
			&Call{Method: "x", Progress: func(context.Context, jsonrpc.Raw) {
				<-hold
			}})
		big := jsonrpc.Raw(`"` + strings.Repeat("x", 100_000) + `"`)
		for range 100 {
			pc.progressed(big)
		}
		synctest.Wait()
		u.mu.Lock()
		if pc.notes.bytes > 1<<20 || len(pc.notes.all) < 10 {
			t.Errorf("%d bytes in %d notes are kept", pc.notes.bytes, len(pc.notes.all))
		}
		u.mu.Unlock()
		close(hold)
	})
}
