package load

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	// by how much the kernel may wake a thread late: its default timer slack, and some
	late = 60 * time.Microsecond
	spin = 80 * time.Microsecond // what is not worth a sleep
)

// nap waits until a time that is near. The timers of Go are late by up to a millisecond when
// nothing else happens, as epoll counts in milliseconds; those of the kernel are not.
func nap(at time.Time) {
	for {
		d := time.Until(at)
		switch {
		case d <= 0:
			return
		case d > spin:
			left := unix.NsecToTimespec(int64(d - late))
			_ = unix.Nanosleep(&left, nil) // when a signal has interrupted it, the loop goes on
		}
	}
}
