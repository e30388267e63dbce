//go:build unix

package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

const guardTimeout = time.Second // for a guard that does not read

// guardScript reads groups to kill when its input ends: by then anyone who wrote
// has died. Its first argument begins the variable of those that have left
// their groups; they are looked for until none is found.
const guardScript = `trap '' HUP INT QUIT TERM
g=
while read -r op id; do
	case $op in
	+) g="$g $id" ;;
	-) n=; for i in $g; do [ "$i" = "$id" ] || n="$n $i"; done; g=$n ;;
	q) exit 0 ;;
	esac
done
for i in $g; do kill -s KILL -- "-$i" 2>/dev/null; done
[ -r /proc/self/environ ] || exit 0
for r in 1 2 3 4 5; do
	found=
	for f in $(grep -lsF -- "$1" /proc/[0-9]*/environ); do
		f=${f#/proc/}; found=1
		kill -s KILL "${f%/environ}" 2>/dev/null
	done
	[ "$found" ] || exit 0
done
`

// watcher is the line to the guard's process.
type watcher struct {
	cmd *exec.Cmd
	in  *os.File
}

var errNoGuard = errors.New("there is no guard")

// start starts the process, in its own session: what ends this process and
// its group must not end it.
func (w *watcher) start(token string) error {
	r, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start a guard: %w", err)
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command("/bin/sh", "-c", guardScript, "farcall-guard", token) //nolint:noctx,gosec // it outlives everything here; the token is of letters and digits
	cmd.Stdin = r
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/bin:/bin"} // none of what it looks for
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = in.Close()
		return fmt.Errorf("start a guard: %w", err)
	}
	w.cmd, w.in = cmd, in
	return nil
}

// tell never blocks for long.
func (w *watcher) tell(line string) error {
	if w.in == nil {
		return errNoGuard
	}
	if err := w.in.SetWriteDeadline(time.Now().Add(guardTimeout)); err != nil {
		return fmt.Errorf("tell the guard: %w", err)
	}
	if _, err := w.in.WriteString(line); err != nil {
		return fmt.Errorf("tell the guard: %w", err)
	}
	return nil
}

// stop ends the process and reaps it.
func (w *watcher) stop() {
	if w.in == nil {
		return
	}
	if w.tell("q\n") != nil {
		_ = w.cmd.Process.Kill() // it does not read
	}
	_ = w.in.Close()
	w.in = nil
	_ = w.cmd.Wait() // how it ended does not matter
}

// pid returns the id of the process, 0 without one.
func (w *watcher) pid() int {
	if w.in == nil {
		return 0
	}
	return w.cmd.Process.Pid
}
