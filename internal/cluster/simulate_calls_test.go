package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// send makes one request at the process of a slot, and returns its answer; none: there is none.
func (w *world) send(slot int, r *http.Request) (status int, header http.Header, body string) {
	began := time.Now()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.longest = max(w.longest, time.Since(began))
	}()
	w.mu.Lock()
	n := w.nodes[slot]
	w.mu.Unlock()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return n.listen[0].dial(ctx, []*wall{w.stops[slot]}, func() time.Duration { return 0 })
	}
	client := &http.Transport{DisableKeepAlives: true, DialContext: dial}
	resp, err := (&http.Client{Transport: client, Timeout: 2 * simLimit}).Do(r)
	if err != nil {
		if strings.Contains(err.Error(), errRefused.Error()) {
			return 0, nil, `"sent":"no"`
		}
		return 0, nil, ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(text)
}

// simHello begins a session.
const simHello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` +
	spec.Revision20251125 + `","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// simMeta is what a request without a session says of its client.
const simMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + spec.Revision20260728 +
	`","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":` +
	`{"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

func simRequest(path, body string, headers ...string) *http.Request {
	at := "http://rpc.example" + path
	r, err := http.NewRequest(http.MethodPost, at, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("X-User", "ann")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// book notes the answer to a call.
func (w *world) book(kind, text, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.calls[text]
	if c == nil {
		c = &simCall{kind: kind, values: map[string]bool{}}
		w.calls[text] = c
	}
	_, value, ok := strings.Cut(body, text+"=")
	switch {
	case ok && !strings.Contains(body, `"error"`):
		value, _, _ = strings.Cut(value, `"`)
		c.values[value] = true
		c.answered++
	case strings.Contains(body, `"sent":"no"`), strings.Contains(body, `"id":null`):
	default:
		c.unknown++
	}
}

// client makes calls at any nodes.
func (w *world) client(c int) {
	session := ""
	for i := range simCalls {
		text := fmt.Sprintf("c%d-%d.", c, i)
		<-time.After(w.chance.upTo(3 * time.Second))
		for try := 0; session == "" && try < 30; try++ {
			_, h, _ := w.send(w.chance.n(simNodes), simRequest("/mcp", simHello))
			session = h.Get("Mcp-Session-Id")
			<-time.After(time.Second)
		}
		call := func(key string) *http.Request {
			return simRequest("/mcp", fmt.Sprintf(`{"jsonrpc":"2.0","id":"%d-%s",`+
				`"method":"tools/call","params":{"name":"note","arguments":{"Text":%q,"Key":%q}}}`,
				w.chance.n(1<<30), text, text, key),
				"Mcp-Session-Id", session, "Mcp-Protocol-Version", spec.Revision20251125)
		}
		switch w.chance.n(4) {
		case 0:
			status, _, body := w.send(w.chance.n(simNodes), call(""))
			if status == http.StatusNotFound {
				w.problem("the session of %s is not found", text)
			}
			w.book("plain", text, body)
		case 1:
			w.each(func(slot int) {
				_, _, body := w.send(slot, call(text))
				w.book("keyed", text, body)
			})
		case 2:
			w.signed(text)
		default:
			w.task(text)
		}
	}
}

// each does something at all nodes at once, and again at one.
func (w *world) each(do func(slot int)) {
	var wg sync.WaitGroup
	for slot := range simNodes {
		wg.Go(func() { do(slot) })
	}
	wg.Wait()
	do(w.chance.n(simNodes))
}

// signed sends one signed request to all nodes, and once more about when its time is over.
func (w *world) signed(text string) {
	r := simRequest("/rpc", fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"method":"note","params":{"Text":%q}}`, text))
	if err := guard.SignRequest(r, "ci", []byte(simSecret)); err != nil {
		w.t.Error(err)
	}
	made := time.Now()
	send := func(slot int) {
		again := r.Clone(context.Background())
		again.Body, _ = r.GetBody()
		_, _, body := w.send(slot, again)
		w.book("signed", text, body)
	}
	w.each(send)
	if w.seed%8 == 0 {
		<-time.After(time.Until(made.Add(simWindow - simSkew/2 + w.chance.upTo(2*simSkew))))
		w.each(send)
	}
}

// modern makes a request about tasks.
func (w *world) modern(method, name, params string) string {
	text := fmt.Sprintf(
		`{"jsonrpc":"2.0","id":1,"method":%q,"params":{%s,%s}}`, method, params, simMeta)
	_, _, body := w.send(w.chance.n(simNodes), simRequest("/mcp", text,
		"Mcp-Protocol-Version", spec.Revision20260728, "Mcp-Method", method, "Mcp-Name", name))
	return body
}

// task starts a task and asks for it at any nodes, some of the time.
func (w *world) task(text string) {
	params := fmt.Sprintf(`"name":"work","arguments":{"Text":%q,"Key":""}`, text)
	body := w.modern(spec.MethodToolsCall, "work", params)
	_, id, ok := strings.Cut(body, `"taskId":"`)
	id, _, _ = strings.Cut(id, `"`)
	if !ok {
		return
	}
	w.mu.Lock()
	w.tasks = append(w.tasks, id)
	w.mu.Unlock()
	for range 3 {
		<-time.After(w.chance.upTo(2 * time.Second))
		w.ask(id)
	}
}

// ask asks a node for a task. It reports whether the task has ended.
func (w *world) ask(id string) bool {
	body := w.modern(spec.MethodTasksGet, id, fmt.Sprintf(`"taskId":%q`, id))
	_, status, ok := strings.Cut(body, `"status":"`)
	status, _, _ = strings.Cut(status, `"`)
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(body, "no such task") {
		w.problemLocked("the task %s is unknown: %s", id, body)
	}
	if end := w.ends[id]; ok && end != "" && end != status {
		w.problemLocked("the task %s, which was %s, is %s", id, end, status)
	}
	if ok && spec.TaskEnded(status) {
		w.ends[id] = status
	}
	return w.ends[id] != ""
}
