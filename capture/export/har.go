package export

import (
	"bytes"
	"container/list"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	// maxMessages and maxBytes bound one entry. What comes after it is in another one.
	maxMessages = 512
	maxBytes    = 1 << 20
	// maxEntries and maxWaiting bound the entries that are not written yet. The oldest is written.
	maxEntries = 1024
	maxWaiting = 64 << 20
)

// har writes HAR 1.2: an entry for each exchange of HTTP, and for other connections entries with
// _webSocketMessages, as browsers have them.
type har struct {
	out     *bytes.Buffer
	conns   conns
	open    map[[2]uint64]*list.Element // by connection and exchange
	queue   *list.List                  // of *entry, the oldest first
	waiting int                         // bytes
	written int
}

// entry is one of HAR.
type entry struct {
	key         [2]uint64
	conn        *capture.Record
	start, end  int64
	request     *capture.Record // the envelopes of HTTP; nil: there is none
	response    *capture.Record
	sent, got   []byte
	frames      int // that came down
	messages    []byte
	count, size int
}

// entryAt returns what the queue of a har holds.
func entryAt(at *list.Element) *entry {
	e, _ := at.Value.(*entry) // there is nothing else in it
	return e
}

func newHAR(out *bytes.Buffer) *har {
	return &har{out: out, conns: conns{}, open: map[[2]uint64]*list.Element{}, queue: list.New()}
}

func (h *har) record(rec *capture.Record) {
	if at := h.open[[2]uint64{rec.Conn}]; at != nil && rec.Type == "conn" && rec.Closed {
		h.write(at)
	}
	h.conns.take(rec)
	switch {
	case rec.Type != "http" || rec.Exchange == 0:
	case rec.Dir == "up":
		h.entry(rec).request = rec.Clone()
	default:
		h.entry(rec).response = rec.Clone()
	}
}

// entry returns the entry of a record.
func (h *har) entry(rec *capture.Record) *entry {
	key := [2]uint64{rec.Conn, rec.Exchange}
	if rec.Exchange != 0 {
		key[0] = 0 // the connection of a request is known after its headers
	}
	at := h.open[key]
	if at == nil {
		at = h.queue.PushBack(&entry{key: key, start: rec.Time, conn: h.conns.of(rec.Conn)})
		h.open[key] = at
	}
	e := entryAt(at)
	e.end = max(e.end, rec.Time)
	if e.conn.Transport == "" {
		e.conn = h.conns.of(rec.Conn)
	}
	for h.queue.Front() != at && (h.queue.Len() > maxEntries || h.waiting > maxWaiting) {
		h.write(h.queue.Front())
	}
	return e
}

func (h *har) frame(rec *capture.Record, data []byte) {
	e := h.entry(rec)
	before := e.bytes()
	switch {
	case rec.Exchange == 0:
		e.message(rec, data)
	case rec.Dir == "up":
		e.sent = append(e.sent, data...)
	default:
		e.frames++
		e.got = append(append(e.got, data...), '\n')
	}
	h.waiting += e.bytes() - before
	answers := rec.Dir == "down" && (rec.Kind == "response" || rec.Kind == "batch")
	if rec.Exchange != 0 && answers || e.count >= maxMessages || e.bytes() >= maxBytes {
		h.write(h.open[e.key])
	}
}

func (e *entry) bytes() int { return len(e.sent) + len(e.got) + len(e.messages) }

// message appends a message of a connection that is not HTTP.
func (e *entry) message(rec *capture.Record, data []byte) {
	kind := "receive"
	if rec.Dir == "up" {
		kind = "send"
	}
	if e.count > 0 {
		e.messages = append(e.messages, ',')
	}
	opcode := 1
	text := string(data)
	if !utf8.Valid(data) {
		opcode, text = 2, base64.StdEncoding.EncodeToString(data)
	}
	e.messages = fmt.Appendf(e.messages, `{"type":"%s","time":%.6f,"opcode":%d,"data":`,
		kind, float64(rec.Time)/1e9, opcode)
	e.messages = append(scan.AppendQuoted(e.messages, text), '}')
	e.count++
	e.size += len(data)
}

// write writes an entry.
func (h *har) write(at *list.Element) {
	e := entryAt(at)
	h.queue.Remove(at)
	delete(h.open, e.key)
	h.waiting -= e.bytes()
	if h.begin(); h.written > 0 {
		h.out.WriteString(",\n")
	}
	h.written++
	h.out.Write(e.append(nil))
}

func (h *har) begin() {
	const head = `{"log":{"version":"1.2","creator":{"name":"farcall","version":"1"},"pages":[],` +
		`"entries":[` + "\n"
	if h.written == 0 {
		h.out.WriteString(head)
	}
}

func (h *har) end() {
	for at := h.queue.Front(); at != nil; at = h.queue.Front() {
		h.write(at)
	}
	h.begin()
	h.out.WriteString("\n]}}\n")
}

// append appends the JSON of the entry.
func (e *entry) append(dst []byte) []byte {
	ms := strconv.FormatFloat(float64(e.end-e.start)/1e6, 'f', 3, 64)
	dst = fmt.Appendf(dst, `{"startedDateTime":"%s","time":%s,"request":`,
		time.Unix(0, e.start).UTC().Format("2006-01-02T15:04:05.000000Z07:00"), ms)
	dst = e.appendRequest(dst)
	dst = e.appendResponse(append(dst, `,"response":`...))
	dst = fmt.Appendf(dst, `,"cache":{},"timings":{"send":0,"wait":%s,"receive":0}`, ms)
	dst = fmt.Appendf(dst, `,"connection":"%d"`, e.conn.Conn)
	if e.count > 0 {
		dst = append(dst, `,"_resourceType":"websocket","_webSocketMessages":[`...)
		dst = append(append(dst, e.messages...), ']')
	}
	return append(dst, '}')
}

func (e *entry) appendRequest(dst []byte) []byte {
	verb, header := "GET", map[string]string(nil)
	if e.request != nil {
		verb, header = e.request.Verb, e.request.Header
	} else if e.sent != nil {
		verb = "POST"
	}
	address := e.address()
	dst = scan.AppendQuoted(append(dst, `{"method":`...), verb)
	dst = scan.AppendQuoted(append(dst, `,"url":`...), address.String())
	dst = append(dst, `,"httpVersion":"HTTP/1.1","cookies":[],"headers":`...)
	dst = appendPairs(dst, header)
	query := map[string]string{}
	for name, values := range address.Query() {
		query[name] = strings.Join(values, ",")
	}
	dst = appendPairs(append(dst, `,"queryString":`...), query)
	dst = fmt.Appendf(dst, `,"headersSize":-1,"bodySize":%d`, len(e.sent))
	if e.sent != nil {
		dst = append(dst, `,"postData":{"mimeType":"application/json","text":`...)
		dst = append(scan.AppendQuoted(dst, strings.ToValidUTF8(string(e.sent), "\ufffd")), '}')
	}
	return append(dst, '}')
}

func (e *entry) appendResponse(dst []byte) []byte {
	status, text, kind, header := 101, "Switching Protocols", "", map[string]string(nil)
	switch {
	case e.response != nil:
		status, text, header = e.response.Status, "", e.response.Header
		kind = header["Content-Type"]
	case e.key[1] != 0:
		status, text = 0, ""
	}
	dst = fmt.Appendf(dst, `{"status":%d,"statusText":"%s","httpVersion":"HTTP/1.1","cookies":[]`,
		status, text)
	dst = appendPairs(append(dst, `,"headers":`...), header)
	got := string(e.got)
	if strings.HasPrefix(kind, "text/event-stream") && got != "" {
		got = "data: " + strings.ReplaceAll(strings.TrimSuffix(got, "\n"), "\n", "\n\ndata: ") + "\n\n"
	} else {
		got = strings.TrimSuffix(got, "\n")
	}
	dst = fmt.Appendf(dst, `,"content":{"size":%d,"mimeType":`, len(got))
	dst = scan.AppendQuoted(dst, kind)
	if got != "" {
		dst = scan.AppendQuoted(append(dst, `,"text":`...), strings.ToValidUTF8(got, "\ufffd"))
	}
	return append(dst, `},"redirectURL":"","headersSize":-1,"bodySize":-1}`...)
}

// address is that of the request. A connection that has none gets one of its number and command.
func (e *entry) address() *url.URL {
	u := &url.URL{Scheme: "http", Host: e.conn.Peer, Path: "/"}
	if e.key[1] == 0 {
		if u.Scheme = "ws"; e.conn.Transport == "wss" {
			u.Scheme = "wss"
		}
	}
	if u.Host == "" {
		u.Host = "localhost"
		u.Path = "/" + strings.Join(append([]string{e.conn.Transport}, e.conn.Command...), "/")
	}
	if e.request != nil {
		if path, err := url.ParseRequestURI(e.request.Path); err == nil {
			u.Path, u.RawPath, u.RawQuery = path.Path, path.RawPath, path.RawQuery
		}
	}
	return u
}

func appendPairs(dst []byte, pairs map[string]string) []byte {
	dst = append(dst, '[')
	for i, name := range slices.Sorted(maps.Keys(pairs)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = scan.AppendQuoted(append(dst, `{"name":`...), name)
		dst = append(scan.AppendQuoted(append(dst, `,"value":`...), pairs[name]), '}')
	}
	return append(dst, ']')
}
