//go:build !unix

package supervise

// watcher does nothing where there are no process groups.
type watcher struct{}

func (*watcher) start(string) error { return nil }
func (*watcher) tell(string) error  { return nil }
func (*watcher) stop()              {}

func (*watcher) pid() int { return 0 }
