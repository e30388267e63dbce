package inspect

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/inspect/internal/traffic"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// routes registers the methods that a page calls over its WebSocket.
func (i *Inspector) routes() {
	m := i.mux
	farcall.Handle(m, "hello", i.hello, "What a page that opens must know.")
	farcall.Handle(m, "poll", i.poll, "Wait for frames and events.")
	farcall.Handle(m, "add", i.addServer, "Offer another server and connect with it.")
	farcall.Handle(m, "connect", i.connect, "Connect with a server, again if need be.")
	farcall.Handle(m, "disconnect", i.disconnect, "End the connection with a server.")
	farcall.Handle(m, "remove", i.remove, "Offer a server no more.")
	farcall.Handle(m, "roots", i.setRoots, "Set the roots that a server gets.")
	farcall.Handle(m, "list", i.list, "List what a server offers.")
	farcall.Handle(m, "describe", i.describe, "Show one item of a list in full.")
	farcall.Handle(m, "call", i.call, "Call a tool, a prompt, a resource or a method.")
	farcall.Handle(m, "validate", i.validate, "Validate a value.")
	farcall.Handle(m, "answer", i.answerQuestion, "Answer what a server asks.")
	farcall.Handle(m, "filter", i.filter, "Find the frames that a filter chooses.")
	farcall.Handle(m, "frame", i.frame, "Read the bytes of a frame.")
	farcall.Handle(m, "lint", i.lint, "Find what models misread in the tools of a server.")
	farcall.Handle(m, "conform", i.conform, "Check a server by its specification.")
	farcall.Handle(m, "diff", i.diff, "Find what has changed between two lists.")
	farcall.Handle(m, "save", i.save, "Prepare to save frames as a capture.")
	farcall.Handle(m, "open", i.openFile, "Prepare to open a capture.")
	farcall.Handle(m, "mock", i.mock, "Offer a server that answers as another has answered.")
	farcall.Handle(m, "replay", i.replay, "Send the request of a frame again.")
	farcall.Handle(m, "break", i.setBreak, "Hold, drop or delay the frames that a filter chooses.")
	farcall.Handle(m, "unbreak", i.unbreak, "Remove a breakpoint.")
}

// slot returns a server by its number.
func (i *Inspector) slot(id int) (*slot, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if n := slices.IndexFunc(i.slots, func(x *slot) bool { return x.id == id }); n >= 0 {
		return i.slots[n], nil
	}
	return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "there is no server %d", id)
}

type none struct{}

type helloResult struct {
	Servers   []serverView   `json:"servers"`
	Questions []questionView `json:"questions"`
	May       []string       `json:"may"` // the actions that this page has a permission for
	AnyServer bool           `json:"anyServer"`
	Conform   bool           `json:"conform"` // servers can be checked by their specifications
	Eras      []string       `json:"eras"`
	Version   string         `json:"version"`
	// events before this one say nothing new about servers and questions
	Events uint64 `json:"events"`
}

func (i *Inspector) hello(ctx context.Context, _ none) (*helloResult, error) {
	r := &helloResult{
		May: pageOf(ctx).may, AnyServer: i.opts.AnyServer, Version: i.opts.Version,
		Conform: i.opts.Conform != nil,
		Eras:    []string{"auto", "modern", "legacy"},
	}
	for _, rev := range slices.Backward(era.Revisions()) {
		r.Eras = append(r.Eras, rev.Name)
	}
	_, r.Events, _ = i.events.since(^uint64(0))
	i.mu.Lock()
	slots := slices.Clone(i.slots)
	i.mu.Unlock()
	for _, x := range slots {
		r.Servers = append(r.Servers, x.view())
	}
	r.Questions = append([]questionView{}, i.questions.views()...)
	return r, nil
}

type pollParams struct {
	Frames uint64 `json:"frames"` // the next frame that the page wants
	Events uint64 `json:"events"` // likewise
	Filter string `json:"filter,omitzero"`
}

type pollResult struct {
	First  uint64   `json:"first"` // the oldest frame that is kept
	Next   uint64   `json:"next"`
	Rows   *columns `json:"rows,omitzero"`
	Events []event  `json:"events,omitzero"`
	After  uint64   `json:"after"` // the next event
}

// columns are rows, one list for each column: a thousand rows are read as fast as one.
type columns struct {
	Texts  []string `json:"texts"` // of methods and names
	Time   []int64  `json:"t"`     // microseconds, after Base
	Base   int64    `json:"base"`
	Conn   []int    `json:"conn"`
	Link   []uint64 `json:"link"`
	Dir    string   `json:"dir"`
	Kind   string   `json:"kind"`
	Method []int    `json:"method"` // in Texts
	Name   []int    `json:"name"`
	Size   []int    `json:"size"`
	Ref    []uint64 `json:"ref"`
	Parent []uint64 `json:"parent"`
	Code   []int    `json:"code"`
	Failed []int    `json:"failed"`       // the rows, from 0
	Hop    []int    `json:"hop,omitzero"` // the rows of the other side of a gateway, from 0
	Took   []int64  `json:"took"`
	Chosen []int    `json:"chosen"` // the rows that the filter of the page chooses, from 0
}

// poll waits until there is a frame or an event that the page does not have, and returns up to
// 2,000 of each. A page that asks rarely gets them in larger batches: nothing is queued for it.
func (i *Inspector) poll(ctx context.Context, p pollParams) (*pollResult, error) {
	f, err := traffic.Parse(p.Filter)
	if err != nil {
		f = nil // filter has reported it to the page
	}
	for {
		r := &pollResult{}
		var changed <-chan struct{}
		r.Events, r.After, changed = i.events.since(p.Events)
		r.Rows, r.Next = i.columns(p.Frames, maxBatch, f)
		r.First, _ = i.store.First()
		if r.Rows != nil || len(r.Events) > 0 {
			return r, nil
		}
		select {
		case <-changed:
		case <-i.store.Changed(r.Next):
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-i.ctx.Done():
			return nil, jsonrpc.Errorf(jsonrpc.Unavailable, "%s", errClosed.Error())
		}
	}
}

// columns returns rows from a number on, nil when there are none.
func (i *Inspector) columns(from uint64, limit int, f *traffic.Filter) (c *columns, next uint64) {
	known := map[string]int{}
	place := func(s string) int {
		at, ok := known[s]
		if !ok {
			at = len(c.Texts)
			known[s] = at
			c.Texts = append(c.Texts, s)
		}
		return at
	}
	var dir, kind strings.Builder
	n := 0
	next = i.store.Rows(from, limit, func(r *traffic.Row, raw []byte) bool {
		if c == nil {
			c = &columns{Base: r.Time}
		}
		c.Time = append(c.Time, r.Time-c.Base)
		c.Conn, c.Link = append(c.Conn, r.Conn), append(c.Link, r.Link)
		dir.WriteByte(r.Dir)
		kind.WriteByte(r.Kind)
		c.Method, c.Name = append(c.Method, place(r.Method)), append(c.Name, place(r.Name))
		c.Size, c.Ref = append(c.Size, r.Size), append(c.Ref, r.Ref)
		c.Parent = append(c.Parent, r.Parent)
		c.Code, c.Took = append(c.Code, r.Code), append(c.Took, r.Took)
		if r.Failed {
			c.Failed = append(c.Failed, n)
		}
		if r.Hop {
			c.Hop = append(c.Hop, n)
		}
		if f.Match(r, raw) {
			c.Chosen = append(c.Chosen, n)
		}
		n++
		return true
	})
	if c != nil {
		c.Dir, c.Kind = dir.String(), kind.String()
	}
	return c, next
}

type serverParams struct {
	Name     string            `json:"name,omitzero"     maxLength:"200"`
	Target   string            `json:"target,omitzero"`
	Command  []string          `json:"command,omitzero"`
	Header   map[string]string `json:"header,omitzero"`
	Bearer   string            `json:"bearer,omitzero"`
	Protocol string            `json:"protocol,omitzero"`
	Era      string            `json:"era,omitzero"`
}

type connParams struct {
	Conn int `json:"conn"`
}

func (i *Inspector) addServer(_ context.Context, p serverParams) (*serverView, error) {
	if !i.opts.AnyServer {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest,
			"this page is for the servers that it lists: others were not allowed when it was started")
	}
	s := &Server{
		Name: p.Name, Target: p.Target, Command: p.Command, Protocol: p.Protocol, Era: p.Era,
		Header: http.Header{},
	}
	for name, value := range p.Header {
		s.Header.Set(name, value)
	}
	if p.Bearer != "" {
		s.Header.Set("Authorization", "Bearer "+p.Bearer)
	}
	return i.offer(s, nil)
}

// offer adds a server for a page and connects with it. auth is as in slot.
func (i *Inspector) offer(s *Server, auth mcphttp.Authorizer) (*serverView, error) {
	x, err := i.add(s)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%s", err.Error())
	}
	x.mu.Lock()
	x.auth = auth
	x.mu.Unlock()
	x.connect()
	v := x.view()
	return &v, nil
}

type connectParams struct {
	Conn     int    `json:"conn"`
	Protocol string `json:"protocol,omitzero" enum:"auto,mcp,jsonrpc"`
	Era      string `json:"era,omitzero"`
	Beside   bool   `json:"beside,omitzero"` // as another server, and this one stays as it is
}

func (i *Inspector) connect(_ context.Context, p connectParams) (*serverView, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	next, auth, sent := x.server, x.auth, x.sent
	x.mu.Unlock()
	next.Protocol, next.Era = cmp.Or(p.Protocol, next.Protocol), cmp.Or(p.Era, next.Era)
	switch err = next.valid(); {
	case sent:
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "open the file again")
	case err != nil:
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%s", err.Error())
	case p.Beside:
		next.Name = fmt.Sprintf("%s (%s)", next.name(), cmp.Or(next.Era, protocolAuto))
		return i.offer(&next, auth)
	}
	x.mu.Lock()
	x.server = next
	x.mu.Unlock()
	x.connect()
	v := x.view()
	return &v, nil
}

func (i *Inspector) disconnect(_ context.Context, p connParams) (none, error) {
	x, err := i.slot(p.Conn)
	if err == nil {
		x.disconnect()
	}
	return none{}, err
}

func (i *Inspector) remove(_ context.Context, p connParams) (none, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return none{}, err
	}
	x.disconnect()
	i.mu.Lock()
	i.slots = slices.DeleteFunc(i.slots, func(one *slot) bool { return one == x })
	i.mu.Unlock()
	i.events.add(eventRemoved, x.id, "", nil)
	return none{}, nil
}

type rootsParams struct {
	Conn  int        `json:"conn"`
	Roots []mcp.Root `json:"roots"`
}

func (i *Inspector) setRoots(ctx context.Context, p rootsParams) (none, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return none{}, err
	}
	x.mu.Lock()
	x.roots = p.Roots
	client := x.mcp
	x.mu.Unlock()
	if client != nil {
		err = client.RootsChanged(ctx)
	}
	if err != nil {
		err = jsonrpc.Errorf(jsonrpc.InternalError,
			"the roots are set, but the notification failed: %s", err.Error())
	}
	return none{}, err
}

type listParams struct {
	Conn  int    `json:"conn"`
	Kind  string `json:"kind"           enum:"tools,prompts,resources,templates,methods"`
	From  int    `json:"from,omitzero"                                                   min:"0"`
	Fresh bool   `json:"fresh,omitzero"`
}

type listResult struct {
	Items []itemView `json:"items"`
	Total int        `json:"total"`
	Note  string     `json:"note,omitzero"`
}

func (i *Inspector) list(ctx context.Context, p listParams) (*listResult, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	c, err := x.catalog(ctx, p.Kind, p.Fresh)
	if err != nil {
		return nil, public(err)
	}
	r := &listResult{Total: len(c.items), Note: c.note, Items: []itemView{}}
	for n := p.From; n < min(len(c.items), p.From+maxBatch); n++ {
		r.Items = append(r.Items, c.items[n].view())
	}
	return r, nil
}

// public returns an error that a page is shown.
func public(err error) error {
	return jsonrpc.Errorf(jsonrpc.InternalError, "%s", shorten(err.Error(), maxEventText))
}

type itemParams struct {
	Conn int    `json:"conn"`
	Kind string `json:"kind"`
	Name string `json:"name"`
}

type described struct {
	Item       string `json:"item"`                // JSON as text
	Components string `json:"components,omitzero"` // of the document of rpc.discover
}

func (i *Inspector) describe(ctx context.Context, p itemParams) (*described, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	c, err := x.catalog(ctx, p.Kind, false)
	if err != nil {
		return nil, public(err)
	}
	raw, ok := c.index[p.Name]
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "the server lists no %q among its %s",
			shorten(p.Name, 200), p.Kind)
	}
	return &described{Item: string(raw), Components: string(scan.Member(c.doc, "components"))}, nil
}

type answerParams struct {
	ID     int         `json:"id"`
	Result jsonrpc.Raw `json:"result,omitzero"`
	Error  string      `json:"error,omitzero"`
}

func (i *Inspector) answerQuestion(ctx context.Context, p answerParams) (none, error) {
	r := reply{result: append(jsonrpc.Raw(nil), p.Result...)}
	if p.Error != "" || p.Result == nil {
		r = reply{err: jsonrpc.Errorf(-1, "%s", shorten(p.Error, 2000))}
	}
	return none{}, i.answer(pageOf(ctx), p.ID, r)
}

type filterParams struct {
	Filter string `json:"filter"`
	From   uint64 `json:"from"`
}

type filterResult struct {
	Chosen []uint64 `json:"chosen"` // each as its distance from the one before
	Next   uint64   `json:"next"`   // where the next part begins
	Done   bool     `json:"done"`
}

// filterPart is how many frames one call of filter looks at.
const filterPart = 50_000

func (i *Inspector) filter(_ context.Context, p filterParams) (*filterResult, error) {
	f, err := traffic.Parse(p.Filter)
	if err != nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "%s", err.Error())
	}
	r := &filterResult{Chosen: []uint64{}}
	last := p.From
	r.Next = i.store.Rows(p.From, filterPart, func(row *traffic.Row, raw []byte) bool {
		if f.Match(row, raw) {
			r.Chosen = append(r.Chosen, row.Seq-last)
			last = row.Seq
		}
		return true
	})
	_, next := i.store.First()
	r.Done = r.Next >= next
	return r, nil
}

type frameParams struct {
	Seq  uint64 `json:"seq"`
	From int    `json:"from,omitzero" min:"0"`
	Size int    `json:"size,omitzero" min:"0" max:"4194304"`
}

type frameResult struct {
	Text string `json:"text,omitzero"`
	B64  string `json:"b64,omitzero"` // bytes that are not UTF-8
	Size int    `json:"size"`
	// Decision is what a guard decided, in an answer of a capture, and Principal is who has called.
	Decision  string `json:"decision,omitzero"`
	Principal string `json:"principal,omitzero"`
}

func (i *Inspector) frame(_ context.Context, p frameParams) (*frameResult, error) {
	row, raw, ok := i.store.Frame(p.Seq)
	if !ok {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "frame %d is not kept any more", p.Seq)
	}
	r := &frameResult{Size: len(raw)}
	if x, err := i.slot(row.Conn); err == nil {
		x.mu.Lock()
		d := x.decided[p.Seq]
		x.mu.Unlock()
		r.Decision, r.Principal = d.outcome, d.principal
	}
	p.Size = cmp.Or(p.Size, 1<<20)
	part := raw[min(p.From, len(raw)):min(p.From+p.Size, len(raw))]
	cut := p.From+p.Size < len(raw)
	for n := 0; n < utf8.UTFMax && !utf8.Valid(part) && len(part) > 0 && cut; n++ {
		part = part[:len(part)-1] // the cut may be within a character
	}
	if utf8.Valid(part) {
		r.Text = string(part)
	} else {
		r.B64 = base64.StdEncoding.EncodeToString(part)
	}
	return r, nil
}
