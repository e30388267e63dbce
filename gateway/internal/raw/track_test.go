package raw

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// added tracks a frame.
func added(t *testing.T, k *tracker, frame string) *group {
	t.Helper()
	dec := newDecoder()
	var b jsonrpc.Batch
	if err := dec.Decode([]byte(frame), &b); err != nil {
		t.Fatal(err)
	}
	g, err := k.add(&b, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func idOf(t *testing.T, text string) jsonrpc.ID {
	t.Helper()
	id, err := jsonrpc.ParseID(jsonrpc.Raw(text))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The ids of one line are the same, those of different lines are not.
func TestKeys(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, same := range [][]string{
		{"1", "1.0", "1e0", "10e-1"},
		{"0", "-0", "0.0"},
		{"-7", "-7.0"},
		{"1.5"},
		{"9007199254740992", "9007199254740993"}, // some peers cannot tell them apart
		{"9007199254740991"},
		{"1e400"},
		{`"1"`, `"\u0031"`},
		{`"a/b"`, `"a\/b"`},
		{`""`},
		{"null"},
		{`"null"`},
	} {
		key := string(appendKey(nil, jsonrpc.Raw(same[0])))
		if other, taken := seen[key]; taken {
			t.Errorf("%s is the same as %s", same[0], other)
		}
		seen[key] = same[0]
		for _, id := range same {
			if got := string(appendKey(nil, jsonrpc.Raw(id))); got != key {
				t.Errorf("%s: %s, want %s", id, got, key)
			}
		}
	}
}

func TestTracker(t *testing.T) {
	t.Parallel()
	m := new(meter)
	k := &tracker{meter: m}
	added(t, k, call("1", "a", "[]"))
	added(t, k, call("1.0", "a", "[]")) // twice in flight
	batch := added(t, k,
		`[`+call(`"x"`, "a", "[]")+`,{"jsonrpc":"2.0","method":"n"},`+call("2", "a", "[]")+
			`,{"jsonrpc":"2.0","result":1,"id":9}]`)
	if g := added(t, k, `{"jsonrpc":"2.0","method":"n"}`); g != nil {
		t.Error("a notification is tracked")
	}
	if f := k.answered(idOf(t, "1")); f == nil || f.id != "1.0" {
		t.Errorf("%+v", f)
	}
	if f := k.answered(idOf(t, "3")); f != nil {
		t.Errorf("%+v", f)
	}
	if f := k.answered(idOf(t, `"\u0078"`)); f == nil || f.frame != batch {
		t.Errorf("%+v", f)
	}
	select {
	case <-k.whenIdle():
		t.Error("idle")
	default:
	}
	if left := k.giveUp(batch); len(left) != 1 || left[0].id != "2" {
		t.Errorf("%+v", left)
	}
	if left := k.giveUp(batch); len(left) != 0 {
		t.Errorf("%+v", left)
	}
	left := k.end(errShuttingDown)
	if len(left) != 1 || left[0].id != "1" {
		t.Errorf("%+v", left)
	}
	k.settle(4)
	<-k.whenIdle()
	if m.calls.Load() != 4 || m.inFlight.Load() != 4 {
		t.Errorf("%d calls, %d in flight", m.calls.Load(), m.inFlight.Load())
	}
}

// Calls that are never answered do not pile up, and the newest are the ones that
// are known.
func TestTrackerBounded(t *testing.T) {
	t.Parallel()
	m := new(meter)
	k := &tracker{meter: m}
	const n = 2 * trackedCalls
	for i := range n {
		if _, err := k.add(
			&jsonrpc.Batch{
				Messages: []jsonrpc.Message{{Kind: jsonrpc.Request, ID: jsonrpc.IntID(int64(i))}},
			}, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if have := len(k.young) + len(k.old); have > trackedCalls || k.open != have ||
		int(m.inFlight.Load()) != have {
		t.Errorf("%d are tracked, %d open, %d in flight", have, k.open, m.inFlight.Load())
	}
	if k.answered(idOf(t, strconv.Itoa(n-1))) == nil || k.answered(idOf(t, "0")) != nil {
		t.Error("the newest is not known, or the oldest is")
	}
	added(t, k, call(`"`+strings.Repeat("x", trackedID)+`"`, "a", "[]"))
	left := k.end(errShuttingDown)
	if !slices.IsSortedFunc(left, func(a, b *openCall) int { return int(a.number) - int(b.number) }) {
		t.Error("not in order")
	}
}

// FuzzTracker adds the calls of a frame and answers them with ids that are
// written otherwise: nothing may be left, nor found twice.
func FuzzTracker(f *testing.F) {
	f.Add([]byte(call("1", "a", "[]")), []byte(result("1.0", "1")))
	f.Add([]byte(`[`+call("1", "a", "[]")+`,`+call(`"\u0061"`, "a", "[]")+`]`),
		[]byte(`[{"jsonrpc":"2.0","result":1,"id":"a"}]`))
	f.Add([]byte(`{"id":1e400,"method":"x"}`), []byte(`{"id":null,"error":"x","result":null}`))
	f.Add([]byte(`{"id":{},"method":1}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, calls, answers []byte) {
		m := new(meter)
		k := &tracker{meter: m}
		dec, dec2 := newDecoder(), newDecoder()
		var b, back jsonrpc.Batch
		if dec.Decode(calls, &b) != nil {
			return
		}
		g, err := k.add(&b, true, nil)
		if err != nil {
			t.Fatal(err)
		}
		open := 0
		if g != nil {
			open = len(g.calls)
		}
		if dec2.Decode(answers, &back) == nil {
			for i := range back.Messages {
				if f := k.answered(back.Messages[i].ID); f != nil {
					open--
					k.settle(1)
				}
			}
		}
		for i := range b.Messages {
			id := b.Messages[i].ID
			if len(id.Raw()) == 0 || !wantsAnswer(&b.Messages[i]) {
				continue
			}
			if raw := id.Raw(); raw[0] == '"' { // as another peer might write it
				id = jsonrpc.StringID(string(scan.Unquote(raw)))
				if len(id.Raw()) > trackedID {
					continue
				}
			}
			if k.answered(id) != nil {
				open--
				k.settle(1)
			}
		}
		left := k.end(errShuttingDown)
		if len(left) != open || k.open != open {
			t.Errorf("%d left, %d open, want %d", len(left), k.open, open)
		}
	})
}
