//go:build amd64 || arm64

package sandbox

import (
	"os"
	"strconv"
	"strings"
)

// usedTogether is the memory of a process and all that it has started: what no file could give
// back. A page that processes share counts for each of them first, and exactly when that comes to
// more than the bound. Orphans are children of the first process of the namespace, so none is
// missed; one that forks while this looks is found the next time.
func usedTogether(pid int, bound int64) int64 {
	pids := family(pid)
	var sum int64
	for _, p := range pids {
		s := statusOf(p)
		sum += kilobytes(s["RssAnon"]) + kilobytes(s["RssShmem"]) + kilobytes(s["VmSwap"]) +
			kilobytes(s["VmPTE"])
	}
	if sum <= bound {
		return sum
	}
	sum = 0
	for _, p := range pids {
		sum += proportional(p)
	}
	return sum
}

// family is a process and its descendants.
func family(pid int) []int {
	out := []int{pid}
	for i := 0; i < len(out); i++ {
		dir := "/proc/" + strconv.Itoa(out[i]) + "/task/"
		tasks, _ := os.ReadDir(dir)
		for _, task := range tasks {
			children, _ := os.ReadFile(dir + task.Name() + "/children")
			for child := range strings.FieldsSeq(string(children)) {
				if n, err := strconv.Atoi(child); err == nil {
					out = append(out, n)
				}
			}
		}
	}
	return out
}

// proportional is the memory of a process with its share of what it shares.
func proportional(pid int) (sum int64) {
	s := statusOf(pid)
	exact := fields("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if exact["Pss_Anon"] == "" {
		return kilobytes(s["RssAnon"]) + kilobytes(s["RssShmem"])
	}
	return kilobytes(exact["Pss_Anon"]) + kilobytes(exact["Pss_Shmem"]) + kilobytes(exact["SwapPss"]) +
		kilobytes(s["VmPTE"])
}

// statusOf is what /proc says of a process: nothing when it has ended.
func statusOf(pid int) map[string]string { return fields("/proc/" + strconv.Itoa(pid) + "/status") }

func fields(file string) map[string]string {
	out := make(map[string]string)
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		out[name] = strings.TrimSpace(value)
	}
	return out
}

func kilobytes(text string) int64 {
	number, _, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
