package httprpc_test

import (
	"net/url"
	"testing"

	"github.com/farcall-dev/farcall/httprpc"
)

func TestStreamHandler(t *testing.T) {
	address := serve(t, httprpc.NewStreamHandler(service(t), nil))
	chunk := func(json string) string { return "data: " + json + "\n\n" }
	result := func(json string) string { return chunk(`{"jsonrpc":"2.0","result":` + json + `}`) }
	const done = "id: done\ndata: [DONE]\n\n"
	for _, c := range []struct{ name, query, want string }{
		{
			"streaming", "method=count&params=" + url.QueryEscape(`{"to":2}`),
			result(`0,"id":1`) + result(`1,"id":1`) + done,
		},
		{"empty stream", "method=count&params=" + url.QueryEscape(`{"to":0}`), done},
		{"error in the middle", "method=count&to=3&id=9", result(`0,"id":9`) + result(`1,"id":9`) +
			result(`2,"id":9`) +
			chunk(`{"jsonrpc":"2.0","error":{"code":-32001,"message":"three"},"id":9}`) + done},
		{"not streaming", "method=add&params=[2,3]&id=a", result(`5,"id":"a"`) + done},
		{"id kept", "method=add&params=[2,3]&id=1.0", result(`5,"id":1.0`) + done},
		{"id as JSON string", "method=add&params=[2,3]&id=%22a%22", result(`5,"id":"a"`) + done},
		{"null is no id", "method=add&params=[2,3]&id=null", result(`5,"id":"null"`) + done},
		{
			"members",
			"method=echo&message=hi&n=5&t=true&z=null&o=" + url.QueryEscape(`{"a":[1]}`) + "&s=" +
				url.QueryEscape(`a"b`),
			result(`{"message":"hi","n":5,"o":{"a":[1]},"s":"a\"b","t":true,"z":null},"id":1`) + done,
		},
		{"members several times", "method=echo&a=1&a=x", result(`{"a":[1,"x"]},"id":1`) + done},
		{"a quoted number is a string", "method=echo&a=%225%22", result(`{"a":"5"},"id":1`) + done},
		{"empty value", "method=echo&a=", result(`{"a":""},"id":1`) + done},
		{"params win", "method=echo&a=1&params=[1]", result(`[1],"id":1`) + done},
		{"params null", "method=echo&params=null", result(`null,"id":1`) + done},
		{
			"unknown method", "method=x&id=2",
			chunk(`{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"},"id":2}`) + done,
		},
		{
			"no method", "id=2",
			chunk(`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request",`+
				`"data":{"reason":"the query has no method"}},"id":2}`) + done,
		},
		{
			"bad escape", "method=%zz",
			chunk(`{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request",`+
				`"data":{"reason":"invalid URL escape \"%zz\""}},"id":1}`) + done,
		},
		{
			"scalar params", "method=echo&params=5",
			chunk(`{"jsonrpc":"2.0","error":{"code":-32602,"message":"Invalid params",`+
				`"data":{"member":"params","reason":"they are neither an object nor an array"}},"id":1}`) +
				done,
		},
		{
			"failing", "method=fail",
			chunk(`{"jsonrpc":"2.0","error":{"code":-32001,"message":"no","data":{"a":1}},"id":1}`) + done,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, header, got := request(t, "GET", address+"?"+c.query, "")
			if status != 200 || header.Get("Content-Type") != "text/event-stream" || got != c.want {
				t.Errorf("%d %s\n%s\nwant\n%s", status, header.Get("Content-Type"), got, c.want)
			}
		})
	}
}

// An EventSource that reconnects after the end gets the status that stops it.
func TestStreamIsNotRepeated(t *testing.T) {
	address := serve(t, httprpc.NewStreamHandler(service(t), nil))
	status, _, got := request(t, "GET", address+"?method=add&params=[2,3]", "", "Last-Event-ID: done")
	if status != 204 || got != "" {
		t.Errorf("%d %s", status, got)
	}
}
