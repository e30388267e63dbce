package host

import "sync"

// maxWaiting bounds the statuses that wait for OnStatus.
const maxWaiting = 1024

// A teller calls OnStatus and OnChange, in its own goroutine so that no server waits for them.
type teller struct {
	onStatus func(Status)
	onChange func(kind string)
	wake     chan struct{} // has one element when there is something to tell
	done     chan struct{}

	mu       sync.Mutex
	over     bool
	statuses []Status
	kinds    kinds
}

func (t *teller) start(h *Host) {
	t.onStatus, t.onChange = h.opts.OnStatus, h.opts.OnChange
	t.wake, t.done = make(chan struct{}, 1), make(chan struct{})
	if t.onStatus == nil && t.onChange == nil {
		close(t.done)
		return
	}
	go t.run()
}

// status reports a status, which is not made without a callback.
func (t *teller) status(of func() Status) {
	if t.onStatus == nil {
		return
	}
	s := of()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.statuses) >= maxWaiting {
		t.statuses = t.statuses[1:]
	}
	t.statuses = append(t.statuses, s)
	t.awake()
}

func (t *teller) changed(k kinds) {
	if t.onChange == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kinds |= k
	t.awake()
}

func (t *teller) awake() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// end tells what there still is and waits for it. No more events may follow.
func (t *teller) end() {
	t.mu.Lock()
	t.over = true
	t.awake()
	t.mu.Unlock()
	<-t.done
}

func (t *teller) run() {
	defer close(t.done)
	for {
		t.mu.Lock()
		statuses, k, over := t.statuses, t.kinds, t.over
		t.statuses, t.kinds = nil, 0
		t.mu.Unlock()
		if len(statuses) == 0 && k == 0 {
			if over {
				return
			}
			<-t.wake
			continue
		}
		if t.onStatus != nil {
			for _, s := range statuses {
				t.onStatus(s)
			}
		}
		t.tellChanges(k)
	}
}

func (t *teller) tellChanges(k kinds) {
	if t.onChange == nil {
		return
	}
	for _, list := range []string{"tools", "prompts", "resources"} {
		if k&kindsOf(list) != 0 {
			t.onChange(list)
		}
	}
}
