package supervise

import (
	"bytes"
	"os"
	"strconv"
	"time"
)

const (
	sweepRounds = 20
	sweepPause  = 5 * time.Millisecond
)

// sweep kills all processes that have the cookie in their environment and
// returns how many it has found.
func sweep(cookie string) (killed int) {
	seen := make(map[int]bool)
	for range sweepRounds { // they may be starting others
		found := marked(cookie)
		if len(found) == 0 {
			break
		}
		for _, p := range found {
			if !seen[p.Pid] {
				seen[p.Pid] = true
				killed++
			}
			_ = p.Kill()
			_ = p.Release()
		}
		timer := time.NewTimer(sweepPause)
		<-timer.C
	}
	return killed
}

// marked returns the processes that have the cookie in their environment. A
// handle holds on to its process, so that none that has got its id is hit.
func marked(cookie string) (found []*os.Process) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	names, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || !hasMark(pid, cookie) {
			continue
		}
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		if !hasMark(pid, cookie) { // it was another one before
			_ = p.Release()
			continue
		}
		found = append(found, p)
	}
	return found
}

func hasMark(pid int, cookie string) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && pid != os.Getpid() && bytes.Contains(env, []byte(cookie))
}
