package raw

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

const (
	// trackedCalls bounds the calls of a connection that are tracked: of more, the
	// older half is forgotten.
	trackedCalls = 1 << 16
	// trackedID is the longest id that is tracked, in bytes.
	trackedID = 4 << 10
)

var errForgotten = errors.New("raw: too many later calls are under way")

// tracker knows which calls of a connection have no answer yet. An id is found
// however it is written (1, 1.0, "a", "\u0061"), because some peers write it
// again.
type tracker struct {
	meter *meter

	mu         sync.Mutex
	young, old map[string]*openCall // by key
	// calls that are not answered, or with answers that are not settled
	open  int
	last  uint64        // number of the last call
	ended error         // why there shall be no more calls
	idle  chan struct{} // closed when nothing is open; nil when no goroutine waits
	key   []byte        // scratch
}

// openCall is a call that is in flight.
type openCall struct {
	id       string // as it was written
	version  jsonrpc.Version
	method   string
	frame    *group
	size     int
	number   uint64
	began    time.Time
	answered bool
	next     *openCall                // another call with the same id
	parent   string                   // the traceparent of the message, "": it has none
	done     func(jsonrpc.Raw, error) // of its admission; nil when it is over, or there was none
}

// finish ends the admission of a call that was taken out of the table.
func (f *openCall) finish(result jsonrpc.Raw, err error) {
	if f.done != nil {
		f.done(result, err)
		f.done = nil
	}
}

// group is the calls of one frame.
type group struct {
	array bool
	calls []openCall
}

// add tracks the calls in a frame; the group is nil when there are none. It fails
// when there shall be no more. It takes what ends the admission of each call out of
// asked, which has a place for each message, or none at all.
func (t *tracker) add(
	b *jsonrpc.Batch, methods bool, asked []func(jsonrpc.Raw, error),
) (*group, error) {
	n := 0
	for i := range b.Messages {
		if wantsAnswer(&b.Messages[i]) {
			n++
		}
	}
	if n == 0 {
		return nil, nil //nolint:nilnil // no calls, no group
	}
	g := &group{array: b.Array, calls: make([]openCall, 0, n)}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		return nil, t.ended
	}
	for i := range b.Messages {
		m := &b.Messages[i]
		if !wantsAnswer(m) || len(m.ID.Raw()) > trackedID {
			continue
		}
		g.calls = append(g.calls,
			openCall{id: string(m.ID.Raw()), version: m.Version, frame: g, size: len(m.Raw), began: now})
		f := &g.calls[len(g.calls)-1]
		if methods {
			f.method, f.parent = string(m.Method), parentOf(m)
		}
		if len(asked) > 0 {
			f.done, asked[i] = asked[i], nil
		}
		t.put(f, m.ID)
	}
	return g, nil
}

// parentOf returns the traceparent of a message, as it stands there or in the _meta of its params.
func parentOf(m *jsonrpc.Message) string {
	const name, longest = "traceparent", 256
	if !bytes.Contains(m.Raw, []byte(name)) {
		return ""
	}
	raw := m.Member(name)
	if raw == nil {
		raw = scan.Member(scan.Member(m.Params, "_meta"), name)
	}
	if len(raw) < 2 || len(raw) > longest || raw[0] != '"' {
		return ""
	}
	return string(scan.Unquote(raw))
}

// wantsAnswer reports whether a message is a call. One that is not valid has an
// answer as well, when it has an id.
func wantsAnswer(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.Request || m.Kind == jsonrpc.Invalid && !m.ID.IsAbsent() && !m.ID.IsNull()
}

func (t *tracker) put(f *openCall, id jsonrpc.ID) {
	if len(t.young) >= trackedCalls/2 {
		for _, f := range t.old {
			for ; f != nil; f = f.next {
				t.open--
				t.meter.inFlight.Add(-1)
				f.finish(nil, errForgotten)
			}
		}
		t.old, t.young = t.young, nil
	}
	if t.young == nil {
		t.young = map[string]*openCall{}
	}
	t.key = appendKey(t.key[:0], id.Raw())
	key := f.id
	if key != string(t.key) {
		key = string(t.key)
	}
	f.next = t.young[key]
	t.young[key] = f
	t.open++
	t.last++
	f.number = t.last
	t.meter.begin()
}

// appendKey appends what all spellings of an id have in common.
func appendKey(dst []byte, id jsonrpc.Raw) []byte {
	switch {
	case len(id) == 0 || id[0] == 'n':
		return append(dst, id...)
	case id[0] == '"':
		return append(scan.AppendUnquoted(append(dst, '"'), id), '"')
	}
	number, _ := jsonrpc.ParseID(id)
	if n, ok := number.Uint(); ok && n < 1<<53 {
		return append(dst, id...)
	}
	f, _ := strconv.ParseFloat(string(id), 64)
	if f >= 0 && f < 1<<53 && f == float64(uint64(f)) {
		return strconv.AppendUint(dst, uint64(f), 10)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, 64)
}

// answered removes the call that a response answers from the table, nil when there
// is none. It stays open until it is settled.
func (t *tracker) answered(id jsonrpc.ID) *openCall {
	if len(id.Raw()) > trackedID {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.key = appendKey(t.key[:0], id.Raw())
	for _, m := range [...]map[string]*openCall{t.young, t.old} {
		f := m[string(t.key)]
		if f == nil {
			continue
		}
		if f.next != nil {
			m[string(t.key)] = f.next
		} else {
			delete(m, string(t.key))
		}
		f.answered, f.next = true, nil
		return f
	}
	return nil
}

// cancelled returns what ends the admission of a call that will not be answered, nil
// when there is no such call.
func (t *tracker) cancelled(id jsonrpc.ID) (done func(jsonrpc.Raw, error)) {
	if len(id.Raw()) > trackedID {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.key = appendKey(t.key[:0], id.Raw())
	for _, m := range [...]map[string]*openCall{t.young, t.old} {
		if f := m[string(t.key)]; f != nil {
			done, f.done = f.done, nil
			return done
		}
	}
	return nil
}

// settle notes that the answers of n calls have gone out.
func (t *tracker) settle(n int) {
	if n == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open -= n
	t.wake()
}

// busy reports whether a call is open.
func (t *tracker) busy() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open > 0
}

func (t *tracker) wake() {
	if t.open > 0 {
		return
	}
	if t.last >= 1024 { // it may have grown, and maps do not shrink
		t.young, t.old, t.last = nil, nil, 0
	}
	if t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// whenIdle returns a channel that is closed when no call is open.
func (t *tracker) whenIdle() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.wake()
	return idle
}

// giveUp takes those calls of a frame that have no answer out of the table.
func (t *tracker) giveUp(g *group) (left []*openCall) {
	for i := range g.calls {
		f := &g.calls[i]
		t.mu.Lock()
		answered := f.answered
		t.mu.Unlock()
		if !answered && t.remove(f) {
			left = append(left, f)
		}
	}
	return left
}

// remove takes a call out of the table. It reports false when it is not there.
func (t *tracker) remove(f *openCall) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.key = appendKey(t.key[:0], jsonrpc.Raw(f.id))
	for _, m := range [...]map[string]*openCall{t.young, t.old} {
		first := m[string(t.key)]
		for at := &first; *at != nil; at = &(*at).next {
			if *at != f {
				continue
			}
			*at = f.next
			if first == nil {
				delete(m, string(t.key))
			} else {
				m[string(t.key)] = first
			}
			f.answered, f.next = true, nil
			return true
		}
	}
	return false
}

// drain lets no more calls in.
func (t *tracker) drain(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = why
	}
}

// end takes every call out of the table, and lets no more in.
func (t *tracker) end(why error) (left []*openCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = why
	for _, m := range [...]map[string]*openCall{t.old, t.young} {
		for _, f := range m {
			for ; f != nil; f = f.next {
				f.answered = true
				left = append(left, f)
			}
		}
	}
	t.young, t.old = nil, nil
	slices.SortFunc(left, func(a, b *openCall) int { return cmp.Compare(a.number, b.number) })
	return left
}
