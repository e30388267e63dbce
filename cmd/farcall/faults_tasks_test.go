//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/mcp/spec"
)

var (
	taskIDForm     = regexp.MustCompile(`"taskId":"([^"]+)"`)
	taskStatusForm = regexp.MustCompile(`"status":"([a-z_]+)"`)
)

// modern makes a request of the revision of 2026-07-28 at a node, and returns its answer; "": there
// is none.
func (h *history) modern(node int, method, name, params string) string {
	meta := strings.Replace(modernMeta, `Capabilities":{}`,
		`Capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}`, 1)
	r := h.request(0,
		fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,%s}}`, method, params, meta))
	r.URL.Host, r.URL.Path = h.l.webs[node], "/mcp/t"
	r.Header.Del("Mcp-Session-Id")
	r.Header.Set("Mcp-Protocol-Version", spec.Revision20260728)
	r.Header.Set("Mcp-Method", method)
	r.Header.Set("Mcp-Name", name)
	ctx, cancel := context.WithTimeout(r.Context(), 2*callLimit)
	defer cancel()
	began := time.Now()
	resp, err := http.DefaultClient.Do(r.WithContext(ctx))
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.longest = max(h.longest, time.Since(began))
	if err != nil {
		return ""
	}
	return string(body)
}

// startTask has a node start a task, and notes it when the client has its id.
func (h *history) startTask(node int, rng *rand.Rand) {
	body := h.modern(node, spec.MethodToolsCall, "demo_task",
		fmt.Sprintf(`"name":"demo_task","arguments":{"ms":%d}`, 10+rng.IntN(3000)))
	if id := taskIDForm.FindStringSubmatch(body); id != nil {
		h.mu.Lock()
		h.tasks = append(h.tasks, id[1])
		h.mu.Unlock()
	}
}

// askTask asks a node for a task that a client has the id of: each node knows it, or says that it
// cannot read now what is known, and an end does not change. It reports whether there was an
// answer.
func (h *history) askTask(node int, id string) bool {
	body := h.modern(node, spec.MethodTasksGet, id, fmt.Sprintf(`"taskId":%q`, id))
	status := taskStatusForm.FindStringSubmatch(body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.Contains(body, "no such task") {
		h.l.t.Errorf("seed %d: node %d does not know the task %s: %s", h.seed, node, id, body)
	}
	if status == nil {
		return false
	}
	if end := h.ends[id]; end != "" && end != status[1] {
		h.l.t.Errorf("seed %d: the task %s, which was %s, is %s at node %d", h.seed, id, end,
			status[1], node)
	}
	if spec.TaskEnded(status[1]) {
		h.ends[id] = status[1]
	}
	return true
}

// taskClient starts tasks, and asks for those that there are, until the context ends.
func (h *history) taskClient(ctx context.Context) {
	rng := rand.New(rand.NewPCG(h.seed*mix, 1<<33))
	for ctx.Err() == nil {
		h.startTask(rng.IntN(h.l.size), rng)
		for range 3 {
			h.mu.Lock()
			n := len(h.tasks)
			h.mu.Unlock()
			if n > 0 {
				h.askTask(rng.IntN(h.l.size), h.tasks[rng.IntN(n)])
			}
		}
	}
}

// checkTasks asks all nodes for the tasks.
func (h *history) checkTasks() {
	for i, id := range h.tasks {
		until(h.l.t, "an answer", func() string {
			return map[bool]string{true: "an answer"}[h.askTask(i%h.l.size, id)]
		})
	}
	failed := 0
	for _, end := range h.ends {
		if end == spec.TaskFailed {
			failed++
		}
	}
	h.l.t.Logf("seed %d: %d tasks, %d have ended, %d of them have failed", h.seed, len(h.tasks),
		len(h.ends), failed)
}
