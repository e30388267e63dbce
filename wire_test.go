package farcall_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// A wire is the far end of a connection to a Peer, as raw bytes.
type wire struct {
	t       *testing.T
	p       *farcall.Peer
	c       *net.TCPConn
	r       *bufio.Reader
	framing stream.Framing
}

// newWire connects to a new peer by TCP. With the test, the peer must have
// nothing more to say.
func newWire(t *testing.T, f stream.Framing, h farcall.Handler, o *farcall.Options) *wire {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	far, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{
		t: t, p: farcall.NewPeer(stream.New(near, f, nil), h, o), c: far.(*net.TCPConn),
		r: bufio.NewReader(far), framing: f,
	}
	t.Cleanup(func() {
		if err := w.p.Close(); err != nil {
			t.Error(err)
		}
		w.soon()
		rest, err := io.ReadAll(w.r)
		if len(rest) > 0 || (err != nil && !t.Failed() && !strings.Contains(err.Error(), "reset")) {
			t.Errorf("the peer said more: %.200s, %v", rest, err)
		}
		far.Close()
	})
	return w
}

// soon bounds the read or write that follows, so that a peer that hangs fails the test.
func (w *wire) soon() {
	w.t.Helper()
	if err := w.c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) write(frames ...string) {
	w.t.Helper()
	var out []byte
	for _, f := range frames {
		if w.framing == stream.Header {
			out = fmt.Appendf(out, "Content-Length: %d\r\n\r\n%s", len(f), f)
		} else {
			out = append(append(out, f...), '\n')
		}
	}
	w.soon()
	if _, err := w.c.Write(out); err != nil {
		w.t.Fatal(err)
	}
}

var reason = regexp.MustCompile(`,"data":\{"reason":"(?:[^"\\]|\\.)+"\}`)

// withoutReasons leaves out why messages were refused: TestReasons has the texts.
func withoutReasons(answer string) string { return reason.ReplaceAllString(answer, "") }

// read reads an answer, without reasons.
func (w *wire) read() string {
	w.t.Helper()
	return withoutReasons(w.readWhole())
}

// readWhole reads an answer as it came.
func (w *wire) readWhole() string {
	w.t.Helper()
	w.soon()
	if w.framing == stream.NDJSON {
		line, err := w.r.ReadString('\n')
		if err != nil {
			w.t.Fatalf("reading: %q, %v", line, err)
		}
		return strings.TrimSuffix(line, "\n")
	}
	header, err := textproto.NewReader(w.r).ReadMIMEHeader()
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil {
		w.t.Fatal(err)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(w.r, body); err != nil {
		w.t.Fatal(err)
	}
	return string(body)
}

func (w *wire) expect(want string) {
	w.t.Helper()
	if got := w.read(); got != want {
		w.t.Errorf("\n got %.500s\nwant %.500s", got, want)
	}
}

const pingRequest, pingAnswer = `{"jsonrpc":"2.0","method":"echo","params":["ping"],"id":"ping"}`,
	`{"jsonrpc":"2.0","result":["ping"],"id":"ping"}`

// ping proves that nothing was answered and that the stream goes on.
func (w *wire) ping() {
	w.t.Helper()
	w.write(pingRequest)
	w.expect(pingAnswer)
}

// hold is a handler that says that it has started and answers when told to.
type hold struct {
	started chan string
	release chan struct{}
}

func newHold() *hold { return &hold{make(chan string, 1000), make(chan struct{})} }

func (h *hold) ServeRPC(ctx context.Context, req *farcall.Request) (any, error) {
	if req.Method == "echo" {
		return req.Params, nil
	}
	h.started <- req.Method
	select {
	case <-h.release:
		return "held", nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func framings(t *testing.T, f func(t *testing.T, f stream.Framing)) {
	t.Run("ndjson", func(t *testing.T) { f(t, stream.NDJSON) })
	t.Run("header", func(t *testing.T) { f(t, stream.Header) })
}

func result(value, id string) string {
	return `{"jsonrpc":"2.0","result":` + value + `,"id":` + id + `}`
}

func refusal(code int, message, id string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","error":{"code":%d,"message":"%s"},"id":%s}`, code,
		message, id)
}

func invalidRequest(id string) string { return refusal(-32600, "Invalid Request", id) }

var (
	notJSON = refusal(-32700, "Parse error", "null")
	deep    = func(n int) string {
		return `{"jsonrpc":"2.0","method":"echo","params":` + strings.Repeat("[", n) +
			strings.Repeat("]", n) + `,"id":1}`
	}
)

// wireTests are requests and what must come back, byte for byte; "" is silence.
var wireTests = []struct{ name, request, want string }{
	{"id integer", `{"jsonrpc":"2.0","method":"echo","id":1}`, result("null", "1")},
	{"id zero", `{"jsonrpc":"2.0","method":"echo","id":0}`, result("null", "0")},
	{"id 1.0", `{"jsonrpc":"2.0","method":"echo","id":1.0}`, result("null", "1.0")},
	{"id 1.5", `{"jsonrpc":"2.0","method":"echo","id":1.5}`, result("null", "1.5")},
	{"id -0", `{"jsonrpc":"2.0","method":"echo","id":-0}`, result("null", "-0")},
	{"id -1", `{"jsonrpc":"2.0","method":"echo","id":-1}`, result("null", "-1")},
	{"id 1e400", `{"jsonrpc":"2.0","method":"echo","id":1e400}`, result("null", "1e400")},
	{
		"id 2^53+1", `{"jsonrpc":"2.0","method":"echo","id":9007199254740993}`,
		result("null", "9007199254740993"),
	},
	{
		"id 2^64", `{"jsonrpc":"2.0","method":"echo","id":18446744073709551616}`,
		result("null", "18446744073709551616"),
	},
	{
		"id of 40 digits",
		`{"jsonrpc":"2.0","method":"echo","id":1234567890123456789012345678901234567890}`,
		result("null", "1234567890123456789012345678901234567890"),
	},
	{
		"id with an escape", `{"jsonrpc":"2.0","method":"echo","id":"a\u0041"}`,
		result("null", `"a\u0041"`),
	},
	{"id empty", `{"jsonrpc":"2.0","method":"echo","id":""}`, result("null", `""`)},
	{"id null", `{"jsonrpc":"2.0","method":"echo","params":[1],"id":null}`, result("[1]", "null")},
	{
		"id null twice", `{"jsonrpc":"2.0","method":"echo","params":[2],"id":null}`,
		result("[2]", "null"),
	},
	{"id true", `{"jsonrpc":"2.0","method":"echo","id":true}`, invalidRequest("null")},
	{"id object", `{"jsonrpc":"2.0","method":"echo","id":{}}`, invalidRequest("null")},
	{"id array", `{"jsonrpc":"2.0","method":"echo","id":[]}`, invalidRequest("null")},
	{
		"id true of an unknown method", `{"jsonrpc":"2.0","method":"nope","id":true}`,
		invalidRequest("null"),
	},

	{"id twice", `{"jsonrpc":"2.0","method":"echo","id":1,"id":1}`, invalidRequest("null")},
	{"method twice", `{"jsonrpc":"2.0","method":"echo","method":"echo","id":1}`, invalidRequest("1")},
	{
		"method twice, once escaped", `{"jsonrpc":"2.0","\u006dethod":"nope","method":"echo","id":1}`,
		invalidRequest("1"),
	},
	{
		"params twice", `{"jsonrpc":"2.0","method":"echo","params":[],"params":[],"id":1}`,
		invalidRequest("1"),
	},
	{"version twice", `{"jsonrpc":"2.0","jsonrpc":"2.0","method":"echo","id":1}`, invalidRequest("1")},
	{"escaped member alone", `{"jsonrpc":"2.0","\u006dethod":"echo","id":1}`, result("null", "1")},
	{"escaped method", `{"jsonrpc":"2.0","method":"\u0065cho","id":1}`, result("null", "1")},
	{"escaped version", `{"jsonrpc":"\u0032.0","method":"echo","id":1}`, result("null", "1")},
	{"Method is unknown", `{"jsonrpc":"2.0","Method":"echo","id":1}`, invalidRequest("1")},
	{
		"Method beside method", `{"jsonrpc":"2.0","Method":7,"method":"echo","id":1}`,
		result("null", "1"),
	},
	{"ID is unknown: a notification", `{"jsonrpc":"2.0","method":"echo","ID":1}`, ""},
	{
		"unknown members", `{"jsonrpc":"2.0","x":1,"method":"echo","x":{"id":7},"id":1,"meta":null}`,
		result("null", "1"),
	},

	{"params of a number", `{"jsonrpc":"2.0","method":"echo","params":1,"id":1}`, invalidRequest("1")},
	{
		"params of a string", `{"jsonrpc":"2.0","method":"echo","params":"x","id":1}`,
		invalidRequest("1"),
	},
	{"params true", `{"jsonrpc":"2.0","method":"echo","params":true,"id":1}`, invalidRequest("1")},
	{"params null", `{"jsonrpc":"2.0","method":"echo","params":null,"id":1}`, result("null", "1")},
	{
		"params kept as they are",
		`{"jsonrpc":"2.0","method":"echo","params":{"b" : 1.0, "a":1e400, "a":"\u0041<&>"},"id":1}`,
		result(`{"b" : 1.0, "a":1e400, "a":"\u0041<&>"}`, "1"),
	},
	{
		"scalar params without an id", `{"jsonrpc":"2.0","method":"echo","params":1}`,
		invalidRequest("null"),
	},

	{"method of a number", `{"jsonrpc":"2.0","method":1,"id":1}`, invalidRequest("1")},
	{"method null", `{"jsonrpc":"2.0","method":null,"id":1}`, invalidRequest("1")},
	{"method and result", `{"jsonrpc":"2.0","method":"echo","result":1,"id":1}`, invalidRequest("1")},
	{
		"method and error", `{"jsonrpc":"2.0","method":"echo","error":{"code":1,"message":""},"id":1}`,
		invalidRequest("1"),
	},
	{
		"unknown method", `{"jsonrpc":"2.0","method":"nope","id":1}`,
		refusal(-32601, "Method not found", "1"),
	},
	{"unknown notification", `{"jsonrpc":"2.0","method":"nope"}`, ""},
	{"failing notification", `{"jsonrpc":"2.0","method":"fail"}`, ""},
	{"panicking notification", `{"jsonrpc":"2.0","method":"panic"}`, ""},
	{"no version", `{"method":"echo","id":1}`, invalidRequest("1")},
	{"version 1.0", `{"jsonrpc":"1.0","method":"echo","id":1}`, invalidRequest("1")},
	{"version of a number", `{"jsonrpc":2.0,"method":"echo","id":1}`, invalidRequest("1")},
	{"empty object", `{}`, invalidRequest("null")},
	{"string", `"x"`, invalidRequest("null")},
	{"null", `null`, invalidRequest("null")},
	{"empty batch", `[]`, invalidRequest("null")},
	{"1.0 is off", `{"method":"echo","params":[],"id":1}`, invalidRequest("1")},

	{"byte order mark", "\uFEFF" + `{"jsonrpc":"2.0","method":"echo","id":1}`, notJSON},
	{"invalid UTF-8", `{"jsonrpc":"2.0","method":"echo","params":["` + "\xff" + `"],"id":1}`, notJSON},
	{
		"encoded surrogate",
		`{"jsonrpc":"2.0","method":"echo","params":["` + "\xed\xa0\x80" + `"],"id":1}`, notJSON,
	},
	{
		"raw control character", `{"jsonrpc":"2.0","method":"echo","params":["` + "\x01" + `"],"id":1}`,
		notJSON,
	},
	{"raw tab", `{"jsonrpc":"2.0","method":"echo","params":["` + "\t" + `"],"id":1}`, notJSON},
	{"trailing data", `{"jsonrpc":"2.0","method":"echo","id":1} x`, notJSON},
	{
		"two messages in one",
		`{"jsonrpc":"2.0","method":"echo","id":1}{"jsonrpc":"2.0","method":"echo","id":2}`, notJSON,
	},
	{"trailing comma", `{"jsonrpc":"2.0","method":"echo","id":1,}`, notJSON},
	{"single quotes", `{'jsonrpc':'2.0'}`, notJSON},
	{"NaN", `{"jsonrpc":"2.0","method":"echo","params":[NaN],"id":1}`, notJSON},
	{"leading zero", `{"jsonrpc":"2.0","method":"echo","id":01}`, notJSON},
	{"cut off", `{"jsonrpc":"2.0","method":"echo","id":1`, notJSON},
	{"garbage", `hello`, notJSON},
	{"as deep as allowed", deep(511), result(strings.Repeat("[", 511)+strings.Repeat("]", 511), "1")},
	{"one too deep", deep(512), notJSON},
	{"much too deep", strings.Repeat("[", 100_000), notJSON},
}

func wireHandler() farcall.Handler {
	return handle(map[string]farcall.HandlerFunc{
		"echo": echo,
		"fail": func(context.Context, *farcall.Request) (any, error) {
			return nil, errors.New("a secret")
		},
		"panic": func(context.Context, *farcall.Request) (any, error) { panic("a secret") },
	})
}

func TestWire(t *testing.T) {
	framings(t, func(t *testing.T, f stream.Framing) {
		w := newWire(t, f, wireHandler(), nil)
		for _, test := range wireTests {
			w.write(test.request)
			if test.want != "" {
				if got := w.read(); got != test.want {
					t.Errorf("%s: %.300s\n got %.300s\nwant %.300s", test.name, test.request, got, test.want)
				}
			}
			w.ping()
		}
	})
}

func TestWireResponder(t *testing.T) {
	r := farcall.NewResponder(wireHandler(), nil)
	for _, test := range wireTests {
		if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(test.request), nil))); got !=
			test.want {
			t.Errorf("%s: %.300s\n got %.300s\nwant %.300s", test.name, test.request, got, test.want)
		}
	}
	for _, response := range []string{
		`{"jsonrpc":"2.0","result":1,"id":1}`,
		`{"jsonrpc":"2.0","error":{},"id":1}`, `[{"jsonrpc":"2.0","result":1,"id":1}]`,
	} {
		if got := r.Respond(t.Context(), nil, []byte(response), nil); len(got) > 0 {
			t.Errorf("an answer was answered: %s -> %s", response, got)
		}
	}
}

// A line break in a string is a control character; only one framing can carry it.
func TestWireLineBreakInString(t *testing.T) {
	w := newWire(t, stream.Header, wireHandler(), nil)
	w.write(`{"jsonrpc":"2.0","method":"echo","params":["` + "\n" + `"],"id":1}`)
	w.expect(notJSON)
	w.write("{\n\"jsonrpc\":\"2.0\",\r\n\"method\":\"echo\",\"id\":1}\n")
	w.expect(result("null", "1"))
	w.ping()
}

func TestWireDepthOption(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), &farcall.Options{MaxDepth: 3})
	w.write(deep(2))
	w.expect(result("[[]]", "1"))
	w.write(deep(3))
	w.expect(notJSON)
	w.ping()
}

func TestTypedOverAPeer(t *testing.T) {
	w := newWire(t, stream.NDJSON, typedMux(), nil)
	for _, test := range []struct{ call, want string }{
		{`"method":"add","params":{"b":2,"a":1}`, `"result":3`},
		{`"method":"add","params":[1,2]`, `"result":3`},
		{
			`"method":"add","params":[1]`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":"b","pointer":"/1",` +
				`"reason":"missing"}}`,
		},
		{
			`"method":"add","params":{"a":1,"b":2,"c":3}`,
			`"error":{"code":-32602,"message":"Invalid params","data":{"member":"c","pointer":"/c",` +
				`"reason":"unknown"}}`,
		},
		{`"method":"void"`, `"result":null`},
		{`"method":"profile"`, `"result":{"name":"<Ann>","tags":[]}`},
		{`"method":"fail"`, `"error":{"code":-32603,"message":"Internal error"}`},
		{`"method":"count","params":{"To":3}`, `"result":[0,1,2]`},
	} {
		w.write(`{"jsonrpc":"2.0",` + test.call + `,"id":1}`)
		w.expect(`{"jsonrpc":"2.0",` + test.want + `,"id":1}`)
	}
}

// JSON-RPC 1.0 is answered in kind where it is allowed; 2.0 is served beside it.
func TestVersion1(t *testing.T) {
	tests := []struct{ request, want string }{
		{`{"method":"echo","params":[1],"id":1}`, `{"result":[1],"error":null,"id":1}`},
		{`{"method":"echo","params":[],"id":"a\u0041"}`, `{"result":[],"error":null,"id":"a\u0041"}`},
		{
			`{"method":"nope","params":[],"id":1}`,
			`{"result":null,"error":{"code":-32601,"message":"Method not found"},"id":1}`,
		},
		{
			`{"method":"fail","params":[],"id":1}`,
			`{"result":null,"error":{"code":-32603,"message":"Internal error"},"id":1}`,
		},
		{
			`{"method":"echo","params":{},"id":1}`,
			`{"result":null,"error":{"code":-32600,"message":"Invalid Request"},"id":1}`,
		},
		{`{"method":"echo","params":[1],"id":null}`, ``}, // a notification
		{`{"method":"nope","params":[1],"id":null}`, ``},
		{`{"jsonrpc":"2.0","method":"echo","params":[1],"id":null}`, result("[1]", "null")},
		{`{"jsonrpc":"2.0","method":"echo","params":{"a":1},"id":2}`, result(`{"a":1}`, "2")},
	}
	o := &farcall.Options{V1: true}
	w := newWire(t, stream.NDJSON, wireHandler(), o)
	r := farcall.NewResponder(wireHandler(), o)
	for _, test := range tests {
		w.write(test.request)
		if test.want != "" {
			w.expect(test.want)
		}
		w.ping()
		if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(test.request), nil))); got !=
			test.want {
			t.Errorf("responder: %s\n got %s\nwant %s", test.request, got, test.want)
		}
	}
}

func TestVersion1Calls(t *testing.T) {
	w := newWire(t, stream.NDJSON, nil, &farcall.Options{V1: true})
	if err := w.p.Notify(t.Context(), "tell", nil); err != nil {
		t.Fatal(err)
	}
	w.expect(`{"method":"tell","params":[],"id":null}`)
	answers := make(chan error, 1)
	for i, test := range []struct {
		answer string
		want   error
	}{
		{`{"result":7,"error":null,"id":1}`, nil},
		{`{"result":null,"error":{"code":-32601,"message":"x"},"id":2}`, jsonrpc.MethodNotFound},
		{`{"result":7,"error":{"code":1,"message":"x"},"id":3}`, farcall.ErrProtocol},
	} {
		go func() { answers <- w.p.Call(t.Context(), "ask", []int{1}, nil) }()
		w.expect(fmt.Sprintf(`{"method":"ask","params":[1],"id":%d}`, i+1))
		w.write(test.answer)
		if err := <-answers; !errors.Is(err, test.want) {
			t.Errorf("%s: got %v, want %v", test.answer, err, test.want)
		}
	}
}

// What is private stays so, unless details are on.
func TestDetails(t *testing.T) {
	h := handle(map[string]farcall.HandlerFunc{
		"echo": echo,
		"plain": func(context.Context, *farcall.Request) (any, error) {
			return nil, fmt.Errorf("open: %w", io.ErrUnexpectedEOF)
		},
		"panic": func(context.Context, *farcall.Request) (any, error) { panic("a secret") },
		"cause": func(context.Context, *farcall.Request) (any, error) {
			return nil, &jsonrpc.Error{Code: 7, Message: "public", Cause: io.ErrClosedPipe}
		},
		"data": func(context.Context, *farcall.Request) (any, error) {
			return nil, &jsonrpc.Error{
				Code: 7, Message: "public", Data: jsonrpc.Raw(`[1]`),
				Cause: io.ErrClosedPipe,
			}
		},
		"bad": func(context.Context, *farcall.Request) (any, error) { return make(chan int), nil },
	})
	off, on := newWire(t, stream.NDJSON, h, nil),
		newWire(t, stream.NDJSON, h, &farcall.Options{Details: true})
	for _, test := range []struct{ request, code, data string }{
		{
			`{"jsonrpc":"2.0","method":"plain","id":1}`, `-32603,"message":"Internal error"`,
			`{"exception":"*errors.errorString","text":"open: unexpected EOF"}`,
		},
		{
			`{"jsonrpc":"2.0","method":"panic","id":1}`, `-32603,"message":"Internal error"`,
			`{"exception":"panic","text":"panic: a secret"}`,
		},
		{
			`{"jsonrpc":"2.0","method":"cause","id":1}`, `7,"message":"public"`,
			`{"exception":"*errors.errorString","text":"io: read/write on closed pipe"}`,
		},
	} {
		off.write(test.request)
		off.expect(`{"jsonrpc":"2.0","error":{"code":` + test.code + `},"id":1}`)
		on.write(test.request)
		on.expect(`{"jsonrpc":"2.0","error":{"code":` + test.code + `,"data":` + test.data + `},"id":1}`)
	}
	for _, w := range []*wire{off, on} { // what the handler reports reaches the wire
		w.write(`{"jsonrpc":"2.0","method":"data","id":1}`)
		w.expect(`{"jsonrpc":"2.0","error":{"code":7,"message":"public","data":[1]},"id":1}`)
		w.write(`{"jsonrpc":"2.0","method":"bad","id":1}`)
		if got := w.read(); strings.Contains(got, "chan") != (w == on) ||
			!strings.Contains(got, "-32603") {
			t.Errorf("a result that does not marshal: %s", got)
		}
		w.ping()
	}
}
