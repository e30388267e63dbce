package farcall_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// leastSize is what Options.MaxInFlightBytes counts for a message at least.
const leastSize = 512

const smallNote = `{"jsonrpc":"2.0","method":"w"}`

// arrived waits until the peer has read what was written, also when there is no room for
// a call.
func (w *wire) arrived() {
	w.t.Helper()
	w.write(`{"id":1}`)
	w.expect(`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":1}`)
}

// A small notification that waits costs more than its bytes.
func TestSmallNotificationFlood(t *testing.T) {
	for name, frame := range map[string]string{
		"alone": smallNote, "in a batch": `[` + smallNote + `]`,
		"escaped": `{"jsonrpc":"2.0","method":"\u0077"}`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHold()
			w := newWire(t, stream.NDJSON, h,
				&farcall.Options{MaxInFlightBytes: 10*leastSize + leastSize - 1})
			w.write(smallNote)
			<-h.started
			for range 10 {
				w.write(frame)
			}
			w.arrived()
			if st := w.p.Stats(); st.Queued != 10 {
				t.Errorf("%+v", st)
			}
			w.write(frame)
			w.expectEnd("more notifications arrived")
			close(h.release)
		})
	}
}

// What waits is no more than its bytes and what it counts for at least: a million of
// small notifications do not cost half a gigabyte.
func TestSmallNotificationsHeap(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, &farcall.Options{MaxInFlightBytes: 16 << 20})
	w.write(smallNote)
	<-h.started
	before := heap()
	all := strings.Repeat(smallNote+"\n", 16<<20/leastSize)
	w.write(all[:len(all)-1])
	w.arrived()
	if st := w.p.Stats(); st.Queued != 16<<20/leastSize {
		t.Errorf("%+v", st)
	}
	if grown := heap() - before; grown > 20<<20 {
		t.Errorf("%d MiB wait, booked as 16", grown>>20)
	}
	w.write(smallNote)
	w.expectEnd("more notifications arrived")
	close(h.release)
}

// A notification that waits does not hold on to the batch in which it came.
func TestNotificationHoldsNoBatch(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, nil)
	w.write(smallNote)
	<-h.started
	pad := strings.Repeat(" ", 20_000)
	batch := `[` + smallNote + strings.Repeat(",1", 1000) + pad + `]`
	before := heap()
	for range 100 {
		w.write(batch)
		if got := w.readWhole(); strings.Count(got, "-32600") != 1000 {
			t.Fatalf("got %.200s", got)
		}
	}
	if st := w.p.Stats(); st.Queued != 100 {
		t.Errorf("%+v", st)
	}
	if grown := heap() - before; grown > 8<<20 {
		t.Errorf("100 notifications hold %d KiB", grown>>10)
	}
	close(h.release)
}

// Requests count as much, one by one and in a batch, and so does the space around one.
func TestSmallRequests(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, &farcall.Options{MaxInFlightBytes: 4 * leastSize})
	small := func(id int) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","method":"echo","id":%d}`, id)
	}
	w.write(waitRequest("1"))
	<-h.started
	w.write(`[` + small(2) + `,` + small(3) + `,` + small(4) + `]`)
	w.expect(`[` + result("null", "2") + `,` + result("null", "3") + `,` + result("null", "4") + `]`)
	w.write(`[` + small(5) + `,` + small(6) + `,` + small(7) + `,` + small(8) + `]`)
	w.expect(`[` + overloaded("5") + `,` + overloaded("6") + `,` + overloaded("7") + `,` +
		overloaded("8") + `]`)
	w.write(waitRequest("9"), waitRequest("10"), waitRequest("11"))
	for range 3 {
		<-h.started
	}
	w.write(small(12))
	w.expect(overloaded("12"))
	close(h.release)
	for range 4 {
		w.read()
	}
	w.ping()
}

func TestSpaceCounts(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.Header, h, &farcall.Options{MaxInFlightBytes: 20_000})
	w.write(waitRequest("1"))
	<-h.started
	w.write(strings.Repeat(" ", 20_000) + pingRequest)
	w.expect(overloaded(`"ping"`))
	close(h.release)
	w.read()
}

// The values of a stream without a consumer are bounded, small ones too.
func TestSmallValuesThatAreNotTaken(t *testing.T) {
	if n := farcall.UntakenValues(2<<20, jsonrpc.Raw(`1`)); n < 1_000_000 || n > 1<<20 {
		t.Errorf("a stream holds %d values of a byte", n)
	}
}

// heap is what is in use.
func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what was made during the first one goes with this one, as does what pools hold
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
