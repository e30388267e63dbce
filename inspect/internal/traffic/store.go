// Package traffic answers one question: which frames went over the connections that a person
// looks at, and which of them belong together?
package traffic

import (
	"bytes"
	"sort"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The kinds of rows.
const (
	Request      = 'q'
	Notification = 'n'
	Response     = 'r'
	Batch        = 'b'
	Invalid      = 'x' // not a message
	Note         = '!' // what became of a connection
)

// A Row is what is known of one frame without its bytes.
type Row struct {
	Seq  uint64 // from 1 on, without gaps
	Part uint64 // of a capture: its connection, or its call
	Time int64  // microseconds since 1970
	Conn int    // the connection
	Link uint64 // the transport connection; over HTTP the exchange
	Dir  byte   // '>' to the server, '<' from it, '!' neither
	Kind byte
	// Method is that of a request or a notification, Name the tool, prompt or URI that it is about.
	// A response has those of its request.
	Method, Name string
	Size         int // bytes
	// Ref is the request that a response answers. Parent is the request to which a question, a
	// notification or a further round belongs. 0: none, or unknown.
	Ref, Parent uint64
	// Code is the error code of a response, 0 without an error.
	Code int
	// Failed: the result says that a tool has failed (isError).
	Failed bool
	// Hop: it passed between a gateway and its server, for the call that is Parent.
	Hop bool
	// Took is how long the answer took, in microseconds, at least one. Only of responses.
	Took int64
}

// Limits bound a Store. Zero values are the defaults.
type Limits struct {
	Rows  int // how many frames are kept; 1,000,000
	Bytes int // how many bytes of frames are kept; 256 MiB
}

// A Store keeps the newest frames. Its methods may be called by any number of goroutines at once.
type Store struct {
	limits Limits
	now    func() time.Time

	batches sync.Pool

	mu      sync.Mutex
	parts   []*part // oldest first
	rows    int
	bytes   int
	next    uint64 // the number of the next row
	open    map[callKey]openCall
	tokens  map[tokenKey]uint64 // requests by progress token
	rounds  map[tokenKey]uint64 // requests by the requestState that answered them
	changed chan struct{}       // closed when there is a new row; nil: nothing waits
}

// A part holds frames that are forgotten together.
type part struct {
	first uint64
	rows  []Row
	ends  []int // where the bytes of each row end in raw
	raw   []byte
}

const (
	partRows  = 4096
	partBytes = 1 << 20
	// maxOpen bounds the requests without an answer that are remembered, and their tokens.
	maxOpen = 50_000
	// maxName bounds a method and a name in a row.
	maxName = 200
)

type callKey struct {
	conn scope // where ids are unique
	dir  byte
	id   string
}

type openCall struct {
	seq  uint64
	time int64
	link uint64
}

type tokenKey struct {
	conn  scope
	token string
}

// A scope is where ids are unique: a connection, or a part of one that is a capture.
type scope struct {
	conn int
	part uint64
}

// NewStore returns an empty store.
func NewStore(l Limits) *Store {
	if l.Rows <= 0 {
		l.Rows = 1_000_000
	}
	if l.Bytes <= 0 {
		l.Bytes = 256 << 20
	}
	return &Store{
		limits: l, now: time.Now, next: 1,
		open: map[callKey]openCall{}, tokens: map[tokenKey]uint64{}, rounds: map[tokenKey]uint64{},
	}
}

// Add adds a copy of a frame.
func (s *Store) Add(conn int, link uint64, dir byte, frame []byte) {
	row := Row{Time: s.now().UnixMicro(), Conn: conn, Link: link, Dir: dir, Size: len(frame)}
	s.add(&row, 0, frame)
}

// Put adds a copy of a frame of a capture, and returns its number. part is the connection within
// the capture. What the row says already of the frame stays; frame may be nil, when the capture
// has not kept it, or only its beginning.
func (s *Store) Put(row Row, part uint64, frame []byte) (seq uint64) {
	row.Part = part
	if len(frame) < row.Size && row.Kind != 0 {
		s.keep(&row, part, frame, nil)
	} else {
		s.add(&row, part, frame)
	}
	return row.Seq
}

// Peek returns what a row would say of a frame that has not been added.
func (s *Store) Peek(conn int, dir byte, frame []byte) Row {
	row := Row{Time: s.now().UnixMicro(), Conn: conn, Dir: dir, Size: len(frame)}
	s.decode(&row, frame, func(m *jsonrpc.Message) {
		if m != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.describe(&row, scope{conn: conn}, m)
		}
	})
	return row
}

// add adds a copy of a frame.
func (s *Store) add(row *Row, part uint64, frame []byte) {
	if dir := row.Dir; dir != '>' && dir != '<' {
		row.Dir, row.Kind = '!', Note
		s.keep(row, part, frame, nil)
		return
	}
	s.decode(row, frame, func(m *jsonrpc.Message) { s.keep(row, part, frame, m) })
}

// decode calls then with the one message that a frame is, or nil.
func (s *Store) decode(row *Row, frame []byte, then func(m *jsonrpc.Message)) {
	b, ok := s.batches.Get().(*jsonrpc.Batch)
	if !ok {
		b = new(jsonrpc.Batch)
	}
	defer s.batches.Put(b)
	d := jsonrpc.Decoder{AcceptV1: true}
	switch err := d.Decode(frame, b); {
	case err == nil && b.Array:
		row.Kind = Batch
	case err == nil && len(b.Messages) == 1:
		then(&b.Messages[0])
		return
	default:
		row.Kind = Invalid
	}
	then(nil)
}

// keep describes a row and appends it.
func (s *Store) keep(row *Row, part uint64, frame []byte, m *jsonrpc.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	row.Seq = s.next
	s.next++
	switch in := (scope{row.Conn, part}); {
	case m != nil:
		s.describe(row, in, m)
	case row.Kind == Note && row.Parent == 0:
		row.Parent = s.caller(row, in) // it says why that call gets no answer
	}
	last := s.lastLocked(len(frame))
	last.rows = append(last.rows, *row)
	last.raw = append(last.raw, frame...)
	last.ends = append(last.ends, len(last.raw))
	s.rows++
	s.bytes += len(frame)
	for len(s.parts) > 1 && (s.rows > s.limits.Rows || s.bytes > s.limits.Bytes) {
		s.rows -= len(s.parts[0].rows)
		s.bytes -= len(s.parts[0].raw)
		s.parts[0] = nil
		s.parts = s.parts[1:]
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// lastLocked returns the part that takes a frame of n bytes.
func (s *Store) lastLocked(n int) *part {
	if len(s.parts) > 0 {
		p := s.parts[len(s.parts)-1]
		if len(p.rows) < partRows && len(p.raw)+n <= partBytes {
			return p
		}
	}
	p := &part{first: s.next - 1}
	s.parts = append(s.parts, p)
	return p
}

// First returns the number of the oldest row that is kept, and that of the next one.
func (s *Store) First() (first, next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.firstLocked(), s.next
}

func (s *Store) firstLocked() uint64 {
	if len(s.parts) == 0 {
		return s.next
	}
	return s.parts[0].first
}

// Rows calls yield with the rows from a number on, at most limit and until it returns false, and
// returns the number of the next row. yield must not keep raw, nor call the store.
func (s *Store) Rows(from uint64, limit int, yield func(r *Row, raw []byte) bool) (next uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from = max(from, s.firstLocked())
	for _, p := range s.parts {
		if from >= p.first+uint64(len(p.rows)) {
			continue
		}
		for i := int(from - p.first); i < len(p.rows); i++ {
			if limit == 0 {
				return from
			}
			limit--
			from++
			if !yield(&p.rows[i], p.bytes(i)) {
				return from
			}
		}
	}
	return from
}

// Frame returns a row and a copy of its bytes.
func (s *Store) Frame(seq uint64) (row Row, raw []byte, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, i := s.at(seq)
	if p == nil {
		return row, nil, false
	}
	return p.rows[i], bytes.Clone(p.bytes(i)), true
}

// at returns where the row of a number is; nil: it is not kept.
func (s *Store) at(seq uint64) (*part, int) {
	n := sort.Search(len(s.parts), func(n int) bool {
		return s.parts[n].first+uint64(len(s.parts[n].rows)) > seq
	})
	if n == len(s.parts) || seq < s.parts[n].first {
		return nil, 0
	}
	return s.parts[n], int(seq - s.parts[n].first)
}

// Changed returns a channel that is closed when there is a row of this number.
func (s *Store) Changed(seq uint64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next > seq {
		there := make(chan struct{})
		close(there)
		return there
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (p *part) bytes(i int) []byte {
	begin := 0
	if i > 0 {
		begin = p.ends[i-1]
	}
	return p.raw[begin:p.ends[i]:p.ends[i]]
}

// cut returns the beginning of a text as a string.
func cut(text []byte) string {
	if len(text) > maxName {
		text = bytes.ToValidUTF8(text[:maxName], nil)
	}
	return string(text)
}

// text returns the string that a member of an object is, "" when it is not a string.
func text(object []byte, member string) string {
	v := scan.Member(object, member)
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return cut(scan.Unquote(v))
}
