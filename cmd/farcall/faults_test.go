//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const (
	// faultsVar says how many seeds TestFaults has, for three nodes and for five together, and
	// faultsFromVar which is the first one. oldVar names a farcall of another version: the nodes
	// change between the two versions, one after another.
	faultsVar, faultsFromVar, oldVar = "FARCALL_FAULTS", "FARCALL_FAULTS_FROM", "FARCALL_FAULTS_OLD"

	faultClients = 4
	faultPause   = 10 * time.Millisecond // of a client in go test, which leaves tests beside it room
	mix          = 0x9e3779b97f4a7c15    // makes seeds differ in all bits
	callLimit    = 30 * time.Second
	maxTestSkew  = 20 * time.Second // by which clocks differ in a history with faulty programs
)

// The calls of a history.
const (
	callPlain  = "plain"  // of a session, by way of any node
	callSigned = "signed" // one signature, at several nodes at once
	callKeyed  = "keyed"  // one idempotency key, at several nodes at once
)

// A faultCall is what has become of a call that clients have made, at one node or several.
type faultCall struct {
	kind     string
	answered int // by a result
	unknown  int // by something else that may have been executed
}

// A history is the calls of a seed.
type history struct {
	l       *faultLab
	seed    uint64
	session [2]string // of the key, and of the signature

	mu      sync.Mutex
	calls   map[string]*faultCall // by the text that their tool writes
	longest time.Duration
	tasks   []string          // their ids, which clients have
	ends    map[string]string // how those that have ended did
}

// send makes one call at a node, and notes its outcome.
func (h *history) send(node int, kind, text string, r *http.Request) {
	u := r.Clone(r.Context())
	u.URL.Host = h.l.webs[node]
	u.Body, _ = r.GetBody()
	began := time.Now()
	resp, err := (&http.Client{Timeout: 2 * callLimit}).Do(u)
	body := ""
	if err == nil {
		var raw []byte
		raw, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		body = string(raw)
	}
	took := time.Since(began)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.longest = max(h.longest, took)
	m := h.calls[text]
	if m == nil {
		m = &faultCall{kind: kind}
		h.calls[text] = m
	}
	switch {
	case err == nil && strings.Contains(body, `"content":[{`) && strings.Contains(body, text):
		m.answered++
	case errors.Is(err, syscall.ECONNREFUSED), strings.Contains(body, `"sent":"no"`),
		strings.Contains(body, `"id":null`):
	default:
		m.unknown++
	}
}

func (h *history) request(of int, body string) *http.Request {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost,
		"http://rpc.example/mcp", strings.NewReader(body))
	if err != nil {
		h.l.t.Error(err)
		return nil
	}
	r.Host = "rpc.example"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if id := h.session[of]; id != "" {
		r.Header.Set("Mcp-Session-Id", id)
		r.Header.Set("Mcp-Protocol-Version", spec.Revision20251125)
	}
	if of == 0 {
		r.Header.Set("Authorization", "Bearer fc_local")
	} else if err := guard.SignRequest(r, "ci", []byte(clusterSecret)); err != nil {
		h.l.t.Error(err)
	}
	return r
}

// begin begins the sessions of a history, at any nodes.
func (h *history) begin(rng *rand.Rand) {
	for of := range h.session {
		node := rng.IntN(h.l.size)
		until(h.l.t, "begun", func() string {
			r := h.request(of, initializeBody)
			r.URL.Host = h.l.webs[node]
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				return err.Error()
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			if h.session[of] = resp.Header.Get("Mcp-Session-Id"); h.session[of] == "" {
				return string(text)
			}
			return "begun"
		})
	}
}

// client makes calls until the context ends.
func (h *history) client(ctx context.Context, c int) {
	rng := rand.New(rand.NewPCG(h.seed*mix, uint64(c)))
	for n := 0; ctx.Err() == nil; n++ {
		text := fmt.Sprintf("s%d-c%d-n%d.", h.seed, c, n)
		kind := []string{callPlain, callSigned, callKeyed}[rng.IntN(3)]
		meta, of := "", 0
		switch kind {
		case callKeyed:
			meta = fmt.Sprintf(`,"_meta":{"idempotencyKey":%q}`, text)
		case callSigned:
			of = 1
		}
		if h.l.pauses {
			<-time.After(faultPause)
		}
		call := func(i int) *http.Request {
			return h.request(of, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d%d%05d,"method":"tools/call",`+
				`"params":{"name":"note","arguments":{"Text":%q}%s}}`, i+1, c, n, text, meta))
		}
		nodes, r := rng.Perm(h.l.size), call(0)
		if kind == callPlain {
			h.send(nodes[0], kind, text, r)
			continue
		}
		var wg sync.WaitGroup
		for i, node := range nodes[:3] {
			mine := r
			if kind == callKeyed {
				mine = call(i)
			}
			wg.Go(func() { h.send(node, kind, text, mine) })
		}
		wg.Wait()
	}
}

// executed counts the lines that the children have written.
func (l *faultLab) executed() map[string]int {
	text, err := os.ReadFile(l.log)
	if err != nil {
		l.t.Error(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(text)) {
		count[strings.TrimSpace(line)]++
	}
	return count
}

// check compares a history with what was executed. A call that has a result was executed, and none
// was twice; of one signature at most one call has a result.
func (h *history) check(what string) (calls, unknown int) {
	executed := h.l.executed()
	for text, m := range h.calls {
		n := executed[text]
		switch {
		case n > 1:
			h.l.t.Errorf("seed %d, %s: the %s call %s was executed %d times", h.seed, what, m.kind, text, n)
		case m.answered > 0 && n == 0:
			h.l.t.Errorf("seed %d, %s: the %s call %s has a result, and was not executed", h.seed, what,
				m.kind, text)
		case m.kind == callSigned && m.answered > 1:
			h.l.t.Errorf("seed %d, %s: a nonce was accepted %d times: %s", h.seed, what, m.answered, text)
		case m.answered+m.unknown == 0 && n > 0:
			h.l.t.Errorf("seed %d, %s: the %s call %s was executed, and its error says that it was not sent",
				h.seed, what, m.kind, text)
		}
		if calls++; m.answered == 0 && m.unknown > 0 {
			unknown++
		}
	}
	if h.longest > callLimit {
		h.l.t.Errorf("seed %d, %s: a call took %v", h.seed, what, h.longest)
	}
	return calls, unknown
}

// run makes the history of a seed.
func (l *faultLab) run(
	seed uint64, longest time.Duration,
) (calls, unknown int, took time.Duration) {
	rng := rand.New(rand.NewPCG(seed*mix, 1<<32))
	h := &history{l: l, seed: seed, calls: map[string]*faultCall{}, ends: map[string]string{}}
	h.begin(rng)
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for c := range faultClients {
		wg.Go(func() { h.client(ctx, c) })
	}
	wg.Go(func() { h.taskClient(ctx) })
	what := l.fault(seed, rng, longest)
	l.healed()
	end()
	wg.Wait()
	h.checkTasks()
	l.faults[what]++
	calls, unknown = h.check(what)
	l.t.Logf("seed %d, %s: %d calls, %d without a known outcome, the longest took %v", seed, what,
		calls, unknown, h.longest)
	return calls, unknown, h.longest
}

// children returns the processes of the upstream that are there.
func (l *faultLab) children() (pids []string) {
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		env, err := os.ReadFile("/proc/" + e.Name() + "/environ")
		if err == nil && strings.Contains(string(env), l.log) &&
			strings.Contains(string(env), mcpServerVar+"=cluster") {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// Nodes that are killed, stopped, cut off, restarted one after another, or have no room on their
// disk, a slow one, or a wrong clock: no signature is accepted twice, no call is executed twice,
// each ends within 30 s, no task is lost, and no process is left.
func TestFaults(t *testing.T) {
	t.Parallel()
	race.Skip(t, "three processes run for it")
	seeds, longest, sizes := 3, 3*time.Second, []int{3}
	first, _ := strconv.ParseUint(os.Getenv(faultsFromVar), 10, 64)
	if n, err := strconv.Atoi(os.Getenv(faultsVar)); err == nil {
		seeds, longest, sizes = (n+1)/2, 26*time.Second, []int{3, 5}
	}
	faulty := ""
	if os.Getenv(faultsVar) != "" && os.Getenv(oldVar) == "" {
		faulty = buildFaulty(t)
	}
	for _, size := range sizes {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			l := newFaultLab(t, size, faulty)
			l.pauses = os.Getenv(faultsVar) == ""
			var calls, unknown int
			var slowest time.Duration
			for seed := first; seed < first+uint64(seeds) && !t.Failed(); seed++ {
				c, u, took := l.run(seed, longest)
				calls, unknown, slowest = calls+c, unknown+u, max(slowest, took)
			}
			for i := range l.all {
				l.end(i, syscall.SIGTERM)
			}
			until(t, "no process", func() string {
				if left := l.children(); len(left) > 0 {
					return fmt.Sprint(left)
				}
				return "no process"
			})
			t.Logf("%d seeds, %v: %d calls, %d without a known outcome, the longest took %v", seeds,
				l.faults, calls, unknown, slowest)
		})
	}
}
