package gateway

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// No client has more than its part of the calls that may wait for their clients.
func TestSuspendedPart(t *testing.T) {
	for what, who := range map[string]func(name string, n int) upstream.Caller{
		"principal": func(name string, n int) upstream.Caller {
			return upstream.Caller{Owner: owner.Named(name), Session: name + strconv.Itoa(n)}
		},
		"session": func(name string, _ int) upstream.Caller {
			return upstream.Caller{Owner: owner.Session(name, ""), Session: name}
		},
	} {
		for most, part := range map[int]int{40: 16, 1000: 100} {
			t.Run(what+" of "+strconv.Itoa(most), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testPart(t, most, part, who) })
			})
		}
	}
}

func testPart(t *testing.T, most, part int, who func(string, int) upstream.Caller) {
	table := newSuspension(most, time.Minute)
	n := 0
	goAway := func(name string) (string, error) {
		n++
		s := &suspended{id: strconv.Itoa(n), table: table, who: who(name, n), client: t.Context()}
		s.ctx, s.cancel = context.WithCancelCause(t.Context())
		table.calls[s.id] = s
		return s.id, table.detach(s)
	}
	var last string
	for range part {
		id, err := goAway("ann")
		if err != nil {
			t.Fatal(n, err)
		}
		last = id
	}
	id, err := goAway("ann")
	var wire *jsonrpc.Error
	if !errors.As(err, &wire) || wire.Code != jsonrpc.Overloaded ||
		!strings.Contains(err.Error(), strconv.Itoa(part)+" of them yours") ||
		string(wire.Data) != `{"retryable":true,"retryAfterMs":60000}` {
		t.Errorf("%v, %s", err, wire.Data)
	}
	if table.calls[id] != nil {
		t.Error("the call goes on")
	}
	if _, err := goAway("ben"); err != nil {
		t.Error(err)
	}
	if _, err := table.attach(t.Context(), last); err != nil { // one has come back
		t.Error(err)
	}
	if _, err := goAway("ann"); err != nil {
		t.Error(err)
	}
	<-time.After(2 * time.Minute)
	synctest.Wait()
	if table.count() != 0 || table.away.Counters().Owners != 0 {
		t.Errorf("%d wait, %+v", table.count(), table.away.Counters())
	}
	if _, err := goAway("ann"); err != nil {
		t.Error(err)
	}
	if err := table.close(t.Context()); err != nil || table.away.Used() != 0 {
		t.Errorf("%v, %+v", err, table.away.Counters())
	}
}
