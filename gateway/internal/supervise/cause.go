package supervise

import "github.com/farcall-dev/farcall/stream"

// Cause is how a child has ended on its own.
type Cause uint8

// The causes.
const (
	Exited Cause = iota // with the status 0
	Failed              // with another status
	Killed              // by a signal
	Causes              // how many there are
)

func (c Cause) String() string { return [...]string{"exited", "failed", "killed"}[c] }

func causeOf(e *stream.ExitError) Cause {
	switch {
	case e.State == nil || e.State.Success():
		return Exited
	case e.State.Exited():
		return Failed
	}
	return Killed
}
