package gateway

import (
	"sync"
	"time"
)

// tellEvery is how long clients are not told of a changed list again: each time
// costs as much as there are clients, whatever a server does.
const tellEvery = 100 * time.Millisecond

// A pace calls do for a kind at once, and then not sooner than tellEvery after the
// last time. It may be used by any number of goroutines.
type pace struct {
	do func(kind string)

	mu    sync.Mutex
	last  map[string]time.Time
	next  map[string]*time.Timer // kinds that wait for their time
	ended bool
}

func (p *pace) note(kind string) {
	p.mu.Lock()
	wait := tellEvery - time.Since(p.last[kind])
	if p.ended || p.next[kind] != nil {
		p.mu.Unlock()
		return
	}
	if p.last == nil {
		p.last, p.next = map[string]time.Time{}, map[string]*time.Timer{}
	}
	if wait > 0 {
		p.next[kind] = time.AfterFunc(wait, func() { p.due(kind) })
		p.mu.Unlock()
		return
	}
	p.last[kind] = time.Now()
	p.mu.Unlock()
	p.do(kind)
}

func (p *pace) due(kind string) {
	p.mu.Lock()
	delete(p.next, kind)
	p.last[kind] = time.Now()
	ended := p.ended
	p.mu.Unlock()
	if !ended {
		p.do(kind)
	}
}

// end forgets what waits.
func (p *pace) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for _, t := range p.next {
		t.Stop()
	}
}
