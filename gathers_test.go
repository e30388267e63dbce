package farcall

import "testing"

// A call that is pending for long makes no call beside it yield before it is written, once the
// writes have shown that no other goroutine joins; calls that are made together yield.
func TestGathers(t *testing.T) {
	var s state
	write := func(frames int) {
		for range frames {
			s.queue([]byte("{}"))
		}
		s.takeOut().release()
	}
	yields := func(calls int) (n int) {
		for range calls {
			if s.gathers() {
				n++
			}
			write(1)
		}
		return n
	}
	s.await([]*call{{id: 1}})
	if n := yields(100); n != 0 {
		t.Errorf("%d of 100 calls yielded though none was in flight beside them", n)
	}
	s.await([]*call{{id: 2}})
	if n := yields(160); n != 10 {
		t.Errorf("%d of 160 calls yielded beside a pending one", n)
	}
	write(2)
	if !s.gathers() {
		t.Error("a call does not yield after two were written together")
	}
}
