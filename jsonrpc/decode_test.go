package jsonrpc

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// summary writes a decoded frame in one line.
func summary(b *Batch, err *Error) string {
	if err != nil {
		return fmt.Sprintf("%d", err.Code)
	}
	var s []string
	for i := range b.Messages {
		m := &b.Messages[i]
		one := []byte([...]string{"invalid", "call", "note", "answer"}[m.Kind])
		if m.Version == V1 {
			one = append(one, "/1"...)
		}
		for _, part := range []struct {
			name  string
			value []byte
		}{
			{"id", m.ID.Raw()},
			{"m", m.Method},
			{"p", m.Params},
			{"r", m.Result},
			{"e", m.Error},
		} {
			if part.value != nil {
				one = fmt.Appendf(one, " %s:%s", part.name, part.value)
			}
		}
		if m.Err != nil {
			one = fmt.Appendf(one, " %d", m.Err.Code)
		}
		s = append(s, string(one))
	}
	if b.Array {
		return "[" + strings.Join(s, ", ") + "]"
	}
	return strings.Join(s, ", ")
}

func TestDecode(t *testing.T) {
	d := Decoder{StrictAnswers: true}
	var reused Batch
	for _, test := range decodeCases {
		var fresh Batch
		err := d.Decode([]byte(test.frame), &fresh)
		if got := summary(&fresh, err); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.frame, got, test.want)
		}
		if err != nil && (len(fresh.Messages) != 0 || fresh.Array) {
			t.Errorf("%s: refused, but %+v", test.frame, fresh)
		}
		err = d.Decode([]byte(test.frame), &reused)
		if got := summary(&reused, err); got != test.want {
			t.Errorf("%s, reused batch\n got %s\nwant %s", test.frame, got, test.want)
		}
		checkErrors(t, test.frame, &reused, err)
	}
}

// checkErrors checks that refusals have exactly the public text that the
// specification's examples have, and a private cause.
func checkErrors(t *testing.T, frame string, b *Batch, err *Error) {
	t.Helper()
	errs := []*Error{err}
	for _, m := range b.Messages {
		errs = append(errs, m.Err)
	}
	for _, e := range errs {
		if e == nil {
			continue
		}
		text := map[Code]string{ParseError: "Parse error", InvalidRequest: "Invalid Request"}[e.Code]
		if e.Message != text || e.Cause == nil ||
			string(e.Data) != string(AppendString([]byte(`{"reason":`), e.Cause.Error()))+"}" {
			t.Errorf("%s: %+v", frame, e)
		}
	}
}

func TestDecodeV1(t *testing.T) {
	d := Decoder{AcceptV1: true, StrictAnswers: true}
	for _, test := range []struct{ frame, want string }{
		{`{"method":"echo","params":["Hello"],"id":1}`, `call/1 id:1 m:echo p:["Hello"]`},
		{`{"method":"echo","params":[],"id":null}`, `note/1 m:echo p:[]`},
		{`{"method":"echo","params":[]}`, `note/1 m:echo p:[]`},
		{`{"method":"echo","params":null,"id":"x"}`, `call/1 id:"x" m:echo`},
		{`{"method":"echo","params":{"a":1},"id":1}`, `invalid/1 id:1 -32600`},
		{`{"method":"echo","params":{"a":1},"id":null}`, `invalid/1 id:null -32600`},
		{`{"method":"echo","params":7,"id":1}`, `invalid/1 id:1 -32600`},
		{`{"method":7,"params":[],"id":1}`, `invalid/1 id:1 -32600`},
		{`{"method":"a","method":"b","params":[],"id":1}`, `invalid/1 id:1 -32600`},
		{`{"id":1}`, `invalid/1 id:1 -32600`},
		{`{"result":"Hello","error":null,"id":1}`, `answer/1 id:1 r:"Hello"`},
		{`{"result":null,"error":null,"id":1}`, `answer/1 id:1 r:null`},
		{
			`{"result":null,"error":{"code":1,"message":"m"},"id":1}`,
			`answer/1 id:1 e:{"code":1,"message":"m"}`,
		},
		{`{"result":null,"error":"went wrong","id":1}`, `answer/1 id:1 e:"went wrong"`},
		{`{"result":1,"id":1}`, `answer/1 id:1 r:1`},
		{`{"error":[1],"id":1}`, `answer/1 id:1 e:[1]`},
		{`{"error":null,"id":1}`, `answer/1 id:1 -32600`},
		{`{"result":1,"error":"x","id":1}`, `answer/1 id:1 -32600`},
		{`{"result":1,"error":null}`, `answer/1 id:null -32600`},
		{
			`[{"method":"a","params":[],"id":1},{"jsonrpc":"2.0","method":"b","id":2}]`,
			`[call/1 id:1 m:a p:[], call id:2 m:b]`,
		},
		// 2.0 keeps its rules beside it.
		{`{"jsonrpc":"2.0","method":"m","params":{"a":1},"id":null}`, `call id:null m:m p:{"a":1}`},
		{`{"jsonrpc":"2.0","result":1,"error":null,"id":1}`, `answer id:1 -32600`},
		{`{"jsonrpc":"2.0","error":"text","id":1}`, `answer id:1 -32600`},
		{`{"jsonrpc":"1.0","method":"m","params":[],"id":1}`, `invalid id:1 -32600`},
	} {
		var b Batch
		err := d.Decode([]byte(test.frame), &b)
		if got := summary(&b, err); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.frame, got, test.want)
		}
	}
}

// The exchanges of the specification's section 7, as they arrive.
func TestDecodeSpecification(t *testing.T) {
	for _, test := range decodeExamples {
		var d Decoder
		var b Batch
		err := d.Decode([]byte(test.frame), &b)
		if got := summary(&b, err); got != test.want {
			t.Errorf("%s: %s\n got %s\nwant %s", test.name, test.frame, got, test.want)
		}
	}
}

var decodeExamples = []struct{ name, frame, want string }{
	{
		"1 positional", `{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}`,
		`call id:1 m:subtract p:[42, 23]`,
	},
	{
		"1 positional", `{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}`,
		`call id:2 m:subtract p:[23, 42]`,
	},
	{
		"2 named",
		`{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}`,
		`call id:3 m:subtract p:{"subtrahend": 23, "minuend": 42}`,
	},
	{
		"2 named",
		`{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}`,
		`call id:4 m:subtract p:{"minuend": 42, "subtrahend": 23}`,
	},
	{
		"3 notification", `{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`,
		`note m:update p:[1,2,3,4,5]`,
	},
	{"3 notification", `{"jsonrpc": "2.0", "method": "foobar"}`, `note m:foobar`},
	{"4 unknown method", `{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`, `call id:"1" m:foobar`},
	{"5 invalid JSON", `{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`, `-32700`},
	{
		"6 invalid request", `{"jsonrpc": "2.0", "method": 1, "params": "bar"}`,
		`invalid id:null -32600`,
	},
	{
		"7 batch, invalid JSON",
		`[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", "method"` +
			"\n]", `-32700`,
	},
	{"8 empty array", `[]`, `-32600`},
	{"9 invalid batch", `[1]`, `[invalid id:null -32600]`},
	{
		"10 invalid batch", `[1,2,3]`,
		`[invalid id:null -32600, invalid id:null -32600, invalid id:null -32600]`,
	},
	{
		"11 batch",
		`[{"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"},{"jsonrpc": "2.0", ` +
			`"method": "notify_hello", "params": [7]},{"jsonrpc": "2.0", "method": "subtract", "params": ` +
			`[42,23], "id": "2"},{"foo": "boo"},{"jsonrpc": "2.0", "method": "foo.get", "params": ` +
			`{"name": "myself"}, "id": "5"},{"jsonrpc": "2.0", "method": "get_data", "id": "9"}` + "\n]",
		`[call id:"1" m:sum p:[1,2,4], note m:notify_hello p:[7], call id:"2" m:subtract p:[42,23], ` +
			`invalid id:null -32600, call id:"5" m:foo.get p:{"name": "myself"}, call id:"9" m:get_data]`,
	},
	{
		"12 notifications",
		`[{"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]},{"jsonrpc": "2.0", "method": ` +
			`"notify_hello", "params": [7]}` + "\n]",
		`[note m:notify_sum p:[1,2,4], note m:notify_hello p:[7]]`,
	},
}

func TestDecodeCauses(t *testing.T) {
	for frame, want := range map[string]string{
		`{"jsonrpc":"2.0",}`:      "expected a member name in quotes at offset 17",
		`  {"method":"m","id":1}`: `"jsonrpc" must be "2.0" at offset 2`,
		`{"jsonrpc":"2.0","method":"m","id":[]}`: "the id must be a string, a number or null " +
			"at offset 35",
		`{"jsonrpc":"2.0","method":7}`: "the method must be a string at offset 26",
		`{"jsonrpc":"2.0","method":"m","params":7}`: "the params must be an object or an array " +
			"at offset 39",
		`{"jsonrpc":"2.0","id":1,"id":2}`: `the member "id" is given twice at offset 29`,
		` []`:                             "the batch is empty at offset 1",
		`[1,2]`:                           "a message must be an object at offset 1",
		"\uFEFF{}":                        "byte order mark at offset 0",
		`{"jsonrpc":"2.0","id":1,"error":{}}`: "the error must be an object with an integer " +
			"code and a string message at offset 32",
		`{"jsonrpc":"2.0","method":"m","result":{}}`: "a message cannot have both a method and a " +
			"result at offset 39",
	} {
		var d Decoder
		var b Batch
		err := d.Decode([]byte(frame), &b)
		if err == nil {
			err = b.Messages[0].Err
		}
		if err == nil || err.Cause.Error() != want {
			t.Errorf("%s: %v, want %s", frame, err, want)
		}
	}
}

func nested(n int) string {
	return `{"jsonrpc":"2.0","id":1,"method":"m","params":` + strings.Repeat("[", n-1) +
		strings.Repeat("]", n-1) + `}`
}

func TestDecodeDepth(t *testing.T) {
	for _, test := range []struct {
		depth int
		frame string
		want  Code // 0: accepted
	}{
		{0, nested(512), 0},
		{0, nested(513), ParseError},
		{0, "[" + nested(511) + "]", 0},
		{0, "[" + nested(512) + "]", ParseError},
		{0, nested(200_000), ParseError},
		{0, strings.Repeat("[", 5_000_000), ParseError},
		{0, strings.Repeat(`{"a":`, 1_000_000), ParseError},
		{-1, nested(200_000), 0},
		{1, `{"jsonrpc":"2.0","method":"m","id":1}`, 0},
		{1, nested(2), ParseError},
		{1, `[{"jsonrpc":"2.0","method":"m","id":1}]`, ParseError},
		{1, `[1]`, 0},
		{2, `[{"jsonrpc":"2.0","method":"m","id":1}]`, 0},
		{2, `{"jsonrpc":"2.0","method":"m","x":[[]]}`, ParseError},
	} {
		d := Decoder{MaxDepth: test.depth}
		var b Batch
		err := d.Decode([]byte(test.frame), &b)
		if (err == nil) != (test.want == 0) || err != nil && err.Code != test.want {
			t.Errorf("depth %d, %.60s: %v, want %d", test.depth, test.frame, err, test.want)
		}
	}
}

func TestDecodeBatchLimit(t *testing.T) {
	batch := func(n int) []byte {
		return []byte("[" + strings.Repeat("1,", n-1) + "1]")
	}
	for _, test := range []struct {
		limit int
		frame []byte
		want  Code
	}{
		{0, batch(10_000), 0},
		{0, batch(10_001), TooLarge},
		{2, batch(2), 0},
		{2, batch(3), TooLarge},
		{2, []byte(`[1,2,3,`), ParseError}, // JSON comes first
		{2, []byte(`[1,2,3,}]`), ParseError},
		{2, []byte(`[1,2,3]4`), ParseError},
		{-1, batch(1), InvalidRequest},
		{-1, []byte(`[]`), InvalidRequest},
		{-1, []byte(`[`), ParseError},
		{-1, []byte(`{"jsonrpc":"2.0","method":"m"}`), 0},
	} {
		d := Decoder{MaxBatch: test.limit}
		var b Batch
		err := d.Decode(test.frame, &b)
		if (err == nil) != (test.want == 0) || err != nil && err.Code != test.want {
			t.Errorf("limit %d, %.60s: %v, want %d", test.limit, test.frame, err, test.want)
		}
	}
}

// Ten thousand ids, each given twice and spread apart: the second is refused.
func TestDecodeDuplicates(t *testing.T) {
	const n = 5000
	frame := []byte("[")
	for i := range 2 * n {
		frame = fmt.Appendf(frame, `{"jsonrpc":"2.0","method":"m","id":%d},`, i%n)
	}
	frame[len(frame)-1] = ']'
	var d Decoder
	var b Batch
	if err := d.Decode(frame, &b); err != nil {
		t.Fatal(err)
	}
	for i, m := range b.Messages {
		want := Request
		if i >= n {
			want = Invalid
		}
		if m.Kind != want || m.ID.String() != strconv.Itoa(i%n) {
			t.Fatalf("%d: kind %d, id %s", i, m.Kind, m.ID)
		}
	}
	if got, want := b.Messages[n+3].Err.Cause.Error(),
		"element 5003 of the batch has the id of element 3"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// What could make the search for duplicates slow: nothing to tell apart.
func TestDecodeSameIDs(t *testing.T) {
	for _, id := range []string{"null", "7"} {
		one := `{"jsonrpc":"2.0","method":"m","id":` + id + `},`
		frame := []byte("[" + strings.Repeat(one, 10_000))
		frame[len(frame)-1] = ']'
		var d Decoder
		var b Batch
		if err := d.Decode(frame, &b); err != nil {
			t.Fatal(err)
		}
		requests := 0
		for _, m := range b.Messages {
			if m.Kind == Request {
				requests++
			}
		}
		if want := map[string]int{"null": 10_000, "7": 1}[id]; requests != want {
			t.Errorf("id %s: %d requests, want %d", id, requests, want)
		}
	}
}

func TestDecodeAllocations(t *testing.T) {
	batch := append([]byte("["),
		bytes.Repeat([]byte(`{"jsonrpc":"2.0","method":"m","params":{"a":[1]}},`), 10_000)...)
	batch[len(batch)-1] = ']'
	ids := []byte("[")
	for i := range 1000 {
		ids = fmt.Appendf(ids, `{"jsonrpc":"2.0","method":"m","id":"%d"},`, i)
	}
	ids[len(ids)-1] = ']'
	var d Decoder
	for _, frame := range [][]byte{
		[]byte(smallRequest),
		[]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}]}}`),
		[]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params","data":{"member":"a"}}}`),
		[]byte(`{"jsonrpc":"2.0","\u0069d":1,"method":"m","progressToken":7,"a long unknown member name":1}`),
		[]byte(`[` + smallRequest + `,{"jsonrpc":"2.0","method":"n"},{"jsonrpc":"2.0","id":2,"method":"n"}]`),
		batch,
		ids,
	} {
		var b Batch
		if n := testing.AllocsPerRun(10, func() {
			if err := d.Decode(frame, &b); err != nil || b.Messages[0].Err != nil {
				t.Fatal(err, b.Messages)
			}
		}); n != 0 {
			t.Errorf("%.80s: %v allocations", frame, n)
		}
	}
}

const smallRequest = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add",` +
	`"arguments":{"a":2,"b":3}}}`

func BenchmarkDecode(b *testing.B) {
	ten := []byte("[")
	for i := range 10 {
		ten = append(ten, strings.Replace(smallRequest, `:1,`, ":"+strconv.Itoa(i)+",", 1)+","...)
	}
	ten[len(ten)-1] = ']'
	large := []byte("[")
	for i := range 10_000 {
		large = fmt.Appendf(large, `{"jsonrpc":"2.0","id":%d,"method":"m","params":[%d]},`, i, i)
	}
	large[len(large)-1] = ']'
	for _, bench := range []struct {
		name  string
		frame []byte
	}{
		{"request", []byte(smallRequest)},
		{"spaced request", []byte(strings.NewReplacer(":", ": ", ",", ", ").Replace(smallRequest))},
		{
			"response",
			[]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"5"}],"structuredContent":{"sum":5}}}`),
		},
		{
			"error",
			[]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid params","data":{"member":"a"}}}`),
		},
		{
			"notification",
			[]byte(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":50,"total":100}}`),
		},
		{"batch of 10", ten},
		{"batch of 10000", large},
		{
			"string of 10 MB",
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":["` + strings.Repeat("abcdefgh", 10<<17) + `"]}`),
		},
	} {
		b.Run(bench.name, func(b *testing.B) {
			var d Decoder
			var batch Batch
			b.SetBytes(int64(len(bench.frame)))
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(bench.frame, &batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Answers are read as other clients read them; requests have to be right.
func TestDecodeLenientAnswers(t *testing.T) {
	var lenient Decoder
	strict := Decoder{StrictAnswers: true}
	for _, test := range []struct{ frame, want string }{
		{`{"jsonrpc":"2.0","result":1,"error":null,"id":1}`, `answer id:1 r:1`},
		{`{"jsonrpc":"2.0","result":null,"error":null,"id":1}`, `answer id:1 r:null`},
		{
			`{"jsonrpc":"2.0","result":null,"error":{"code":1,"message":""},"id":1}`,
			`answer id:1 e:{"code":1,"message":""}`,
		},
		{`{"result":1,"id":1}`, `answer id:1 r:1`},
		{`{"result":1,"error":null,"id":1}`, `answer id:1 r:1`},
		{`{"error":{"code":1,"message":""},"id":1}`, `answer id:1 e:{"code":1,"message":""}`},
		// Still wrong.
		{`{"jsonrpc":"1.0","result":1,"id":1}`, `answer id:1 -32600`},
		{`{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":1}`, `answer id:1 -32600`},
		{`{"jsonrpc":"2.0","error":null,"id":1}`, `answer id:1 -32600`},
		{`{"jsonrpc":"2.0","result":1,"result":1,"id":1}`, `answer id:1 -32600`},
		{`{"error":"text","id":1}`, `answer id:1 -32600`},
		{`{"result":1}`, `answer id:null -32600`},
		{`{"method":"m","id":1}`, `invalid id:1 -32600`},
		{`{"jsonrpc":"2.0","method":"m","error":null,"id":1}`, `invalid id:1 -32600`},
	} {
		var b Batch
		err := lenient.Decode([]byte(test.frame), &b)
		if got := summary(&b, err); got != test.want {
			t.Errorf("%s\n got %s\nwant %s", test.frame, got, test.want)
		}
		if err := strict.Decode([]byte(test.frame), &b); err != nil || b.Messages[0].Err == nil {
			t.Errorf("%s is taken by a strict decoder", test.frame)
		}
	}
}
