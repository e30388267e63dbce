package export

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	// maxOpen bounds the calls that wait for their answer. The oldest is written without one.
	maxOpen = 1 << 14
	// spansPerLine is how many spans are in one line.
	spansPerLine = 64

	kindServer = 2
	kindClient = 3
)

// otlp writes a span for each call, in the JSON of OTLP 1 (ExportTraceServiceRequest), as the file
// exporter of OpenTelemetry does.
type otlp struct {
	out   *bytes.Buffer
	conns conns
	seed  []byte // of the capture, so that spans of two captures have different ids
	open  map[uint64]*list.Element
	queue *list.List       // of *span, the oldest first
	calls map[uint64]*span // of a gateway: by the number of the call
	order []uint64         // the numbers of calls, the oldest first
	lines []byte
	spans int
}

type span struct {
	seq           uint64
	trace, parent string
	id            string
	name          string
	kind          int
	start, end    int64
	attributes    []byte
	failed        string
}

// spanAt returns what the queue of an otlp holds.
func spanAt(at *list.Element) *span {
	s, _ := at.Value.(*span) // there is nothing else in it
	return s
}

func newOTLP(out *bytes.Buffer) *otlp {
	return &otlp{
		out: out, conns: conns{}, open: map[uint64]*list.Element{}, queue: list.New(),
		calls: map[uint64]*span{},
	}
}

func (o *otlp) record(rec *capture.Record) {
	o.conns.take(rec)
	switch rec.Type {
	case "capture":
		o.seed = binary.LittleEndian.AppendUint64([]byte(rec.Host+rec.Program), uint64(rec.Time))
	case "call":
		o.answer(rec)
	}
}

func (o *otlp) frame(rec *capture.Record, data []byte) {
	switch rec.Kind {
	case "request":
		o.request(rec, data)
	case "response":
		o.answer(rec)
	}
}

// hash returns an id that is the same in each export of a capture.
func (o *otlp) hash(what string, n uint64, size int) string {
	sum := sha256.Sum256(binary.LittleEndian.AppendUint64(append([]byte(what), o.seed...), n))
	return hex.EncodeToString(sum[:size])
}

func (o *otlp) request(rec *capture.Record, data []byte) {
	conn := o.conns.of(rec.Conn)
	s := &span{
		seq: rec.Seq, id: o.hash("span", rec.Seq, 8),
		name: strings.TrimSpace(rec.Method + " " + rec.Name),
		kind: kindServer, start: rec.Time, end: rec.Time,
	}
	if rec.Side() != "" || rec.Dir == "down" {
		s.kind = kindClient
	}
	s.trace, s.parent = traceOf(data)
	if parent := o.calls[rec.Parent]; rec.Parent != 0 && parent != nil {
		s.trace, s.parent = parent.trace, parent.id
	}
	if s.trace == "" {
		s.trace = o.hash("trace", rec.Seq, 16)
	}
	s.text("rpc.system.name", "jsonrpc")
	s.text("rpc.method", rec.Method)
	if name := map[string]string{
		"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name",
	}[rec.Method]; name != "" {
		s.text(name, rec.Name)
	}
	s.text("jsonrpc.request.id", strings.Trim(rec.ID, `"`))
	s.text("farcall.transport", conn.Transport)
	s.text("farcall.upstream", rec.Side())
	s.text("mcp.protocol.version", rec.Era)
	s.number("farcall.bytes.in", int64(rec.Size))
	o.keep(rec.Call, s)
	o.open[rec.Seq] = o.queue.PushBack(s)
	if o.queue.Len() > maxOpen {
		o.write(o.queue.Front())
	}
}

// keep notes the span of a call for the calls that it causes.
func (o *otlp) keep(call uint64, s *span) {
	if call == 0 {
		return
	}
	o.calls[call] = s
	if o.order = append(o.order, call); len(o.order) > maxOpen {
		delete(o.calls, o.order[0])
		o.order = o.order[1:]
	}
}

func (o *otlp) answer(rec *capture.Record) {
	at := o.open[rec.Ref]
	if at == nil {
		return
	}
	s := spanAt(at)
	s.end = max(rec.Time, s.start)
	s.number("farcall.bytes.out", int64(rec.Size))
	s.text("farcall.decision", rec.Outcome)
	switch {
	case rec.Code != 0:
		s.failed = strconv.Itoa(rec.Code)
		s.text("rpc.response.status_code", s.failed)
		s.text("error.type", s.failed)
	case rec.ToolError:
		s.failed = "tool_error"
		s.text("error.type", s.failed)
	}
	o.write(at)
}

// traceOf returns the trace and the span that a request names as its parent (W3C Trace Context, in
// _meta); "" when it names none.
func traceOf(data []byte) (trace, parent string) {
	meta := scan.Member(scan.Member(data, "params"), "_meta")
	parts := strings.Split(scan.StringMember(meta, "traceparent"), "-")
	if len(parts) < 4 || !isHex(parts[1], 32) || !isHex(parts[2], 16) {
		return "", ""
	}
	return parts[1], parts[2]
}

func isHex(text string, size int) bool {
	_, err := hex.DecodeString(text)
	return err == nil && len(text) == size && strings.Trim(text, "0") != ""
}

func (s *span) key(name string) {
	if len(s.attributes) > 0 {
		s.attributes = append(s.attributes, ',')
	}
	s.attributes = append(append(append(s.attributes, `{"key":"`...), name...), `","value":{"`...)
}

func (s *span) text(name, value string) {
	if value == "" {
		return
	}
	s.key(name)
	s.attributes = scan.AppendQuoted(append(s.attributes, `stringValue":`...), value)
	s.attributes = append(s.attributes, "}}"...)
}

func (s *span) number(name string, n int64) {
	s.key(name)
	s.attributes = append(s.attributes, `intValue":"`...)
	s.attributes = append(strconv.AppendInt(s.attributes, n, 10), `"}}`...)
}

// write writes a span that waits.
func (o *otlp) write(at *list.Element) {
	s := spanAt(at)
	o.queue.Remove(at)
	delete(o.open, s.seq)
	dst := o.lines
	if o.spans > 0 {
		dst = append(dst, ',')
	}
	dst = append(append(append(dst, `{"traceId":"`...), s.trace...), `","spanId":"`...)
	dst = append(append(dst, s.id...), '"')
	if s.parent != "" {
		dst = append(append(append(dst, `,"parentSpanId":"`...), s.parent...), '"')
	}
	dst = scan.AppendQuoted(append(dst, `,"name":`...), s.name)
	dst = strconv.AppendInt(append(dst, `,"kind":`...), int64(s.kind), 10)
	dst = strconv.AppendInt(append(dst, `,"startTimeUnixNano":"`...), s.start, 10)
	dst = strconv.AppendInt(append(dst, `","endTimeUnixNano":"`...), s.end, 10)
	dst = append(append(append(dst, `","attributes":[`...), s.attributes...), `],"status":{`...)
	if s.failed != "" {
		dst = append(dst, `"code":2`...)
	}
	o.lines = append(dst, "}}"...)
	if o.spans++; o.spans >= spansPerLine {
		o.flush()
	}
}

func (o *otlp) flush() {
	if o.spans == 0 {
		return
	}
	const head = `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":` +
		`{"stringValue":"farcall"}}]},"scopeSpans":[{"scope":{"name":"farcall.capture"},"spans":[`
	o.out.WriteString(head)
	o.out.Write(o.lines)
	o.out.WriteString("]}]}]}\n")
	o.lines, o.spans = o.lines[:0], 0
}

func (o *otlp) end() {
	for at := o.queue.Front(); at != nil; at = o.queue.Front() {
		o.write(at)
	}
	o.flush()
}
