package traffic

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// all returns the rows that a filter chooses.
func all(t *testing.T, s *Store, filter string) (rows []Row) {
	t.Helper()
	f, err := Parse(filter)
	if err != nil {
		t.Fatal(err)
	}
	s.Rows(0, -1, func(r *Row, raw []byte) bool {
		if f.Match(r, raw) {
			rows = append(rows, *r)
		}
		return true
	})
	return rows
}

func exchange() *Store {
	s := NewStore(Limits{})
	for _, f := range []struct {
		link uint64
		dir  byte
		text string
	}{
		1: {1, '>', `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"git_log",` +
			`"arguments":{"path":"/etc/x"},"_meta":{"progressToken":"p"}}}`},
		2: {1, '<', `{"jsonrpc":"2.0","method":"notifications/progress","params":{` +
			`"progressToken":"p","progress":1}}`},
		3: {1, '<', `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"m"}}`},
		4: {1, '>', `{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`},
		5: {1, '<', `{"jsonrpc":"2.0","id":1,"result":{"resultType":"input_required",` +
			`"requestState":"s"}}`},
		6: {1, '>', `{"jsonrpc":"2.0","id":"b","method":"tools/call","params":{` +
			`"name":"git_log","requestState":"s"}}`},
		7: {1, '<', `{"jsonrpc":"2.0","id":"b","error":{"code":-32602,"message":"no"}}`},
		8: {1, '<', `{"no":`},
		9: {1, '!', `the connection has ended`},
	} {
		if f.text != "" {
			s.Add(1, f.link, f.dir, []byte(f.text))
		}
	}
	return s
}

// The events of a subscription belong to the call that has subscribed.
func TestSubscription(t *testing.T) {
	t.Parallel()
	s := NewStore(Limits{})
	s.Add(1, 1, '>', []byte(`{"jsonrpc":"2.0","id":7,"method":"eth_subscribe","params":["newHeads"]}`))
	s.Add(1, 1, '<', []byte(`{"jsonrpc":"2.0","id":7,"result":"0xa1"}`))
	for conn, want := range map[int]uint64{1: 1, 2: 0} {
		s.Add(conn, 1, '<', []byte(`{"jsonrpc":"2.0","method":"eth_subscription","params":{`+
			`"subscription":"0xa1","result":{"number":"0x1"}}}`))
		rows := all(t, s, "method:eth_subscription")
		if got := rows[len(rows)-1].Parent; got != want {
			t.Errorf("the parent of an event of connection %d is %d, want %d", conn, got, want)
		}
	}
}

// What became of an exchange is why its call has no answer.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	s := NewStore(Limits{})
	s.Add(1, 1, '>', []byte(`{"jsonrpc":"2.0","id":7,"method":"a"}`))
	s.Add(1, 2, '>', []byte(`{"jsonrpc":"2.0","id":8,"method":"b"}`))
	s.Add(1, 2, '<', []byte(`{"jsonrpc":"2.0","id":8,"result":1}`))
	for _, test := range []struct{ link, parent uint64 }{{1, 1}, {2, 0}, {3, 0}, {0, 0}} {
		s.Add(1, test.link, '!', []byte("HTTP status 404 Not Found"))
		rows := all(t, s, "")
		if got := rows[len(rows)-1].Parent; got != test.parent {
			t.Errorf("the parent of a note about the exchange %d is %d, want %d", test.link, got,
				test.parent)
		}
	}
}

func TestRows(t *testing.T) {
	t.Parallel()
	rows := all(t, exchange(), "")
	want := []string{
		"q tools/call git_log ref 0 parent 0",
		"n notifications/progress  ref 0 parent 1",
		"q elicitation/create  ref 0 parent 1",
		"r elicitation/create  ref 3 parent 0",
		"r tools/call git_log ref 1 parent 0",
		"q tools/call git_log ref 0 parent 1",
		"r tools/call git_log ref 6 parent 0",
		"x   ref 0 parent 0",
		"!   ref 0 parent 0",
	}
	for i, r := range rows {
		if got := fmt.Sprintf(
			"%c %s %s ref %d parent %d",
			r.Kind,
			r.Method,
			r.Name,
			r.Ref,
			r.Parent,
		); got != want[i] {
			t.Errorf("row %d is %q, want %q", i+1, got, want[i])
		}
	}
	if rows[6].Code != -32602 {
		t.Errorf("the code is %d", rows[6].Code)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	s := exchange()
	for filter, want := range map[string]string{
		"":                                "123456789",
		"method:tools/*":                  "1567",
		"name:git*":                       "1567",
		"kind:request dir:down":           "3",
		"kind:request -dir:down":          "16",
		"code:-32602":                     "7",
		"error":                           "7",
		`params.arguments.path=~"^/etc"`:  "1",
		"params.arguments.path:/etc/*":    "1",
		"ELICITATION":                     "34",
		`"has ended"`:                     "9",
		"id:b":                            "67",
		"size>130":                        "1",
		"size<10":                         "8",
		"dur<1h":                          "457",
		"dur>1h":                          "",
		"type:event":                      "9",
		"kind:bad or code:-32602":         "78",
		"conn:2":                          "",
		"method=~^notifications -name:x*": "2",
	} {
		var got strings.Builder
		for _, r := range all(t, s, filter) {
			fmt.Fprint(&got, r.Seq)
		}
		if got.String() != want {
			t.Errorf("%s chooses %s, want %s", filter, got.String(), want)
		}
	}
	for filter, want := range map[string]string{
		`"open`: "unterminated quote", "conn:x": "is not a number", "what:x": `unknown field "what"`,
	} {
		if _, err := Parse(filter); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", filter, err, want)
		}
	}
}

// The oldest frames make room, whichever bound is reached.
func TestBounds(t *testing.T) {
	t.Parallel()
	frame := []byte(`{"jsonrpc":"2.0","method":"x","params":["` + strings.Repeat("x", 1000) + `"]}`)
	for _, l := range []Limits{{Rows: 3 * partRows}, {Bytes: 8 << 20}} {
		s := NewStore(l)
		for range 20_000 {
			s.Add(1, 1, '<', frame)
		}
		first, next := s.First()
		if next != 20_001 || first < 2 || s.rows > max(l.Rows, 1<<20) || s.bytes > 256<<20 ||
			uint64(s.rows) != next-first {
			t.Errorf("%+v: rows %d to %d, %d bytes", l, first, next, s.bytes)
		}
		if l.Bytes > 0 && s.bytes > l.Bytes || l.Rows > 0 && s.rows > l.Rows {
			t.Errorf("%+v: %d rows and %d bytes are kept", l, s.rows, s.bytes)
		}
		if _, _, ok := s.Frame(first - 1); ok {
			t.Error("a forgotten frame is there")
		}
		if r, raw, ok := s.Frame(next - 1); !ok || r.Seq != next-1 || string(raw) != string(frame) {
			t.Errorf("the newest frame is %d %.20s, %v", r.Seq, raw, ok)
		}
		seen := 0
		got := s.Rows(0, 10, func(*Row, []byte) bool { seen++; return true })
		if seen != 10 || got != first+10 {
			t.Errorf("%d rows, the next is %d", seen, got)
		}
	}
}

func TestChanged(t *testing.T) {
	t.Parallel()
	s := NewStore(Limits{})
	changed := s.Changed(1)
	select {
	case <-changed:
		t.Error("there is a row already")
	default:
	}
	s.Add(1, 1, '<', []byte("{}"))
	<-changed
	<-s.Changed(1)
}

func FuzzAdd(f *testing.F) {
	f.Add(
		[]byte(
			`{"jsonrpc":"2.0","id":1,"method":"x","params":{"name":"n","_meta":{"progressToken":1}}}`,
		),
		"method:x",
	)
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"requestState":"s"}}`), `params.a=~"x"`)
	f.Add([]byte(`[`), "-a")
	f.Fuzz(func(t *testing.T, frame []byte, filter string) {
		s := NewStore(Limits{})
		s.Add(1, 1, '>', frame)
		s.Add(1, 1, '<', frame)
		fl, err := Parse(filter)
		if err != nil {
			return
		}
		n := 0
		s.Rows(0, -1, func(r *Row, raw []byte) bool {
			fl.Match(r, raw)
			n++
			if string(raw) != string(frame) {
				t.Errorf("row %d has %q", r.Seq, raw)
			}
			return true
		})
		if n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	s := NewStore(Limits{})
	frame := []byte(
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p",` +
			`"progress":1,"total":100,"message":"working"}}`,
	)
	for b.Loop() {
		s.Add(1, 1, '<', frame)
	}
}
