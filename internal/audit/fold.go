package audit

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	// foldFor is how long refusals of one owner that are equal to the first are folded.
	foldFor = time.Minute
	// maxFolds bounds the owners with folded refusals.
	maxFolds = 10_000
)

// folding keeps the last refusal of each owner, so that those like it need no line.
//
//	first refusal of an owner ──▶ a line ──▶ fold: equal ones are counted
//	                                          │ a minute has passed, another refusal
//	                                          │ differs, the table is full, Close
//	                                          ▼
//	                                         a line with the count
type folding struct {
	seed maphash.Seed

	mu        sync.Mutex // before that of the log
	table     *share.Table[owner.Key, *fold]
	unwritten repeats // of owners beyond their rate that have no fold
	timer     *time.Timer
	ended     bool
	wg        sync.WaitGroup // the timer
}

// A fold is a refusal with those like it.
type fold struct {
	like  uint64 // a hash of what is the same in all
	of    uint64 // the line of the first
	began time.Time
	first Entry // without what may be long
	more  repeats
	other int // that differ, and were beyond the rate
}

// repeats are refusals without their own line.
type repeats struct {
	n           int
	first, last time.Time
}

func (r *repeats) add(t time.Time) {
	if r.n++; r.n == 1 {
		r.first = t
	}
	r.last = t
}

// Refuse takes a decision that refuses a call of an owner. The first is written; those equal to it
// in all but their time and params are counted for a minute, and the count is written then, or when
// one differs. One that is beyond the rate of its owner is counted only. What cannot be written is
// counted, too: the call is refused in any case.
func (l *Log) Refuse(o owner.Key, e *Entry, beyond bool) {
	if len(l.outlets) == 0 {
		return
	}
	now := e.Time
	if now.IsZero() {
		now = l.opts.Now()
	}
	g := &l.folding
	like := g.hash(e)
	g.mu.Lock()
	defer g.mu.Unlock()
	f, _ := g.table.Find(o, o)
	switch {
	case f != nil && f.like == like && now.Sub(f.began) < foldFor:
		f.more.add(now)
		return
	case beyond && f != nil:
		f.more.add(now)
		f.other++
		return
	case beyond:
		g.unwritten.add(now)
		l.wakeLocked()
		return
	case f != nil:
		g.table.Remove(o)
		l.unfoldLocked(f)
	}
	b := l.line()
	defer l.release(b)
	b.text = l.append(b.text[:0], e, &b.walker, maxRefusalText)
	of, err := l.decide(o, b, true)
	if err != nil {
		g.unwritten.add(now)
		l.wakeLocked()
		return
	}
	f = &fold{like: like, of: of, began: now, first: brief(e)}
	gone, _ := g.table.Put(o, o, f, 1)
	for i := range gone {
		l.unfoldLocked(gone[i].Value)
	}
	l.wakeLocked()
}

// hash returns the same for refusals that can be folded.
func (g *folding) hash(e *Entry) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	for _, text := range [...]string{
		e.Decision, e.Principal, e.Kind, e.Method, e.Issuer, e.Address,
		e.Transport, e.Call, e.Upstream, e.Reason,
	} {
		_, _ = h.WriteString(text) // it does not fail
		_ = h.WriteByte(0)
	}
	_, _ = h.WriteString(strconv.Itoa(e.Error))
	return h.Sum64()
}

// brief returns what the line of a fold says of an entry.
func brief(e *Entry) Entry {
	text := func(s string) string { return strings.Clone(cut(s, maxRefusalText)) }
	return Entry{
		Principal: text(e.Principal), Kind: text(e.Kind), Method: text(e.Method), Issuer: text(e.Issuer),
		Address:   text(e.Address),
		Transport: text(e.Transport), Call: text(e.Call), Upstream: text(e.Upstream),
		Decision: e.Decision, Error: e.Error,
	}
}

// unfoldLocked writes how often a refusal was repeated. The folding is locked.
func (l *Log) unfoldLocked(f *fold) {
	if f.more.n == 0 {
		return
	}
	b := l.line()
	defer l.release(b)
	f.first.Time = l.opts.Now()
	b.text = l.append(b.text[:0], &f.first, &b.walker, maxRefusalText)
	b.text = strconv.AppendUint(append(b.text, `,"of":`...), f.of, 10)
	b.text = f.more.append(b.text, `,"repeats":`, f.more.n-f.other)
	if f.other > 0 {
		b.text = appendNumber(b.text, `,"unwritten":`, int64(f.other))
	}
	l.put(b)
}

func (r *repeats) append(dst []byte, name string, n int) []byte {
	dst = appendNumber(dst, name, int64(n))
	return appendTime(appendTime(dst, `,"first":`, r.first), `,"last":`, r.last)
}

// wakeLocked has folds end in time. The folding is locked.
func (l *Log) wakeLocked() {
	g := &l.folding
	if g.ended || g.timer != nil {
		return
	}
	wait := foldFor
	if _, f, ok := g.table.Oldest(); ok {
		wait = min(max(foldFor-l.opts.Now().Sub(f.began), time.Second), foldFor)
	}
	g.wg.Add(1)
	g.timer = time.AfterFunc(wait, func() {
		defer g.wg.Done()
		g.mu.Lock()
		defer g.mu.Unlock()
		g.timer = nil
		l.unfoldAllLocked(l.opts.Now())
		if g.table.Len() > 0 {
			l.wakeLocked()
		}
	})
}

// unfoldAllLocked writes the folds that have ended by a time, zero for all of them.
func (l *Log) unfoldAllLocked(by time.Time) {
	g := &l.folding
	for {
		o, f, ok := g.table.Oldest()
		if !ok || !by.IsZero() && by.Sub(f.began) < foldFor {
			break
		}
		g.table.Remove(o)
		l.unfoldLocked(f)
	}
	if g.unwritten.n == 0 {
		return
	}
	b := l.line()
	defer l.release(b)
	b.text = appendTime(b.text[:0], `{"time":`, l.opts.Now())
	b.text = appendMember(b.text, `,"decision":`, "refused", maxText)
	b.text = appendMember(b.text, `,"reason":`,
		"refusals of several callers that were not written one by one", maxText)
	b.text = g.unwritten.append(b.text, `,"unwritten":`, g.unwritten.n)
	g.unwritten = repeats{}
	l.put(b)
}

// unfold writes all folds, and has the timer end.
func (l *Log) unfold() {
	g := &l.folding
	g.mu.Lock()
	g.ended = true
	if g.timer != nil && g.timer.Stop() {
		g.wg.Done()
		g.timer = nil
	}
	l.unfoldAllLocked(time.Time{})
	g.mu.Unlock()
	g.wg.Wait()
}
