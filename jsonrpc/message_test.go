package jsonrpc

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func decode(t *testing.T, frame string) *Message {
	t.Helper()
	d := Decoder{AcceptV1: true}
	var b Batch
	if err := d.Decode([]byte(frame), &b); err != nil {
		t.Fatal(err)
	}
	return &b.Messages[0]
}

func TestAppend(t *testing.T) {
	data := &Error{
		Code: InvalidParams, Message: `say "why"`, Data: Raw(`{"member":"a"}`),
		Cause: io.EOF,
	}
	for _, test := range []struct {
		got  []byte
		want string
	}{
		{
			V2.AppendRequest(nil, IntID(1), "subtract", Raw(`[42, 23]`)),
			`{"jsonrpc":"2.0","method":"subtract","params":[42, 23],"id":1}`,
		},
		{
			V2.AppendRequest(nil, StringID("é\"<"), "a\n", nil),
			`{"jsonrpc":"2.0","method":"a\n","id":"é\"<"}`,
		},
		{
			V2.AppendRequest(nil, ID{}, "update", Raw(`{}`)),
			`{"jsonrpc":"2.0","method":"update","params":{}}`,
		},
		{V2.AppendRequest(nil, NullID(), "m", nil), `{"jsonrpc":"2.0","method":"m","id":null}`},
		{
			V1.AppendRequest(nil, IntID(-1), "echo", Raw(`["x"]`)),
			`{"method":"echo","params":["x"],"id":-1}`,
		},
		{V1.AppendRequest(nil, ID{}, "echo", nil), `{"method":"echo","params":[],"id":null}`},
		{V2.AppendResult([]byte("x"), IntID(1), Raw(`19`)), `x{"jsonrpc":"2.0","result":19,"id":1}`},
		{V2.AppendResult(nil, ID{}, nil), `{"jsonrpc":"2.0","result":null,"id":null}`},
		{V1.AppendResult(nil, IntID(1), Raw(`{}`)), `{"result":{},"error":null,"id":1}`},
		{
			V2.AppendError(nil, NullID(), data),
			`{"jsonrpc":"2.0","error":{"code":-32602,"message":"say \"why\"",` +
				`"data":{"member":"a"}},"id":null}`,
		},
		{
			V2.AppendError(nil, ID{}, &Error{Code: 7}),
			`{"jsonrpc":"2.0","error":{"code":7,"message":""},"id":null}`,
		},
		{
			V1.AppendError(nil, IntID(3), &Error{Code: ParseError, Message: "Parse error"}),
			`{"result":null,"error":{"code":-32700,"message":"Parse error"},"id":3}`,
		},
	} {
		if string(test.got) != test.want {
			t.Errorf("got  %s\nwant %s", test.got, test.want)
		}
	}
}

func TestAppendAllocations(t *testing.T) {
	buf := make([]byte, 0, 1024)
	id, raw := IntID(1), Raw(`{"content":[{"type":"text","text":"5"}]}`)
	e := &Error{Code: InvalidParams, Message: "Invalid params", Data: raw}
	m := decode(t, smallRequest)
	if n := testing.AllocsPerRun(100, func() {
		_ = V2.AppendRequest(buf, id, "tools/call", raw)
		_ = V2.AppendResult(buf, id, raw)
		_ = V2.AppendError(buf, id, e)
		_ = m.AppendWithID(buf, id)
		if m.Member("traceparent") != nil {
			t.Error("there is none")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAppendWithID(t *testing.T) {
	for _, test := range []struct{ frame, want string }{
		{`{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","id":99,"method":"m"}`},
		{
			` { "jsonrpc" : "2.0", "x":[ 1 ], "\u0069d" :  "old"  ,"method":"\u006d" } `,
			`{ "jsonrpc" : "2.0", "x":[ 1 ], "\u0069d" :  99  ,"method":"\u006d" }`,
		},
		{`{"jsonrpc":"2.0","method":"m","id":null}`, `{"jsonrpc":"2.0","method":"m","id":99}`},
		{`{"jsonrpc":"2.0","method":"m"}`, `{"id":99,"jsonrpc":"2.0","method":"m"}`},
		{`{"method":"m","params":[],"id":null}`, `{"method":"m","params":[],"id":99}`},
		{`{"jsonrpc":"2.0","result":{"id":5},"id":5}`, `{"jsonrpc":"2.0","result":{"id":5},"id":99}`},
		{`{"jsonrpc":"2.0","method":"m","id":{}}`, `{"jsonrpc":"2.0","method":"m","id":{}}`},
		{`[1]`, `1`},
	} {
		m := decode(t, test.frame)
		if got := m.AppendWithID([]byte("."), IntID(99)); string(got) != "."+test.want {
			t.Errorf("%s\n got %s\nwant .%s", test.frame, got, test.want)
		}
		if got := m.AppendWithID(nil, ID{}); string(got) != m.Raw.String() {
			t.Errorf("%s: absent id: %s", test.frame, got)
		}
	}
}

func TestMember(t *testing.T) {
	m := decode(t,
		`{"jsonrpc":"2.0","traceparent":"00-1","method":"m","params":{"x":1},"\u0078":[2],"_meta":{},`+
			`"_meta":{"last":1}}`)
	for name, want := range map[string]string{
		"traceparent": `"00-1"`, "x": `[2]`, "_meta": `{"last":1}`, "y": "", "method": "", "params": "",
		"Method": "",
	} {
		if got := m.Member(name); string(got) != want || (got == nil) != (want == "") {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := decode(t, `[7]`).Member("x"); got != nil {
		t.Errorf("a message that is no object has %s", got)
	}
}

func TestClone(t *testing.T) {
	for _, test := range decodeCases {
		frame := []byte(test.frame)
		d := Decoder{StrictAnswers: true}
		var b Batch
		if d.Decode(frame, &b) != nil {
			continue
		}
		for i := range b.Messages {
			b.Messages[i] = b.Messages[i].Clone()
		}
		for i := range frame {
			frame[i] = '#'
		}
		if got := summary(&b, nil); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.frame, got, test.want)
		}
	}
	m := decode(t, `{"jsonrpc":"2.0","method":"\"","id":1}`)
	if c := m.Clone(); string(c.Method) != `"` {
		t.Errorf("method %s", c.Method)
	}
	if n := testing.AllocsPerRun(100, func() { _ = m.Clone() }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func TestFailure(t *testing.T) {
	for _, test := range []struct {
		frame, want string // code, message, data
	}{
		{
			`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":1}`,
			`{"code":-32601,"message":"Method not found"}`,
		},
		{
			`{"jsonrpc":"2.0","error":{"data":[1, 2],"message":"\u0041\n","code":-1.00},"id":1}`,
			`{"code":-1,"message":"A\n","data":[1,2]}`,
		},
		{
			`{"jsonrpc":"2.0","error":{"code":0,"message":"","data":null},"id":1}`,
			`{"code":0,"message":"","data":null}`,
		},
		{`{"result":null,"error":{"code":5,"message":"five"},"id":1}`, `{"code":5,"message":"five"}`},
		{`{"result":null,"error":"went \"wrong\"","id":1}`, `{"code":-32000,"message":"went \"wrong\""}`},
		{
			`{"result":null,"error":{"reason":7},"id":1}`,
			`{"code":-32000,"message":"Server error","data":{"reason":7}}`,
		},
	} {
		got, err := json.Marshal(decode(t, test.frame).Failure())
		if err != nil || string(got) != test.want {
			t.Errorf("%s\n got %s %v\nwant %s", test.frame, got, err, test.want)
		}
	}
	for _, frame := range []string{
		smallRequest, `{"jsonrpc":"2.0","result":1,"id":1}`,
		`{"jsonrpc":"2.0","error":1,"id":1}`,
	} {
		if e := decode(t, frame).Failure(); e != nil {
			t.Errorf("%s: %v", frame, e)
		}
	}
}

func TestID(t *testing.T) {
	for raw, ok := range map[string]bool{
		`1`: true, `-0`: true, `1e400`: true, `""`: true, `"a\u0041"`: true, `null`: true,
		``: false, ` 1`: false, `1 `: false, `true`: false, `{}`: false, `[]`: false, `nul`: false,
		`01`: false, "\"\xff\"": false, `1,2`: false,
	} {
		id, err := ParseID(Raw(raw))
		if (err == nil) != ok || ok && id.String() != raw {
			t.Errorf("%s: %s, %v", raw, id, err)
		}
		if err != nil && !id.IsAbsent() {
			t.Errorf("%s: %s despite %v", raw, id, err)
		}
	}
	for raw, want := range map[string]uint64{
		`0`: 0, `1`: 1, `10`: 10, `9007199254740993`: 9007199254740993,
		`18446744073709551615`: math.MaxUint64,
	} {
		id, _ := ParseID(Raw(raw))
		if n, ok := id.Uint(); !ok || n != want {
			t.Errorf("%s: %d %v", raw, n, ok)
		}
	}
	for _, raw := range []string{
		``, `"1"`, `null`, `-1`, `-0`, `1.0`, `1e0`, `18446744073709551616`,
		`99999999999999999999999`,
	} {
		id, _ := ParseID(Raw(raw))
		if n, ok := id.Uint(); ok {
			t.Errorf("%s: %d", raw, n)
		}
	}
	if !IntID(7).Equal(IntID(7)) || IntID(1).Equal(StringID("1")) || NullID().Equal(ID{}) ||
		!NullID().IsNull() || IntID(1).IsAbsent() {
		t.Error("ids are not told apart")
	}
	raw := Raw(`"abc"`)
	id, _ := ParseID(raw)
	clone := id.Clone()
	raw[1] = 'x'
	if id.String() != `"xbc"` || clone.String() != `"abc"` || !(ID{}).Clone().IsAbsent() {
		t.Errorf("%s and its clone %s", id, clone)
	}
}

func TestMarshal(t *testing.T) {
	var v struct {
		ID   ID  `json:"id"`
		Raw  Raw `json:"raw"`
		None Raw `json:"none"`
	}
	in := `{"id":1.0,"raw":{"b":1,"a":[2,1.50]},"none":null}`
	if err := json.Unmarshal([]byte(in), &v); err != nil {
		t.Fatal(err)
	}
	v.None = nil
	if out, err := json.Marshal(v); err != nil || string(out) != in {
		t.Errorf("%s %v", out, err)
	}
	if err := json.Unmarshal([]byte(`{"id":{}}`), &v); err == nil || v.ID.String() != "1.0" {
		t.Errorf("id %s, %v", v.ID, err)
	}
}

func TestValidRaw(t *testing.T) {
	for raw, want := range map[string]string{
		`{"a":1}`: "", " 1\n": "", strings.Repeat("[", 3000) + strings.Repeat("]", 3000): "",
		`{"a":}`: "expected a value at offset 5", ``: "unexpected end at offset 0",
		`1 2`: "unexpected data after the value at offset 2",
	} {
		err := Valid([]byte(raw))
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%.20s: %v, want %s", raw, err, want)
		}
	}
}

func TestErrors(t *testing.T) {
	for err, want := range map[error]string{
		Errorf(InvalidParams, "%s is missing", "a"):                     "a is missing (code -32602)",
		Errorf(InternalError, "reading: %w", io.EOF):                    "reading: EOF (code -32603)",
		&Error{Code: InternalError, Message: "Internal", Cause: io.EOF}: "Internal (code -32603): EOF",
		MethodNotFound:  "Method not found (code -32601)",
		Overloaded:      "Overloaded (code -32010)",
		Cancelled:       "Cancelled (code -32800)",
		Code(-32001):    "code -32001",
		Code(1234):      "code 1234",
		invalid(4, "x"): "Invalid Request (code -32600): x at offset 4",
	} {
		if err.Error() != want {
			t.Errorf("%s, want %s", err, want)
		}
	}
	wrapped := errors.Join(errors.New("calling"),
		Errorf(MethodNotFound, "no: %w and %w", io.EOF, io.ErrUnexpectedEOF))
	if !errors.Is(wrapped, MethodNotFound) || errors.Is(wrapped, InvalidParams) ||
		!errors.Is(wrapped, io.EOF) || !errors.Is(wrapped, io.ErrUnexpectedEOF) {
		t.Error("errors.Is does not find the code and the causes")
	}
	if e := Errorf(InvalidParams, "100%%"); e.Cause != nil || e.Message != "100%" {
		t.Errorf("%+v", e)
	}
}

func BenchmarkAppend(b *testing.B) {
	id, raw := IntID(1), Raw(`{"content":[{"type":"text","text":"5"}]}`)
	m := decode(&testing.T{}, smallRequest)
	buf := make([]byte, 0, 1024)
	for _, bench := range []struct {
		name string
		f    func() []byte
	}{
		{"request", func() []byte { return V2.AppendRequest(buf, id, "tools/call", raw) }},
		{"result", func() []byte { return V2.AppendResult(buf, id, raw) }},
		{"with id", func() []byte { return m.AppendWithID(buf, id) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = bench.f()[:0]
			}
		})
	}
}

// TestLargeRequestBeginsWithItsID: one that is refused before all of it was read can be answered.
func TestLargeRequestBeginsWithItsID(t *testing.T) {
	t.Parallel()
	params := Raw(`["` + strings.Repeat("x", 1<<10) + `"]`)
	for v, want := range map[Version]string{
		V2: `{"jsonrpc":"2.0","id":7,"method":"m","params":[`,
		V1: `{"id":7,"method":"m","params":[`,
	} {
		got := string(v.AppendRequest(nil, IntID(7), "m", params))
		if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `x"]}`) {
			t.Errorf("%.60s … %s", got, got[len(got)-10:])
		}
	}
	if got := V2.AppendRequest(nil, ID{}, "m", params); strings.Contains(string(got), `"id"`) {
		t.Errorf("a notification: %.60s", got)
	}
}
