package limit

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slack is how far the clock may be behind what was seen of it: goroutines read it
	// and are overtaken.
	slack = int64(time.Second)
	// backDays is how far back across midnight a clock may go that is taken for a
	// correction: midnight comes again and is no new day.
	backDays = int64(3600)

	secondsOfDay = int64(86400)
)

// An instant is a time of a clock.
type instant struct {
	at    int64         // ns since the clock began; stands still rather than going back
	epoch int64         // the day, counted
	left  time.Duration // of the day
}

// A clock makes time that does not go back of one that may.
type clock struct {
	now  func() time.Time
	from atomic.Pointer[origin]
	last atomic.Int64 // the latest instant, or up to a millisecond before

	day   atomic.Int64 // since 1970, as the clock says
	epoch atomic.Int64

	mu sync.Mutex // for from, day and epoch to change
}

// An origin relates the two.
type origin struct {
	wall time.Time
	at   int64
}

func newClock(now func() time.Time) *clock {
	c := &clock{now: now}
	t := now()
	c.from.Store(&origin{wall: t})
	c.day.Store(t.Unix() / secondsOfDay)
	return c
}

func (c *clock) read() instant {
	from := c.from.Load() // before the clock is read: anyone who reads it later knows of its steps
	t := c.now()
	at := from.at + int64(t.Sub(from.wall))
	switch last := c.last.Load(); {
	case at < last-slack:
		at = c.stepBack(t)
	case at > last+int64(time.Millisecond):
		c.last.CompareAndSwap(last, at) // another's will do
	}
	seconds := t.Unix()
	if seconds/secondsOfDay != c.day.Load() {
		c.turn(seconds)
	}
	of := time.Duration(seconds%secondsOfDay)*time.Second + time.Duration(t.Nanosecond())
	return instant{at: at, epoch: c.epoch.Load(), left: day - of}
}

// stepBack lets time go on from where it was.
func (c *clock) stepBack(t time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, last := c.from.Load(), c.last.Load()
	at := from.at + int64(t.Sub(from.wall))
	if at < last-slack {
		c.from.Store(&origin{wall: t, at: last})
		return last
	}
	return at // another goroutine has done it
}

// turn counts a new day. One that was there already is not new: a clock that goes
// back across midnight gives no second quota. One that was far ahead and
// is set right does not make today last until then.
func (c *clock) turn(seconds int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch today, known := seconds/secondsOfDay, c.day.Load(); {
	case today > known:
		c.day.Store(today)
		c.epoch.Add(1)
	case known*secondsOfDay-seconds > backDays:
		c.day.Store(today)
	}
}
