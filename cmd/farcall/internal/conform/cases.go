package conform

import (
	"fmt"
	"slices"
	"strings"
)

// References to the sections that the cases stand on.
const (
	refVersion  = "JSON-RPC 2.0 §4 (jsonrpc)"
	refRequest  = "JSON-RPC 2.0 §4"
	refNotify   = "JSON-RPC 2.0 §4.1"
	refParams   = "JSON-RPC 2.0 §4.2"
	refResponse = "JSON-RPC 2.0 §5"
	refError    = "JSON-RPC 2.0 §5.1"
	refBatch    = "JSON-RPC 2.0 §6"
	refExamples = "JSON-RPC 2.0 §7"
	refReserved = "JSON-RPC 2.0 §8"
	refCase     = "JSON-RPC 2.0 §2" // names are case-sensitive
	refGrammar  = "RFC 8259 §2"
	refNames    = "RFC 8259 §4"
	refStrings  = "RFC 8259 §7"
	refUTF8     = "RFC 8259 §8.1"
	refLimits   = "RFC 8259 §9"
)

// Cases lists everything that is probed, in order.
func Cases() []Case {
	return slices.Concat(basicCases(), idCases(), envelopeCases(), jsonCases(), notifyCases(), batchCases(), exampleCases(), echoCases(), framingCases())
}

// none is the answer to a call of a method that does not exist.
func none(id string) want { return want{id: id, codes: []int{codeMethodNotFound}} }

// invalid is the answer to an invalid envelope.
func invalid(id string) want {
	return want{id: id, codes: []int{codeInvalidRequest}, nullID: id != "null"}
}

func parseError() want { return want{id: "null", codes: []int{codeParse}} }

func basicCases() []Case {
	return []Case{
		{
			Name: "basic/unknown-method", Title: "an unknown method is -32601", Ref: refError, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","id":$id}`}, want: []want{none("$id")},
		}, {
			Name: "basic/params-by-position", Title: "params may be an array", Ref: refParams, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","params":[1,"a",null],"id":$id}`}, want: []want{none("$id")},
		}, {
			Name: "basic/params-by-name", Title: "params may be an object", Ref: refParams, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","params":{"a":1},"id":$id}`}, want: []want{none("$id")},
		}, {
			Name: "basic/member-order", Title: "members may come in any order", Ref: refNames, Level: Must,
			sends: []string{`{"id":$id,"params":[],"method":"$none","jsonrpc":"2.0"}`}, want: []want{none("$id")},
		}, {
			Name: "basic/white-space", Title: "white space around every token is allowed", Ref: refGrammar, Level: Must,
			sends: []string{" \t{ \"jsonrpc\" :\t\"2.0\" , \"method\" : \"$none\" , \"id\" : $id }\t "}, want: []want{none("$id")},
		}, {
			Name: "basic/reserved", Title: "an unknown rpc. method is -32601", Ref: refReserved, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"rpc.farcall.conform","id":$id}`}, want: []want{none("$id")},
		}, {
			Name: "basic/escaped-members", Title: "a member name may be written with escapes", Ref: refStrings, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","\u006dethod":"$none","id":$id}`}, want: []want{none("$id")},
		},
	}
}

func idCases() []Case {
	var cases []Case
	for _, c := range []struct{ name, title, id string }{
		{"integer", "an integer", `17`},
		{"negative", "a negative integer", `-1`},
		{"zero", "zero", `0`},
		{"point-zero", "1.0, not 1", `1.0`},
		{"fraction", "1.5, not 1", `1.5`},
		{"minus-zero", "-0, not 0", `-0`},
		{"exponent", "1e2, not 100", `1e2`},
		{"huge", "1e400, beyond a 64-bit float", `1e400`},
		{"2^53+1", "9007199254740993, which a 64-bit float cannot hold", `9007199254740993`},
		{"2^64", "18446744073709551616, which 64 bits cannot hold", `18446744073709551616`},
		{"40-digits", "an integer of 40 digits", `1234567890123456789012345678901234567890`},
		{"string", "a string", `"abc"`},
		{"numeric-string", "a string of digits, not a number", `"17"`},
		{"empty-string", "the empty string", `""`},
		{"escape", `"a\u0041", not "aA"`, `"a\u0041"`},
		{"html", "a string with <, > and &", `"<&>"`},
		{"unicode", "a string beyond ASCII", `"žluťoučký 😀"`},
	} {
		cases = append(cases, Case{
			Name: "id/" + c.name, Title: "the id comes back: " + c.title, Ref: refResponse, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","id":` + c.id + `}`}, want: []want{none(c.id)},
		})
	}
	cases = append(cases, Case{
		Name: "id/null", Title: "an id of null is a request, answered with id null", Ref: refNotify, Level: Must,
		sends: []string{`{"jsonrpc":"2.0","method":"$none","id":null}`}, want: []want{none("null")},
	})
	for _, c := range []struct{ name, id string }{{"true", "true"}, {"object", "{}"}, {"array", "[]"}} {
		cases = append(cases, Case{
			Name: "id/" + c.name, Title: "an id of " + c.id + " is -32600 with id null", Ref: refResponse, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","id":` + c.id + `}`}, want: []want{invalid("null")},
		})
	}
	return append(cases,
		Case{
			Name: "id/neighbours", Title: "ids that a 64-bit float cannot tell apart are distinguished", Ref: refResponse, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","id":9007199254740994}`, `{"jsonrpc":"2.0","method":"$none","id":9007199254740995}`},
			want:  []want{none("9007199254740994"), none("9007199254740995")},
		}, Case{
			Name: "id/types", Title: `1 and "1" are two ids`, Ref: refResponse, Level: Must,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","id":$id}`, `{"jsonrpc":"2.0","method":"$none","id":"$id"}`},
			want:  []want{none("$id"), none(`"$id"`)},
		}, Case{
			Name: "id/reuse", Title: "an id that was answered may be used again", Ref: refRequest, Level: Should, write: inTurn,
			sends: []string{`{"jsonrpc":"2.0","method":"$none","id":$id}`, `{"jsonrpc":"2.0","method":"$none","id":$id}`},
			want:  []want{none("$id"), none("$id")},
		})
}

func envelopeCases() []Case {
	either := want{id: "$id", codes: []int{codeInvalidRequest}, also: []int{codeMethodNotFound}, nullID: true}
	cases := []Case{
		{Name: "envelope/case-sensitive", Title: `"Method" and "ID" are other members than "method" and "id"`, Ref: refCase, Level: Should, sends: []string{`{"jsonrpc":"2.0","method":"$none","id":$id,"Method":1,"ID":2,"Params":"x"}`}, want: []want{none("$id")}},
		{Name: "envelope/method-misspelt", Title: `"Method" alone is no method`, Ref: refCase, Level: Should, sends: []string{`{"jsonrpc":"2.0","Method":"$none","id":$id}`}, want: []want{invalid("$id")}},
		{Name: "envelope/unknown-member", Title: "members that JSON-RPC does not define are ignored", Ref: refRequest, Level: Should, sends: []string{`{"jsonrpc":"2.0","method":"$none","traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","id":$id}`}, want: []want{none("$id")}},
		{Name: "envelope/params-null", Title: "params of null are as good as none", Ref: refParams, Level: Should, sends: []string{`{"jsonrpc":"2.0","method":"$none","params":null,"id":$id}`}, want: []want{none("$id")}},
		{Name: "envelope/method-and-result", Title: "a message with a method and a result is -32600", Ref: refResponse, Level: Should, sends: []string{`{"jsonrpc":"2.0","method":"$none","result":1,"id":$id}`}, want: []want{either}},
		{Name: "envelope/method-and-error", Title: "a message with a method and an error is -32600", Ref: refResponse, Level: Should, sends: []string{`{"jsonrpc":"2.0","method":"$none","error":{"code":1,"message":"x"},"id":$id}`}, want: []want{either}},
		{Name: "envelope/empty", Title: "an empty object is -32600", Ref: refRequest, Level: Must, sends: []string{`{}`}, want: []want{invalid("null")}},
		{Name: "envelope/no-method", Title: "no method, result or error is -32600", Ref: refRequest, Level: Must, sends: []string{`{"jsonrpc":"2.0","params":[],"id":$id}`}, want: []want{invalid("$id")}},
		{Name: "version/missing", Title: `no "jsonrpc" is -32600, or answered as JSON-RPC 1.0`, Ref: refVersion, Level: Must, sends: []string{`{"method":"$none","params":[],"id":$id}`}, want: []want{invalid("$id")}, v1ok: true},
	}
	for _, v := range []struct{ name, value string }{{"1.0", `"1.0"`}, {"number", `2.0`}, {"2.00", `"2.00"`}, {"null", `null`}} {
		cases = append(cases, Case{Name: "version/" + v.name, Title: `"jsonrpc":` + v.value + " is -32600", Ref: refVersion, Level: Must, sends: []string{`{"jsonrpc":` + v.value + `,"method":"$none","id":$id}`}, want: []want{invalid("$id")}})
	}
	for _, v := range []struct{ name, value string }{{"string", `"bar"`}, {"number", "7"}, {"true", "true"}} {
		w := invalid("$id")
		w.also = []int{codeInvalidParams, codeMethodNotFound}
		cases = append(cases, Case{Name: "envelope/params-" + v.name, Title: "params of " + v.value + " are -32600: neither array nor object", Ref: refParams, Level: Must, sends: []string{`{"jsonrpc":"2.0","method":"$none","params":` + v.value + `,"id":$id}`}, want: []want{w}})
	}
	for _, v := range []struct{ name, value string }{{"number", "1"}, {"null", "null"}, {"object", "{}"}, {"array", `["$none"]`}} {
		cases = append(cases, Case{Name: "envelope/method-" + v.name, Title: "a method of " + v.value + " is -32600", Ref: refRequest, Level: Must, sends: []string{`{"jsonrpc":"2.0","method":` + v.value + `,"id":$id}`}, want: []want{invalid("$id")}})
	}
	for _, v := range []struct{ name, value string }{{"number", "42"}, {"string", `"x"`}, {"true", "true"}, {"null", "null"}} {
		cases = append(cases, Case{Name: "envelope/scalar-" + v.name, Title: "a message of " + v.value + " is -32600", Ref: refRequest, Level: Must, sends: []string{v.value}, want: []want{invalid("null")}})
	}
	for _, v := range []struct{ name, message, id string }{
		{"method", `{"jsonrpc":"2.0","method":"$none","method":"$none","id":$id}`, "$id"},
		{"params", `{"jsonrpc":"2.0","method":"$none","params":[1],"params":[2],"id":$id}`, "$id"},
		{"jsonrpc", `{"jsonrpc":"2.0","method":"$none","jsonrpc":"2.0","id":$id}`, "$id"},
		{"id", `{"jsonrpc":"2.0","method":"$none","id":$id,"id":$id2}`, "null"},
		{"escaped", `{"jsonrpc":"2.0","method":"$none","\u006dethod":"$none","id":$id}`, "$id"},
	} {
		w := invalid(v.id)
		cases = append(cases, Case{Name: "duplicate/" + v.name, Title: "a member that is given twice is -32600: ends that read it differently can be played against each other", Ref: refNames, Level: Should, sends: []string{v.message}, want: []want{w}})
	}
	return cases
}

func jsonCases() []Case {
	var cases []Case
	for _, c := range []struct {
		name, title, ref string
		level            Level
		frame            string
	}{
		{"truncated", "half a message", refError, Must, `{"jsonrpc":"2.0","method":"$none","id":$id`},
		{"not-json", "plain text", refError, Must, `hello`},
		{"trailing-data", "more after the message", refGrammar, Must, `{"jsonrpc":"2.0","method":"$none","id":$id} x`},
		{"trailing-comma", "a comma before the end", refGrammar, Must, `{"jsonrpc":"2.0","method":"$none","id":$id,}`},
		{"unquoted-name", "a name without quotes", refGrammar, Must, `{jsonrpc:"2.0","method":"$none","id":$id}`},
		{"single-quotes", "single quotes", refGrammar, Must, `{'jsonrpc':'2.0','method':'$none','id':1}`},
		{"comment", "a comment", refGrammar, Must, `{"jsonrpc":"2.0",/* no */"method":"$none","id":$id}`},
		{"literal", "a literal cut short, in params", refGrammar, Must, `{"jsonrpc":"2.0","method":"$none","params":[tru],"id":$id}`},
		{"missing-value", "an empty place in an array", refGrammar, Must, `{"jsonrpc":"2.0","method":"$none","params":[1,,2],"id":$id}`},
		{"leading-zero", "a number with a leading zero", refGrammar, Must, `{"jsonrpc":"2.0","method":"$none","params":[01],"id":$id}`},
		{"nan", "NaN", refGrammar, Must, `{"jsonrpc":"2.0","method":"$none","params":[NaN],"id":$id}`},
		{"bad-escape", "an escape that does not exist", refStrings, Must, `{"jsonrpc":"2.0","method":"$none","params":["\q"],"id":$id}`},
		{"bad-id", "an id that is no number", refGrammar, Must, `{"jsonrpc":"2.0","method":"$none","id":1.}`},
		{"control-character", "a raw control character in a string", refStrings, Must, "{\"jsonrpc\":\"2.0\",\"method\":\"$none\",\"params\":[\"a\x01b\"],\"id\":$id}"},
		{"byte-order-mark", "a byte order mark", refUTF8, Should, "\xef\xbb\xbf" + `{"jsonrpc":"2.0","method":"$none","id":$id}`},
		{"invalid-utf-8", "a byte that is not UTF-8", refUTF8, Should, "{\"jsonrpc\":\"2.0\",\"method\":\"$none\",\"params\":[\"a\xffb\"],\"id\":$id}"},
		{"surrogate-utf-8", "a surrogate in UTF-8", refUTF8, Should, "{\"jsonrpc\":\"2.0\",\"method\":\"$none\",\"params\":[\"\xed\xa0\x80\"],\"id\":$id}"},
	} {
		k := Case{Name: "json/" + c.name, Title: c.title + " is -32700 with id null", Ref: c.ref, Level: c.level, sends: []string{c.frame}, want: []want{parseError()}}
		if strings.HasSuffix(c.name, "utf-8") {
			k.notOn, k.notOnWhy = []string{WebSocket}, "WebSocket itself refuses text that is not UTF-8 (RFC 6455 §8.1)"
		}
		cases = append(cases, k)
	}
	deep := want{id: "null", codes: []int{codeParse, codeInvalidRequest}}
	const depth = 100_000
	return append(cases, Case{
		Name: "json/depth", Title: fmt.Sprintf("params nested %d deep are refused, not fatal", depth), Ref: refLimits, Level: Should,
		sends: []string{`{"jsonrpc":"2.0","method":"$none","params":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `,"id":$id}`},
		want:  []want{deep},
	})
}

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
