package faulty

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Process is a process that runs.
type Process struct {
	PID, Parent int
	Command     string
}

func (p Process) String() string { return fmt.Sprintf("%d (%s)", p.PID, p.Command) }

// Descendants returns the processes below this one, those that wait to be reaped
// included, by id. It knows nothing but on systems with /proc.
func Descendants() []Process {
	all := make(map[int]Process)
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if p, _, ok := inspect(pid); ok {
				all[pid] = p
			}
		}
	}
	var found []Process
	self := os.Getpid()
	for _, p := range all {
		at := p
		for range len(all) { // ids may have been used again: no circles
			if at.Parent == self {
				found = append(found, p)
				break
			}
			var ok bool
			if at, ok = all[at.Parent]; !ok {
				break
			}
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return found
}

// Alive reports whether a process runs. One that has ended and was not reaped
// does not.
func Alive(pid int) bool {
	_, state, ok := inspect(pid)
	return ok && state != "Z" && state != "X"
}

// Gone waits until none of the processes runs, for 5 s at most, and returns
// those that do.
func Gone(pids ...int) (left []int) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for range 2500 {
		left = slices.DeleteFunc(slices.Clone(pids), func(pid int) bool { return !Alive(pid) })
		if len(left) == 0 {
			return nil
		}
		<-tick.C
	}
	return left
}

// NoneLeft waits until this process has no descendants, for 5 s at most, and
// returns those it has.
func NoneLeft() (left []Process) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 1000 {
		if left = Descendants(); len(left) == 0 {
			break
		}
		<-tick.C
	}
	return left
}

// inspect reads /proc/PID/stat: the name stands between the first and the last
// parenthesis, and may have some itself.
func inspect(pid int) (p Process, state string, ok bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if err != nil || open < 0 || end < open {
		return p, "", false
	}
	rest := strings.Fields(string(stat[end+1:]))
	if len(rest) < 2 {
		return p, "", false
	}
	parent, err := strconv.Atoi(rest[1])
	return Process{PID: pid, Parent: parent, Command: string(stat[open+1 : end])}, rest[0], err == nil
}
