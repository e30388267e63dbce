package conform

import (
	"fmt"
	"strings"
)

func notifyCases() []Case {
	cases := []Case{}
	for _, c := range []struct{ name, title, frame string }{
		{"unknown-method", "a notification of an unknown method is not answered", `{"jsonrpc":"2.0","method":"$none"}`},
		{"params-by-position", "a notification with an array is not answered", `{"jsonrpc":"2.0","method":"$none","params":[1,2]}`},
		{"params-by-name", "a notification with an object is not answered", `{"jsonrpc":"2.0","method":"$none","params":{"a":1}}`},
		{"reserved", "a notification of an rpc. method is not answered", `{"jsonrpc":"2.0","method":"rpc.farcall.conform"}`},
	} {
		cases = append(cases, Case{Name: "notify/" + c.name, Title: c.title, Ref: refNotify, Level: Must, sends: []string{c.frame}})
	}
	cases = append(cases,
		Case{Name: "notify/known-method", Title: "a notification of a method that exists is not answered", Ref: refNotify, Level: Must, sends: []string{`{"jsonrpc":"2.0","method":"$echo","params":["farcall"]}`}, echo: true},
		Case{Name: "notify/bad-params", Title: "a notification with params that do not fit is not answered", Ref: refNotify, Level: Must, sends: []string{`{"jsonrpc":"2.0","method":"subtract","params":["x",{}]}`, `{"jsonrpc":"2.0","method":"subtract","params":{"no":"such"}}`}, needs: []string{"subtract"}})
	for _, c := range []struct{ name, title, frame string }{
		{"result", "a result that answers nothing is not answered", `{"jsonrpc":"2.0","result":1,"id":"farcall-unasked"}`},
		{"error", "an error that answers nothing is not answered", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"x"},"id":4711}`},
		{"null", "an error with id null is not answered: two ends would answer each other for ever", `{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}`},
	} {
		cases = append(cases, Case{Name: "response/" + c.name, Title: c.title, Ref: refResponse, Level: Should, sends: []string{c.frame}})
	}
	return cases
}

func batchCases() []Case {
	const call = `{"jsonrpc":"2.0","method":"$none","id":`
	const note = `{"jsonrpc":"2.0","method":"$none"}`
	invalids := func(n int) []want {
		w := make([]want, n)
		for i := range w {
			w[i] = invalid("null")
		}
		return w
	}
	var many []string
	var manyWant []want
	for i := range 100 {
		many = append(many, fmt.Sprintf("%s\"$id-%d\"}", call, i))
		manyWant = append(manyWant, none(fmt.Sprintf(`"$id-%d"`, i)))
	}
	return []Case{
		{Name: "batch/one", Title: "a batch of one call is answered with an array of one", Ref: refBatch, Level: Must, sends: []string{"[" + call + "$id}]"}, want: []want{none("$id")}, array: true},
		{Name: "batch/mixed", Title: "calls and invalid elements are answered each, notifications are not", Ref: refBatch, Level: Must, sends: []string{"[" + call + "$id}," + note + `,{"foo":"boo"},7,` + call + `"$id2"}]`}, want: []want{none("$id"), invalid("null"), invalid("null"), none(`"$id2"`)}, array: true},
		{Name: "batch/empty", Title: "an empty batch is one -32600, not an array", Ref: refBatch, Level: Must, sends: []string{"[]"}, want: []want{invalid("null")}},
		{Name: "batch/invalid-1", Title: "[1] is an array of one -32600", Ref: refBatch, Level: Must, sends: []string{"[1]"}, want: invalids(1), array: true},
		{Name: "batch/invalid-3", Title: "[1,2,3] is an array of three -32600", Ref: refBatch, Level: Must, sends: []string{"[1,2,3]"}, want: invalids(3), array: true},
		{Name: "batch/nested", Title: "arrays in a batch are -32600 each", Ref: refBatch, Level: Must, sends: []string{"[[],[" + call + "$id}]]"}, want: invalids(2), array: true},
		{Name: "batch/notifications", Title: "a batch of notifications alone is not answered at all", Ref: refBatch, Level: Must, sends: []string{"[" + note + "," + note + "]"}},
		{Name: "batch/bad-id", Title: "an element with an id of {} is -32600 with id null", Ref: refBatch, Level: Must, sends: []string{"[" + call + "{}}," + call + "$id}]"}, want: []want{invalid("null"), none("$id")}, array: true},
		{Name: "batch/ids", Title: "each element's id comes back as it was written", Ref: refResponse, Level: Must, sends: []string{"[" + call + "2.0}," + call + "9007199254740997}," + call + `"b\u0041"},` + call + "null}]"}, want: []want{none("2.0"), none("9007199254740997"), none(`"b\u0041"`), none("null")}, array: true},
		{Name: "batch/duplicate-ids", Title: "of two calls with one id the second is -32600: their answers could not be distinguished", Ref: refBatch, Level: Should, sends: []string{"[" + call + "$id}," + call + "$id}]"}, want: []want{none("$id"), {id: "$id", codes: []int{codeInvalidRequest}, nullID: true}}, array: true},
		{Name: "batch/truncated", Title: "a batch that is not JSON is one -32700, not an array", Ref: refBatch, Level: Must, sends: []string{"[" + call + `$id},{"jsonrpc":"2.0","method"]`}, want: []want{parseError()}},
		{Name: "batch/100", Title: "a batch of 100 calls is answered whole", Ref: refBatch, Level: Should, sends: []string{"[" + strings.Join(many, ",") + "]"}, want: manyWant, array: true},
	}
}

// exampleCases are the twelve exchanges of the specification's §7. They stand
// on one line each because a line may be a frame. The seventh is as the
// specification has it; some copies of it have lost the error.
func exampleCases() []Case {
	notFound := func(id string) want {
		return want{id: id, codes: []int{codeMethodNotFound}, message: "Method not found"}
	}
	wrong := want{id: "null", codes: []int{codeInvalidRequest}, message: "Invalid Request"}
	broken := want{id: "null", codes: []int{codeParse}, message: "Parse error"}
	subtract := []string{"subtract"}
	cases := []Case{
		{
			Name: "s1/01-by-position", Title: "call with positional parameters", needs: subtract,
			sends: []string{`{"jsonrpc": "2.0", "method": "subtract", "params": [42, 23], "id": 1}`, `{"jsonrpc": "2.0", "method": "subtract", "params": [23, 42], "id": 2}`},
			want:  []want{{id: "1", result: "19"}, {id: "2", result: "-19"}},
		}, {
			Name: "s1/02-by-name", Title: "call with named parameters", needs: subtract,
			sends: []string{`{"jsonrpc": "2.0", "method": "subtract", "params": {"subtrahend": 23, "minuend": 42}, "id": 3}`, `{"jsonrpc": "2.0", "method": "subtract", "params": {"minuend": 42, "subtrahend": 23}, "id": 4}`},
			want:  []want{{id: "3", result: "19"}, {id: "4", result: "19"}},
		}, {
			Name: "s1/03-notification", Title: "notifications",
			sends: []string{`{"jsonrpc": "2.0", "method": "update", "params": [1,2,3,4,5]}`, `{"jsonrpc": "2.0", "method": "foobar"}`},
		}, {
			Name: "s1/04-no-such-method", Title: "call of a method that does not exist",
			sends: []string{`{"jsonrpc": "2.0", "method": "foobar", "id": "1"}`}, want: []want{notFound(`"1"`)},
		}, {
			Name: "s1/05-invalid-json", Title: "call with invalid JSON",
			sends: []string{`{"jsonrpc": "2.0", "method": "foobar, "params": "bar", "baz]`}, want: []want{broken},
		}, {
			Name: "s1/06-invalid-request", Title: "call with an invalid request object",
			sends: []string{`{"jsonrpc": "2.0", "method": 1, "params": "bar"}`}, want: []want{wrong},
		}, {
			Name: "s1/07-batch-invalid-json", Title: "batch with invalid JSON",
			sends: []string{`[ {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, {"jsonrpc": "2.0", "method" ]`}, want: []want{broken},
		}, {
			Name: "s1/08-batch-empty", Title: "empty batch", sends: []string{`[]`}, want: []want{wrong},
		}, {
			Name: "s1/09-batch-invalid", Title: "batch with one invalid element",
			sends: []string{`[1]`}, want: []want{wrong}, array: true,
		}, {
			Name: "s1/10-batch-invalid-3", Title: "batch with three invalid elements",
			sends: []string{`[1,2,3]`}, want: []want{wrong, wrong, wrong}, array: true,
		}, {
			Name: "s1/11-batch", Title: "batch", needs: []string{"sum", "subtract", "get_data"},
			sends: []string{`[ {"jsonrpc": "2.0", "method": "sum", "params": [1,2,4], "id": "1"}, {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]}, {"jsonrpc": "2.0", "method": "subtract", "params": [42,23], "id": "2"}, {"foo": "boo"}, {"jsonrpc": "2.0", "method": "foo.get", "params": {"name": "myself"}, "id": "5"}, {"jsonrpc": "2.0", "method": "get_data", "id": "9"} ]`},
			want:  []want{{id: `"1"`, result: "7"}, {id: `"2"`, result: "19"}, wrong, notFound(`"5"`), {id: `"9"`, result: `["hello",5]`}}, array: true,
		}, {
			Name: "s1/12-batch-notifications", Title: "batch of notifications",
			sends: []string{`[ {"jsonrpc": "2.0", "method": "notify_sum", "params": [1,2,4]}, {"jsonrpc": "2.0", "method": "notify_hello", "params": [7]} ]`},
		},
	}
	for i := range cases {
		cases[i].Title = "the specification's example: " + cases[i].Title
		cases[i].Ref, cases[i].Level = refExamples, Must
	}
	return cases
}

// echoCases show whether a server keeps what it is given.
func echoCases() []Case {
	var cases []Case
	for _, c := range []struct {
		name, title, ref string
		level            Level
		bytes            bool
		payload          string
	}{
		{"by-name", "named params arrive by name", refParams, Must, false, `{"a":1,"b":[true,false,null]}`},
		{"strings", "strings keep their value", refStrings, Must, false, `["\"\\\/\b\f\n\r\tA\u0041","žluťoučký 😀","\ud83d\ude00","<script>&amp;</script>","\u0000"]`},
		{"numbers", "numbers keep their value, beyond 64 bits too", "RFC 8259 §6", Should, false, `[9007199254740993,1234567890123456789012345678901234567890,0.1,1e400,-0.0]`},
		{"nesting", "an array in an array stays one", refGrammar, Must, false, `[[[]],[{}],{"":{"":[]}}]`},
		{"bytes", "what is only passed on keeps its bytes: member order, escapes, number forms", refGrammar, Should, true, `[{"z":1.0,"a":1e2,"m":-0},"a\u0041\/","<&>"]`},
	} {
		k := Case{
			Name: "echo/" + c.name, Title: c.title, Ref: c.ref, Level: c.level, echo: true, payload: c.payload,
			sends: []string{`{"jsonrpc":"2.0","method":"$echo","params":` + c.payload + `,"id":$id}`},
			want:  []want{{id: "$id", result: c.payload, bytes: c.bytes}},
		}
		cases = append(cases, k)
	}
	return cases
}

// framingCases are about how messages lie on a byte stream.
func framingCases() []Case {
	streams := []string{Lines, Headers}
	two := []string{`{"jsonrpc":"2.0","method":"$none","id":"first-$id"}`, `{"jsonrpc":"2.0","method":"$none","id":"second-$id"}`}
	twoWant := []want{none(`"first-$id"`), none(`"second-$id"`)}
	const ndjson = "newline-delimited JSON"
	const lsp = "LSP base protocol, header part"
	return []Case{
		{Name: "framing/joined", Title: "two messages in one write are two messages", Ref: "byte streams have no boundaries", Level: Must, on: streams, write: joined, sends: two, want: twoWant},
		{Name: "framing/pieces", Title: "a message in many writes is one message", Ref: "byte streams have no boundaries", Level: Must, on: streams, write: pieces, sends: two[:1], want: twoWant[:1]},
		{Name: "framing/crlf", Title: "a line may end in CR LF", Ref: ndjson, Level: Should, on: []string{Lines}, sends: []string{`{"jsonrpc":"2.0","method":"$none","id":$id}` + "\r"}, want: []want{none("$id")}},
		{Name: "framing/empty-lines", Title: "empty lines are ignored", Ref: ndjson, Level: Should, on: []string{Lines}, sends: []string{"", "\r", `{"jsonrpc":"2.0","method":"$none","id":$id}`, ""}, want: []want{none("$id")}},
		{Name: "framing/headers", Title: "header names in lower case and unknown headers are accepted", Ref: lsp, Level: Must, on: []string{Headers}, write: headers, sends: []string{`{"jsonrpc":"2.0","method":"$none","id":"é-$id"}`}, want: []want{none(`"é-$id"`)}},
		{Name: "framing/multi-line", Title: "a message may span lines, its length counts", Ref: lsp, Level: Must, on: []string{Headers}, sends: []string{"{\r\n\t\"jsonrpc\": \"2.0\",\n\t\"method\": \"$none\",\n\t\"id\": $id\n}\n"}, want: []want{none("$id")}},
	}
}
