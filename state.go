package farcall

import (
	"fmt"
	"slices"

	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// state is everything about a connection that changes while it lives. It is
// changed by Peer.update only.
type state struct {
	calls   map[uint64]*call // ours, that wait for an answer, by id
	served  inflight         // theirs, being handled
	running int              // handlers that run
	batches *batchWork       // the last one that is not answered: its calls may have ended
	waiting int              // handlers that wait for their own call
	bytes   int              // of the messages in served and notes
	large   int              // of these and note, those of more than budget.Free
	note    *serving         // the notification that is being handled
	notes   []*serving       // notifications that wait for their turn
	out     *outbox          // frames to write; nil when there are none
	written int              // bytes of the frames that are being written
	owed    int              // of these, the bytes of answers
	room    chan struct{}    // closed when frames were written; nil when no goroutine waits
	behind  *progressQueue   // the stream that the reading waits for
	err     error            // why the connection ended; nil while it lives
	subs    *subscriptions   // nil: there was none yet
	counts  counts

	unanswered *unanswered

	// Side by side, since each connection has its own.
	writing bool // a goroutine writes
	reading bool // the other end may still send
	cut     bool // the calls in flight are answered: their handlers' answers are not sent
	drain   bool // Shutdown was called, or the other end sends no more

	alone uint8 // writes in a row that had one frame each: see gathers
}

// counts are the members of Stats that only grow.
type counts struct {
	requests, notifications, refused, overloaded, dropped, droppedEvents uint64
}

// update changes the state. f must not block and must not call out.
func (p *Peer) update(f func(s *state)) {
	p.mu.Lock()
	f(&p.st)
	s := &p.st
	bad := s.running < 0 || s.waiting < 0 || s.bytes < 0 || s.large < 0 || s.written < 0
	if held := s.held(); int64(held) != p.loan.Held() {
		p.loan.Force(held) // admit has drawn for what is more; answers are in memory anyway
	}
	p.mu.Unlock()
	if bad {
		//nolint:forbidigo // the counters are ours alone; a wrong one would disable the limits
		panic(fmt.Sprintf(
			"farcall: a counter of the connection is negative: %d running, %d waiting, %d bytes, %d of "+
				"large messages, %d written",
			s.running, s.waiting, s.bytes, s.large, s.written))
	}
}

// await books calls of this end. The reading goes on for them, see Peer.holdBack.
func (s *state) await(calls []*call) {
	if len(calls) == 0 {
		return
	}
	if s.calls == nil {
		s.calls = map[uint64]*call{}
	}
	for _, c := range calls {
		s.calls[c.id] = c
	}
	if s.behind != nil {
		s.behind.release()
	}
}

// yieldsAlone is how many writes of one frame in a row make yielding rare.
const yieldsAlone = 16

// wroteOne counts a write of one frame. After yieldsAlone of them it counts those again.
func (s *state) wroteOne() {
	if s.alone++; s.alone == 2*yieldsAlone {
		s.alone = yieldsAlone
	}
}

// gathers reports whether a call may be written together with others when its goroutine yields
// first. That several calls are in flight is not enough: one may be pending for hours beside a
// caller that makes one call after the other, and yielding costs that caller a wakeup of a thread.
// So where the writes had one frame each lately, only some calls yield, to find out when that ends.
func (s *state) gathers() bool {
	return len(s.calls) > 1 && s.alone <= yieldsAlone
}

// unsent is how many bytes wait for the other end to read them.
func (s *state) unsent() int {
	if s.out == nil {
		return s.written
	}
	return s.written + s.out.bytes
}

// unsentStep is in which steps what is unsent draws from the budget: most connections never do.
const unsentStep = 1 << 20

// heldUnsent is what the budget holds for what is unsent.
func (s *state) heldUnsent() int {
	if s.err != nil {
		return 0
	}
	return (s.unsent() + s.heldEvents()) &^ (unsentStep - 1)
}

// held is what the connection holds of the budget.
func (s *state) held() int { return s.large + s.heldUnsent() }

// idle reports whether nothing is left to finish.
func (s *state) idle() bool {
	return !s.working() && s.unsent() == 0 && !s.writing
}

// working reports whether calls or notifications of the other end are being handled.
func (s *state) working() bool {
	return s.served.len()+len(s.notes) > 0 || s.note != nil || s.running > 0 || s.batches != nil
}

// unread is how many answers, and bytes of answers, wait for the other end to
// read them.
func (s *state) unread() (answers, bytes int) {
	if s.out == nil {
		return 0, s.owed
	}
	return s.out.answers, s.owed + s.out.owed
}

// queue adds a frame to what is to be written and reports whether it has taken
// the frame's memory.
func (s *state) queue(frame []byte) (taken bool) {
	if s.out == nil {
		s.out = outboxes.Get().(*outbox) //nolint:errcheck // only those are in it
	}
	return s.out.add(frame)
}

// answer queues an answer, as queue does.
func (s *state) answer(frame []byte) (taken bool) {
	taken = s.queue(frame)
	s.out.answers++
	s.out.owed += len(frame)
	return taken
}

// enter books a request. It reports false when its id is in use already.
func (s *state) enter(v *serving) bool {
	if !s.served.add(v) {
		return false
	}
	s.book(v.size)
	return true
}

// book counts a message that is to be handled, and unbook one that was.
func (s *state) book(size int) {
	s.bytes += size
	s.large += heavy(size)
}

func (s *state) unbook(size int) {
	s.bytes -= size
	s.large -= heavy(size)
}

// heavy is what a message holds of the budget.
func heavy(size int) int {
	if size <= budget.Free {
		return 0
	}
	return size
}

// handle makes v the notification that is being handled; nil: there is none.
func (s *state) handle(v *serving) {
	if s.note != nil {
		s.large -= heavy(s.note.size)
	}
	if s.note = v; v != nil {
		s.large += heavy(v.size)
	}
}

// leave removes a request from the table.
func (s *state) leave(v *serving) {
	s.served.remove(v)
	s.unbook(v.size)
}

// wake tells those who wait for room that there may be some.
func (s *state) wake() {
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// fewServed is how many requests in flight are searched one by one. Most
// connections never have more, and an idle one then holds no map.
const fewServed = 8

// inflight is the requests of the other end that are being handled, by id.
type inflight struct {
	few  []*serving
	many map[string]*serving
}

func (f *inflight) len() int { return len(f.few) + len(f.many) }

// find returns what is being handled under an id, compared byte by byte. The id
// null finds nothing: any number of requests may have it.
func (f *inflight) find(id jsonrpc.ID) *serving {
	if id.IsNull() {
		return nil
	}
	for _, v := range f.few {
		if v.req.ID.Equal(id) {
			return v
		}
	}
	return f.many[string(id.Raw())]
}

// add reports false when the id is in use.
func (f *inflight) add(v *serving) bool {
	if f.find(v.req.ID) != nil {
		return false
	}
	if len(f.few) < fewServed || v.req.ID.IsNull() {
		f.few = append(f.few, v)
		return true
	}
	if f.many == nil {
		f.many = map[string]*serving{}
	}
	f.many[string(v.req.ID.Raw())] = v
	return true
}

func (f *inflight) remove(v *serving) {
	i := slices.Index(f.few, v)
	if i < 0 {
		delete(f.many, string(v.req.ID.Raw()))
		return
	}
	last := len(f.few) - 1
	f.few[i], f.few[last] = f.few[last], nil
	f.few = f.few[:last]
}

// all returns every request.
func (f *inflight) all() []*serving {
	all := slices.Clone(f.few)
	for _, v := range f.many {
		all = append(all, v)
	}
	return all
}
