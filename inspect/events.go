package inspect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The types of events.
const (
	eventServer   = "server"   // the state of a server has changed: a serverView
	eventRemoved  = "removed"  // a server is not offered any more
	eventStderr   = "stderr"   // a child wrote to its standard error
	eventNoise    = "noise"    // a child wrote something else than a message
	eventLog      = "log"      // a message of the server's log
	eventWarning  = "warning"  // something is wrong with the server, but no call failed
	eventChanged  = "changed"  // a list has changed
	eventUpdated  = "updated"  // a resource has changed
	eventProgress = "progress" // of a call
	eventValue    = "value"    // of a call that streams
	eventTask     = "task"     // the state of a task, of a call if that is known
	eventQuestion = "question" // the server asks: a questionView
	eventAnswered = "answered" // a question needs no answer any more
)

// An event is something that a page shows.
type event struct {
	N    uint64      `json:"n"`
	Time int64       `json:"t"` // milliseconds since 1970
	Type string      `json:"type"`
	Conn int         `json:"conn,omitzero"`
	Call string      `json:"call,omitzero"`
	Data jsonrpc.Raw `json:"data,omitzero"`
}

// events are the newest of what happened, for pages that open later, too.
type events struct {
	mu      sync.Mutex
	list    []event
	bytes   int
	next    uint64 // the number of the next event, from 1 on; 0 before the first
	changed chan struct{}
}

const (
	maxEvents     = 20_000
	maxEventBytes = 16 << 20
	maxEventText  = 16 << 10
)

// add adds an event. Data marshals to JSON.
func (e *events) add(kind string, conn int, call string, data any) {
	raw, err := jsonv2.Append(nil, data)
	if err != nil {
		raw, _ = jsonv2.Append(nil, err.Error()) // a string marshals
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next = max(1, e.next)
	e.list = append(e.list, event{e.next, time.Now().UnixMilli(), kind, conn, call, raw})
	e.next++
	e.bytes += len(raw)
	if len(e.list) > maxEvents || e.bytes > maxEventBytes {
		drop := len(e.list) / 4
		for i := range drop {
			e.bytes -= len(e.list[i].Data)
		}
		e.list = append([]event(nil), e.list[drop:]...)
	}
	if e.changed != nil {
		close(e.changed)
		e.changed = nil
	}
}

// after is the number of the next event.
func (e *events) after() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return max(1, e.next)
}

// since returns the events from a number on, and a channel that is closed when there are more.
func (e *events) since(from uint64) (list []event, next uint64, changed <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next = max(1, e.next)
	if len(e.list) > 0 && from < e.next {
		first := e.list[0].N
		list = e.list[max(from, first)-first:]
		if len(list) > maxBatch {
			list = list[:maxBatch]
		}
		return list, list[len(list)-1].N + 1, nil
	}
	if e.changed == nil {
		e.changed = make(chan struct{})
	}
	return nil, e.next, e.changed
}

// shorten bounds a text of a foreign program.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + fmt.Sprintf("… (%d more bytes)", len(text)-end)
}

// questions are what servers ask, until a page has answered.
type questions struct {
	mu   sync.Mutex
	last int
	open map[int]*question
}

type question struct {
	view questionView
	done chan reply
}

// questionView is a question as a page sees it.
type questionView struct {
	ID     int         `json:"id"`
	Conn   int         `json:"conn"`
	Call   string      `json:"call,omitzero"`
	Method string      `json:"method"`
	Params jsonrpc.Raw `json:"params,omitzero"`
	Time   int64       `json:"t"`
	Held   bool        `json:"held,omitzero"` // a breakpoint holds a frame: a heldView
}

type reply struct {
	result jsonrpc.Raw
	err    error
}

const (
	maxQuestions     = 100
	maxQuestionBytes = 4 << 20
)

var errTooMany = errors.New("too many questions are waiting for an answer")

// ask waits until a page has answered a question of a server, or about a held frame.
func (i *Inspector) ask(ctx context.Context, v questionView) (jsonrpc.Raw, error) {
	if len(v.Params) > maxQuestionBytes {
		return nil, fmt.Errorf("the question has more than %d bytes", maxQuestionBytes)
	}
	v.Call, v.Time, v.Params = callOf(ctx), time.Now().UnixMilli(), slices.Clone(v.Params)
	q := &question{done: make(chan reply, 1), view: v}
	i.questions.mu.Lock()
	if len(i.questions.open) >= maxQuestions {
		i.questions.mu.Unlock()
		return nil, errTooMany
	}
	i.questions.last++
	q.view.ID = i.questions.last
	i.questions.open[q.view.ID] = q
	i.questions.mu.Unlock()
	i.events.add(eventQuestion, v.Conn, v.Call, q.view)
	defer func() {
		i.questions.mu.Lock()
		delete(i.questions.open, q.view.ID)
		i.questions.mu.Unlock()
		i.events.add(eventAnswered, v.Conn, v.Call, map[string]int{"id": q.view.ID})
	}()
	select {
	case r := <-q.done:
		return r.result, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-i.ctx.Done():
		return nil, errClosed
	}
}

// answer answers a question, once. p is the page that does.
func (i *Inspector) answer(p *page, id int, r reply) error {
	i.questions.mu.Lock()
	defer i.questions.mu.Unlock()
	q := i.questions.open[id]
	if q == nil {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "question %d is not open any more", id)
	}
	if q.view.Held {
		if err := p.needs(ActionBreak); err != nil {
			return err
		}
	}
	delete(i.questions.open, id)
	q.done <- r
	return nil
}

// views returns the open questions.
func (q *questions) views() []questionView {
	q.mu.Lock()
	defer q.mu.Unlock()
	var list []questionView
	for _, one := range q.open {
		list = append(list, one.view)
	}
	return list
}

type callKey struct{}

// withCall marks the context of a call that a page makes.
func withCall(ctx context.Context, call string) context.Context {
	return context.WithValue(ctx, callKey{}, call)
}

func callOf(ctx context.Context) string {
	call, _ := ctx.Value(callKey{}).(string)
	return call
}

// logView is a message of a server's log.
func logView(p *spec.LoggingMessageNotificationParams) map[string]any {
	return map[string]any{
		"level":  shorten(p.Level, 40),
		"logger": shorten(p.Logger, 200),
		"text":   shorten(string(p.Data), maxEventText),
	}
}
