//go:build !linux

package load

import (
	"runtime"
	"time"
)

// nap waits until a time that is near, more precisely than timers do.
func nap(at time.Time) {
	for time.Now().Before(at) {
		runtime.Gosched()
	}
}
