package mock

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	methodInitialize = "initialize"
	methodDiscover   = "server/discover"
	methodPing       = "ping"
	methodProgress   = "notifications/progress"
	methodCancelled  = "notifications/cancelled"
)

// ErrRedacted is the error of a capture in which secrets were replaced: its answers are not those
// of the server.
var ErrRedacted = errors.New(
	"the capture has frames with replaced secrets, so its answers differ from those of the server")

// A Script is what a server has answered in a capture. It is safe for concurrent use, by Serve.
type Script struct {
	// MCP: the client of the capture has spoken the Model Context Protocol.
	MCP bool
	// Skipped is how many calls cannot be answered, because the capture has no whole frame of
	// them.
	Skipped int

	order     []string               // keys of calls
	calls     map[string][]*exchange // the same request, by method and params; in their order
	methods   map[string]int
	revisions map[string]bool // of MCP, as JSON
}

func newScript() *Script {
	return &Script{
		calls: map[string][]*exchange{}, methods: map[string]int{}, revisions: map[string]bool{},
	}
}

// exchange is one request with what the server sent until it was answered.
type exchange struct {
	key      string
	revision string // of a client of MCP, where the request says it
	seq      uint64
	method   string
	params   []byte
	name     string
	token    string // the JSON of the progress token
	steps    []step
	response []byte
	delay    int64
}

// step is a notification, or a question, which the client has to answer before the next step.
type step struct {
	frame    []byte
	progress bool
	question bool
}

// A Part says what of a capture is used. Nil is what passed between clients and the server that
// recorded it, without replaced secrets.
type Part struct {
	// Upstream is the server of a gateway: the part is what passed between the gateway and it.
	Upstream string
	// Redacted allows frames in which secrets were replaced.
	Redacted bool
	// Filter selects requests of a client. Nil: all.
	Filter *capture.Filter
}

// each calls take with the whole frames of the part; what belongs to others is skipped. The
// bytes may be kept.
func (p *Part) each(r *capture.Reader, take func(rec *capture.Record, data []byte)) error {
	for {
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case rec.Type != "frame" || rec.Side() != p.Upstream:
			continue
		case len(rec.Redacted) > 0 && !p.Redacted:
			return fmt.Errorf("record %d: %w", rec.Seq, ErrRedacted)
		case !rec.HasData() || rec.Cut > 0:
			continue
		}
		data, err := rec.Data()
		if err != nil {
			return err
		}
		take(rec, bytes.Clone(data))
	}
}

// without names the part in the error that it holds nothing.
func (p *Part) without(what string) error {
	if p.Upstream == "" {
		return errors.New("the capture has no " + what)
	}
	return fmt.Errorf("the capture has no %s between a gateway and its upstream %q", what, p.Upstream)
}

// Load reads a part of a capture. It fails with [ErrRedacted] when one of its frames was redacted,
// unless that is allowed.
func Load(r *capture.Reader, part *Part) (*Script, error) {
	part = cmp.Or(part, &Part{})
	l := &loader{script: newScript(), conns: map[uint64]*connection{}}
	if err := part.each(r, l.frame); err != nil {
		return nil, err
	}
	for _, c := range l.conns {
		l.script.Skipped += len(c.open)
	}
	if len(l.script.calls) == 0 {
		return nil, part.without("request with its answer")
	}
	return l.script, nil
}

// loader reads the frames of a capture.
type loader struct {
	script *Script
	conns  map[uint64]*connection
}

// connection is what is in flight on a connection.
type connection struct {
	open []*open
	last *exchange // that was answered
}

type open struct {
	call   *exchange
	id     string
	number uint64 // of the exchange of HTTP
}

// group is the number of the exchange to which a frame belongs, or that of its call, as an observer
// says it: then ids of several clients are on one connection.
func group(rec *capture.Record) uint64 { return max(rec.Exchange, rec.Call) }

func (l *loader) frame(rec *capture.Record, data []byte) {
	c := l.conns[rec.Conn]
	if c == nil {
		c = &connection{}
		l.conns[rec.Conn] = c
	}
	if !isBatch(data) {
		l.message(c, rec, data)
		return
	}
	for message := range scan.Elements(data) {
		l.message(c, rec, message)
	}
}

func isBatch(frame []byte) bool {
	i := scan.Space(frame, 0)
	return i < len(frame) && frame[i] == '['
}

func (l *loader) message(c *connection, rec *capture.Record, data []byte) {
	m := parse(data)
	up := rec.Dir == "up"
	switch {
	case up && m.method != "" && m.id != nil:
		x := &exchange{
			key: m.key(), revision: string(m.revision()),
			seq: rec.Seq, method: m.method, params: m.params, name: rec.Name, token: string(m.token()),
		}
		c.open = append(c.open, &open{x, string(m.id), group(rec)})
		l.script.MCP = l.script.MCP || m.method == methodInitialize || m.method == methodDiscover ||
			strings.HasPrefix(m.method, "tools/")
	case up:
	case m.method != "":
		x := c.current(rec, &m)
		if x == nil {
			return // nothing leads to it
		}
		x.steps = append(x.steps, step{data, m.method == methodProgress, m.id != nil})
	case m.id != nil:
		i := slices.IndexFunc(c.open, func(o *open) bool {
			return o.id == string(m.id) && (o.number == group(rec) || o.call.seq == rec.Ref)
		})
		if i < 0 {
			return
		}
		x := c.open[i].call
		c.open = slices.Delete(c.open, i, i+1)
		x.response, x.delay, c.last = data, rec.Duration, x
		l.script.add(x)
	}
}

// current returns the exchange in which the server has sent a notification or a question: that of
// its progress token, that of its HTTP exchange, the newest one that is not answered, or the one
// that was answered last.
func (c *connection) current(rec *capture.Record, m *message) *exchange {
	if m.method == methodProgress {
		token := string(at(m.data, "params", "progressToken"))
		for _, o := range c.open {
			if o.call.token == token {
				return o.call
			}
		}
	}
	number := max(rec.Exchange, rec.Parent) // a question has its own call
	for _, o := range slices.Backward(c.open) {
		if number == 0 || o.number == number {
			return o.call
		}
	}
	if n := len(c.open); n > 0 && (rec.Exchange == 0 || m.id != nil) {
		return c.open[n-1].call // its parent is on the other side of a gateway, or the client came back
	}
	if m.id != nil {
		return nil
	}
	return c.last
}

func (s *Script) add(x *exchange) {
	s.methods[x.method]++
	if x.method == methodDiscover || at(x.response, "result") != nil {
		s.revisions[x.revision] = x.revision != ""
	}
	if s.calls[x.key] == nil {
		s.order = append(s.order, x.key)
	}
	s.calls[x.key] = append(s.calls[x.key], x)
}

// message is a message with its parts.
type message struct {
	data   []byte
	id     []byte // nil: it has none
	method string
	params []byte
}

func parse(data []byte) (m message) {
	m.data = data
	for key, value := range scan.Members(data) {
		switch string(key) {
		case "id":
			m.id = value
		case "method":
			if value[0] == '"' {
				m.method = string(scan.Unquote(value))
			}
		case "params":
			m.params = value
		}
	}
	return m
}

// token is the JSON of the progress token; nil: there is none.
func (m *message) token() []byte { return at(m.data, "params", "_meta", "progressToken") }

// revision is the JSON of the revision of MCP that a request names; nil: it names none.
func (m *message) revision() []byte {
	if m.method == methodInitialize {
		return at(m.data, "params", "protocolVersion")
	}
	return at(m.data, "params", "_meta", "io.modelcontextprotocol/protocolVersion")
}

// key is what equal requests have in common: the method, and the params without _meta, which has
// tokens, traces and what the client says of itself. The first request of a session is known by
// its method.
func (m *message) key() string {
	if m.method == methodInitialize || m.method == methodDiscover {
		return m.method
	}
	params := diff.AppendCanonical(nil, m.params, func(path []string) bool {
		return len(path) == 1 && path[0] == "_meta"
	})
	if string(params) == "{}" {
		params = nil // both mean that there are none
	}
	return m.method + "\x00" + string(params)
}

// at returns a value in a message, or nil.
func at(data []byte, path ...string) []byte {
	start, end := find(data, path...)
	return data[start:end]
}

// replace returns data with another value at the path, if there is one.
func replace(data, value []byte, path ...string) []byte {
	start, end := find(data, path...)
	if start == end {
		return data
	}
	return slices.Concat(data[:start], value, data[end:])
}

// find returns where a value is; two equal numbers when there is none.
func find(data []byte, path ...string) (start, end int) {
	start, end = scan.Space(data, 0), len(data)
	for _, name := range path {
		if start, end = findMember(data, start, name); start == end {
			return 0, 0
		}
	}
	return start, end
}

func findMember(data []byte, i int, want string) (start, end int) {
	if i >= len(data) || data[i] != '{' {
		return 0, 0
	}
	for {
		i = scan.Space(data, i+1)
		if i >= len(data) || data[i] != '"' {
			return 0, 0
		}
		nameEnd, _, f := scan.String(data, i)
		if f != scan.OK {
			return 0, 0
		}
		name := scan.Unquote(data[i:nameEnd])
		if i, f = scan.Colon(data, nameEnd); f != scan.OK {
			return 0, 0
		}
		end, f := scan.Value(data, i, -1)
		if f != scan.OK {
			return 0, 0
		}
		if string(name) == want {
			return i, end
		}
		if i = scan.Space(data, end); i >= len(data) || data[i] != ',' {
			return 0, 0
		}
	}
}

// Compare compares the answers of two captures, call by call: those to the same method and params,
// the first with the first. Ids, times, _meta of the params and the order of calls do not count,
// nor does it on which page of a list an entry is.
// The numbers of the results are those of was, or of is for calls that only it has.
func Compare(was, is *Script, compare *diff.Comparer) *Report {
	was, is = was.joined(), is.joined()
	report := &Report{}
	add := func(x *exchange, found ...diff.Finding) {
		report.Results = append(report.Results, Result{
			Seq: x.seq, Method: x.method, Name: x.name, Findings: found,
		})
	}
	for _, key := range was.order {
		after := is.calls[key]
		for i, x := range was.calls[key] {
			if i < len(after) {
				add(x, compare.Answers(x.method, x.response, after[i].response)...)
			} else {
				add(x, diff.Finding{Rule: "call-removed", Level: diff.Unclear, Was: string(x.response)})
			}
		}
	}
	for _, key := range is.order {
		after := is.calls[key]
		for _, x := range after[min(len(was.calls[key]), len(after)):] {
			add(x, diff.Finding{Rule: "call-added", Level: diff.Compatible, Is: string(x.response)})
		}
	}
	return report
}
