package inspect

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func (p *tab) breaks(filter, act string) int {
	p.t.Helper()
	var b breakpoint
	p.call("break", breakpoint{Filter: filter, Act: act}, &b)
	return b.ID
}

// A frame is not held for ever, and not when its connection has ended.
func TestHeldTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		i, err := New(t.Context(), &Options{Servers: []Server{{InProcess: playground()}}})
		if err != nil {
			t.Fatal(err)
		}
		defer i.Close()
		x := i.slots[0]
		frame := []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)
		row := i.store.Peek(1, '>', frame)
		b := &breakpoint{Act: actHold, page: &page{ctx: t.Context()}}
		began := time.Now()
		on, back := x.hold(t.Context(), b, &row, frame, true)
		if string(on) != string(frame) || back != nil {
			t.Errorf("after the deadline %s goes on, %s back", on, back)
		}
		if took := time.Since(began); took != holdTime {
			t.Errorf("it was held for %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if on, back := x.hold(ctx, b, &row, frame, true); on != nil || back != nil {
			t.Errorf("after the end of the connection %s goes on, %s back", on, back)
		}
		late := &breakpoint{Act: actSend, Delay: 300, page: b.page}
		began = time.Now()
		if on, _ := x.hold(t.Context(), late, &row, frame, true); string(on) != string(frame) ||
			time.Since(began) != 300*time.Millisecond {
			t.Errorf("%s after %v", on, time.Since(began))
		}
		if open := i.questions.views(); len(open) > 0 {
			t.Errorf("held are %+v", open)
		}
	})
}

// The user of a page needs a permission for breakpoints, and one for replay.
func TestMay(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*Options{
		"open":   {Open: true},
		"denied": {May: func(*http.Request, string) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, p, _ := inspector(t, o)
			p.fails("break", breakpoint{Act: actHold}, "no permission to break")
			go func() { _, _ = i.ask(t.Context(), questionView{Held: true}) }() // until the test ends
			e := p.until("a held frame", func(e event) bool { return e.Type == eventQuestion })
			var q questionView
			if err := jsonv2.Unmarshal(e.Data, &q); err != nil {
				t.Fatal(err)
			}
			p.fails("answer", answerParams{ID: q.ID, Result: jsonrpc.Raw(`{}`)}, "no permission to break")
			p.fails("replay", replayParams{}, "no permission to replay")
		})
	}
	_, p, _ := inspector(t, &Options{Open: true, May: func(_ *http.Request, action string) bool {
		return action == ActionBreak
	}})
	p.breaks("a", actHold)
	p.fails("replay", replayParams{}, "no permission to replay")
}
