package inspect

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/wirelog"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// What becomes of a frame.
const (
	actHold   = "hold" // a page decides
	actSend   = "send"
	actDrop   = "drop"
	actAnswer = "answer"
)

// A breakpoint acts on the frames that its filter chooses, before they are sent to a server or
// given to the client. It ends with the page that has set it.
//
//	chosen ──┬─► hold ──► a question to the pages ──┬──► sent: as it is, changed, later
//	         ├─► send (later) ──────────────────────┤──► dropped
//	         └─► drop ──────────────────────────────┴──► answered in place of the other end
//
// The deadline, and the end of the page, send a held frame as it is. The end of its connection
// drops it.
type breakpoint struct {
	ID     int    `json:"id,omitzero"`
	Conn   int    `json:"conn,omitzero"` // 0: all servers
	Filter string `json:"filter"`
	Act    string `json:"act"            enum:"hold,drop,send"`
	Delay  int    `json:"ms,omitzero"                          min:"0" max:"60000"`

	page   *page
	filter *traffic.Filter
}

// heldView is a held frame as a page sees it: the params of a question.
type heldView struct {
	Dir     string `json:"dir"` // up or down
	Method  string `json:"method,omitzero"`
	Name    string `json:"name,omitzero"`
	Request bool   `json:"request,omitzero"` // it can be answered
	Text    string `json:"text"`
	Until   int64  `json:"until"` // milliseconds since 1970
}

// A decision about a held frame is the answer to that question.
type decision struct {
	Act    string         `json:"act"`
	Delay  int            `json:"ms,omitzero"`
	Frame  string         `json:"frame,omitzero"`  // send: in place of the frame
	Result jsonrpc.Raw    `json:"result,omitzero"` // answer: with this
	Error  *jsonrpc.Error `json:"error,omitzero"`  // answer: or with this
}

const (
	holdTime  = 5 * time.Minute
	maxDelay  = 60_000 // milliseconds
	maxBreaks = 100
)

// breakpoints are those of all pages.
type breakpoints struct {
	mu     sync.Mutex
	last   int
	points []*breakpoint // replaced when it changes
}

// setBreak sets a breakpoint.
func (i *Inspector) setBreak(ctx context.Context, b breakpoint) (*breakpoint, error) {
	var err error
	if b.filter, err = traffic.Parse(b.Filter); err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%s", err.Error())
	}
	b.page = pageOf(ctx)
	i.breaks.mu.Lock()
	defer i.breaks.mu.Unlock()
	if len(i.breaks.points) >= maxBreaks || b.page.ctx.Err() != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"there are %d breakpoints already: remove one first", len(i.breaks.points))
	}
	i.breaks.last++
	b.ID = i.breaks.last
	i.breaks.points = append(slices.Clip(i.breaks.points), &b)
	return &b, nil
}

type unbreakParams struct {
	ID int `json:"id"`
}

// unbreak removes a breakpoint. What it holds stays held.
func (i *Inspector) unbreak(_ context.Context, p unbreakParams) (none, error) {
	i.breaks.remove(func(b *breakpoint) bool { return b.ID == p.ID })
	return none{}, nil
}

func (s *breakpoints) remove(is func(*breakpoint) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.points = slices.DeleteFunc(slices.Clone(s.points), is)
}

// find returns the breakpoint that chooses a frame; nil: none does.
func (x *slot) find(dir byte, frame []byte) (*breakpoint, *traffic.Row) {
	s := &x.i.breaks
	s.mu.Lock()
	points := s.points
	s.mu.Unlock()
	if len(points) == 0 {
		return nil, nil
	}
	row := x.i.store.Peek(x.id, dir, frame)
	for _, b := range points {
		if (b.Conn == 0 || b.Conn == x.id) && b.filter.Match(&row, frame) {
			return b, &row
		}
	}
	return nil, nil
}

// hold does with a frame what a breakpoint says. It returns what goes on, and what goes back to the
// sender; nil: nothing does. answers says that a request can be answered.
func (x *slot) hold(ctx context.Context, b *breakpoint, row *traffic.Row, frame []byte,
	answers bool,
) (on, back []byte) {
	d := decision{Act: b.Act, Delay: b.Delay}
	if b.Act == actHold {
		d = x.undecided(ctx, b.page, row, frame, answers && row.Kind == traffic.Request)
	}
	if d.Act == actSend && d.Delay > 0 {
		wait, cancel := context.WithTimeout(ctx, time.Duration(min(d.Delay, maxDelay))*time.Millisecond)
		<-wait.Done()
		cancel()
	}
	note := func(what string) {
		x.log.Frame(0, wirelog.Note, append([]byte(what+" at a breakpoint: "), frame...))
	}
	switch {
	case ctx.Err() != nil: // there is no connection any more
	case d.Act == actDrop:
		note("dropped")
	case d.Act == actAnswer:
		note("answered")
		id, err := jsonrpc.ParseID(scan.Member(frame, "id"))
		switch {
		case err != nil: // it has none
		case d.Error != nil:
			back = jsonrpc.V2.AppendError(nil, id, d.Error)
		default:
			back = jsonrpc.V2.AppendResult(nil, id, d.Result)
		}
	case d.Frame != "" && d.Frame != string(frame):
		note("changed")
		// Line breaks are white space in JSON, and would end the frame on some transports.
		on = bytes.ReplaceAll([]byte(d.Frame), []byte("\n"), []byte(" "))
	default:
		on = frame
	}
	return on, back
}

// undecided asks the pages about a frame. It is sent as it is when they do not decide.
func (x *slot) undecided(ctx context.Context, p *page, row *traffic.Row, frame []byte,
	answers bool,
) (d decision) {
	v := heldView{
		Dir: "up", Method: row.Method, Name: row.Name, Request: answers, Text: string(frame),
		Until: time.Now().Add(holdTime).UnixMilli(),
	}
	if row.Dir == '<' {
		v.Dir = "down"
	}
	waiting, cancel := context.WithTimeout(p.ctx, holdTime)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	params, err := marshal(v)
	if err == nil {
		params, err = x.i.ask(waiting, questionView{Conn: x.id, Held: true, Params: params})
	}
	if err == nil {
		err = jsonv2.Unmarshal(params, &d)
	}
	if err != nil || d.Act == actAnswer && !answers {
		return decision{Act: actSend}
	}
	return d
}
