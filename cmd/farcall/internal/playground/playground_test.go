package playground_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/playground"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// connect serves the playground over a pipe and returns the calling end, which
// serves h.
func connect(t *testing.T, h farcall.Handler) *farcall.Peer {
	t.Helper()
	mux := farcall.NewMux()
	service := playground.Register(mux, nil)
	ours, theirs := farcall.Pipe()
	server := farcall.NewPeer(theirs, mux, nil)
	client := farcall.NewPeer(ours, h, nil)
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
		service.Close()
	})
	return client
}

func TestMethods(t *testing.T) {
	t.Parallel()
	client := connect(t, nil)
	long := strings.Repeat("é", 4001)
	for _, c := range []struct{ method, params, want string }{
		{"math/add", `{"a":2,"b":3}`, `5`},
		{"math/add", `[2,3]`, `5`},
		{"math/add", `[0.1,0.2]`, `0.30000000000000004`},
		{"math/subtract", `{"b":4,"a":9}`, `5`},
		{"math/multiply", `[6,7]`, `42`},
		{"math/multiply", `{"a":6,"b":7}`, `42`},
		{
			"math/multiply", `[1e300,1e300]`,
			`-32001 Invalid user data {"member":"result","reason":"is beyond the range of a 64-bit float"}`,
		},
		{"math/sqrt", `[9]`, `3`},
		{"math/sqrt", `[-9]`, `-32001 Invalid user data {"member":"x","reason":"must not be negative"}`},
		{"math/add_stream", `[2,3]`, `[0,1,2,3,4,5]`},
		{"math/add_stream", `[0,0]`, `[0]`},
		{
			"math/add_stream", `[10000,1]`,
			`-32001 Invalid user data {"member":"result","reason":"a + b must be a whole number from 0 to ` +
				`10000, to be counted to"}`,
		},
		{
			"math/add_stream", `[-2,1]`,
			`-32001 Invalid user data {"member":"result","reason":"a + b must be a whole number from 0 to ` +
				`10000, to be counted to"}`,
		},
		{
			"math/add_stream", `[0.5,1]`,
			`-32001 Invalid user data {"member":"result","reason":"a + b must be a whole number from 0 to ` +
				`10000, to be counted to"}`,
		},
		{"subtract", `[42,23]`, `19`},
		{"subtract", `{"subtrahend":23,"minuend":42}`, `19`},
		{"sum", `[1,2,4]`, `7`},
		{"sum", `[]`, `0`},
		{"get_data", ``, `["hello",5]`},
		{"update", `[1,2,3,4,5]`, `null`},
		{"notify_hello", `[7]`, `null`},
		{"notify_sum", `[1,2,4]`, `null`},
		{"paritosh/echo", `{"message":"ready"}`, `"[Paritosh] ready"`},
		{"paritosh/echo", `["ready"]`, `"[Paritosh] ready"`},
		{
			"ai/generate", `{"prompt":"Hi"}`,
			`"Generated text for a prompt of 2 characters. No model is attached."`,
		},
		{"ai/generate", `{"prompt":"Hi","max_tokens":2}`, `"Generated text"`},
		{
			"ai/generate", `{"prompt":"` + long + `"}`,
			`-32602 Invalid params {"details":"Prompt too long"}`,
		},
		{"ai/generate", `{"prompt":"` + long[2:] + `","max_tokens":1}`, `"Generated"`},
		{
			"ai/generate", `{"prompt":"Hi","max_tokens":9999}`,
			`-32603 LLM inference failed {"reason":"max_tokens is out of range","max_tokens":4096}`,
		},
		{
			"getUserProfile", `{"user_id":101}`,
			`{"user_id":101,"name":"User 101","email":"user101@example.com"}`,
		},
		{
			"getUserProfile", `{"user_id":-1}`,
			`-32602 Invalid params {"member":"user_id","pointer":"/user_id","reason":"out of range",` +
				`"message":"-1 is less than the minimum 1"}`,
		},
		{
			"echo", `{"b": 1.0,  "a":[ 9007199254740993 , "\u0041"]}`,
			`{"b": 1.0,  "a":[ 9007199254740993 , "\u0041"]}`,
		},
		{"echo", ``, `null`},
		{"sleep", `[0]`, `{"ms":0,"of":0}`},
		{
			"sleep", `[-1]`,
			`-32602 Invalid params {"member":"ms","pointer":"/0","reason":"out of range","message":"-1 is ` +
				`less than the minimum 0"}`,
		},
		{"fail", `{"kind":"error"}`, `-32000 Failed as asked {"kind":"error"}`},
		{"fail", ``, `-32000 Failed as asked {"kind":"error"}`},
		{"fail", `{"kind":"internal"}`, `-32603 Internal error `},
		{"fail", `{"kind":"panic"}`, `-32603 Internal error `},
		{"fail", `{"kind":"validation"}`, `-32001 Invalid user data {"kind":"validation"}`},
		{"fail", `{"kind":"permission"}`, `-32002 Unauthorized {"kind":"permission"}`},
		{"fail", `{"kind":"timeout"}`, `-32003 Request timeout {"kind":"timeout"}`},
		{"fail", `{"kind":"dependency"}`, `-32004 Upstream service failed {"kind":"dependency"}`},
		{"clock/unsubscribe", `[77]`, `false`},
		{
			"clock/subscribe", `{"interval_ms":1}`,
			`-32602 Invalid params {"member":"interval_ms","pointer":"/interval_ms","reason":"out of ` +
				`range","message":"1 is less than the minimum 10"}`,
		},
		{
			"clock/subscribe", `{"count":-1}`,
			`-32602 Invalid params {"member":"count","pointer":"/count","reason":"out of range",` +
				`"message":"-1 is less than the minimum 0"}`,
		},
		{
			"continueChat", `{"session_id":"","input":"x"}`,
			`-32602 Invalid params {"member":"session_id","pointer":"/session_id","reason":"out of range",` +
				`"message":"has 0 characters, the minimum is 1"}`,
		},
	} {
		if got := call(t, client, c.method, c.params); got != c.want {
			t.Errorf("%s(%.60s)\n got %s\nwant %s", c.method, c.params, got, c.want)
		}
	}
}

// call makes a call and gives its result, or its error, as text.
func call(t *testing.T, client farcall.Caller, method, params string) string {
	t.Helper()
	var result jsonrpc.Raw
	var given any
	if params != "" {
		given = jsonrpc.Raw(params)
	}
	err := client.Call(t.Context(), method, given, &result)
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		return fmt.Sprintf("%d %s %s", wire.Code, wire.Message, wire.Data)
	}
	if err != nil {
		t.Errorf("%s: %v", method, err)
	}
	return string(result)
}

func TestChatRemembers(t *testing.T) {
	t.Parallel()
	client := connect(t, nil)
	say := func(session, input string) string {
		return call(t, client, "continueChat",
			fmt.Sprintf(`{"session_id":%q,"input":%q}`, session, input))
	}
	if got, want := say("a", "Tell me a joke."),
		`{"session_id":"a","turn":1,"reply":"You said \"Tell me a joke.\"."}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got, want := say("a", "Another."),
		`{"session_id":"a","turn":2,"reply":"You said \"Another.\". Before that you said \"Tell me `+
			`a joke.\"."}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for i := range 1000 {
		say(fmt.Sprint("other", i), "x")
	}
	if got := say("a", "Who am I?"); !strings.Contains(got, `"turn":1,`) {
		t.Errorf("1000 sessions later the first one is still remembered: %s", got)
	}
	if got := say("other999", "x"); !strings.Contains(got, `"turn":2,`) {
		t.Errorf("the latest session is forgotten: %s", got)
	}
}

// logged takes the messages that logEvent writes.
type logged struct {
	slog.Handler
	messages chan string
}

func (l logged) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "message" {
			l.messages <- a.Value.String()
		}
		return true
	})
	return nil
}

func (l logged) Enabled(context.Context, slog.Level) bool { return true }

// The effect of a notification can be seen in the log and in the count.
func TestLogEvent(t *testing.T) {
	t.Parallel()
	mux := farcall.NewMux()
	log := logged{slog.DiscardHandler, make(chan string, 9)}
	defer playground.Register(mux, slog.New(log)).Close()
	ours, theirs := farcall.Pipe()
	server, client := farcall.NewPeer(theirs, mux, nil), farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()
	for _, params := range []any{
		[]string{"batchStart"},
		map[string]string{"message": "User logged in"},
	} {
		if err := client.Notify(t.Context(), "logEvent", params); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"batchStart", "User logged in"} {
		if got := <-log.messages; got != want {
			t.Errorf("logged %q, want %q", got, want)
		}
	}
	if got := call(t, client, "logEvent", `["counted"]`); got != "3" {
		t.Errorf("%s events, want 3", got)
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, nil)
		began := time.Now()
		var text []string
		for c, err := range farcall.Stream[string](t.Context(), client, "paritosh/stream",
			map[string]string{"message": "Grüße"}) {
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, c)
		}
		if !slices.Equal(text, []string{"G", "r", "ü", "ß", "e"}) {
			t.Errorf("got %q", text)
		}
		if d := time.Since(began); d != 100*time.Millisecond {
			t.Errorf("five characters took %v, want 100ms", d)
		}
		var numbers []int
		for n, err := range farcall.Stream[int](t.Context(), client, "math/add_stream", []int{1, 2}) {
			if err != nil {
				t.Fatal(err)
			}
			numbers = append(numbers, n)
		}
		if !slices.Equal(numbers, []int{0, 1, 2, 3}) {
			t.Errorf("got %v", numbers)
		}
	})
}

func TestSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := connect(t, nil)
		began := time.Now()
		var steps []string
		for p, err := range farcall.Stream[jsonrpc.Raw](t.Context(), client, "sleep", []int{1000}) {
			if err != nil {
				t.Fatal(err)
			}
			steps = append(steps, string(p))
		}
		if d := time.Since(began); d != time.Second {
			t.Errorf("slept %v, want 1s", d)
		}
		if len(steps) != 10 || steps[0] != `{"ms":100,"of":1000}` || steps[9] != `{"ms":1000,"of":1000}` {
			t.Errorf("progress: %s", steps)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := client.Call(ctx, "sleep", []int{600_000}, nil); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("a cancelled sleep: %v", err)
		}
		synctest.Wait()
	})
}

// inbox takes what the playground sends to its caller.
type inbox chan string

func (i inbox) ServeRPC(_ context.Context, req *farcall.Request) (any, error) {
	if req.Method == "fails" {
		return nil, &jsonrpc.Error{Code: 7, Message: "no", Data: jsonrpc.Raw(`1.0`)}
	}
	if req.IsNotification() {
		i <- req.Method + string(req.Params)
		return nil, nil
	}
	return map[string]any{"method": req.Method, "params": json.RawMessage(slices.Clone(req.Params))},
		nil
}

func TestClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ticks := make(inbox, 100)
		client := connect(t, ticks)
		if got, want := call(t, client, "clock/subscribe", `{"interval_ms":500,"count":3}`),
			`{"subscription":1,"interval_ms":500,"count":3}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		<-time.After(10 * time.Second)
		if len(ticks) != 3 {
			t.Fatalf("%d ticks, want 3", len(ticks))
		}
		if got, want := <-ticks,
			`onTick{"subscription":1,"tick":1,"time":"2000-01-01T00:00:00.5Z"}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		<-ticks
		<-ticks

		call(t, client, "clock/subscribe", ``)
		<-time.After(2500 * time.Millisecond)
		if got := call(t, client, "clock/unsubscribe", `[2]`); got != "true" {
			t.Errorf("unsubscribe: %s", got)
		}
		<-time.After(10 * time.Second)
		if len(ticks) != 2 {
			t.Errorf("%d ticks in 2.5 s, want 2", len(ticks))
		}
		call(t, client, "clock/subscribe", ``) // ends with the connection, or synctest complains
	})
}

func TestClockOfAnotherConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		service := playground.Register(mux, nil)
		defer service.Close()
		var clients [2]*farcall.Peer
		for i := range clients {
			ours, theirs := farcall.Pipe()
			server := farcall.NewPeer(theirs, mux, nil)
			defer server.Close()
			clients[i] = farcall.NewPeer(ours, nil, nil)
			defer clients[i].Close()
		}
		call(t, clients[0], "clock/subscribe", ``)
		if got := call(t, clients[1], "clock/unsubscribe", `[1]`); got != "false" {
			t.Errorf("ending the clock of another connection: %s, want false", got)
		}
		if got := call(t, clients[0], "clock/unsubscribe", `[1]`); got != "true" {
			t.Errorf("ending the own clock: %s, want true", got)
		}
	})
}

func TestCallback(t *testing.T) {
	t.Parallel()
	client := connect(t, make(inbox, 1))
	for _, c := range []struct{ params, want string }{
		{`{"method":"hello","params":{"x":[1.0]}}`, `{"method":"hello","params":{"x":[1.0]}}`},
		{`["hello",[1.0]]`, `{"method":"hello","params":[1.0]}`},
		{`{"method":"fails"}`, `7 no 1.0`},
	} {
		if got := call(t, client, "callback", c.params); got != c.want {
			t.Errorf("callback(%s): %s, want %s", c.params, got, c.want)
		}
	}
}

// Over a transport with answers that end the exchange, what needs a connection
// says so, with the code that the registry has for it.
func TestWithoutConnection(t *testing.T) {
	t.Parallel()
	mux := farcall.NewMux()
	defer playground.Register(mux, nil).Close()
	responder := farcall.NewResponder(mux, nil)
	for _, request := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"clock/subscribe"}`,
		`{"jsonrpc":"2.0","id":1,"method":"clock/unsubscribe","params":[1]}`,
		`{"jsonrpc":"2.0","id":1,"method":"callback","params":["x"]}`,
	} {
		got := string(responder.Respond(t.Context(), nil, []byte(request), nil))
		if !strings.Contains(got,
			`"code":-32043,"message":"This transport cannot call the caller back; use WebSocket`) {
			t.Errorf("%s: got %s", request, got)
		}
	}
}

func TestClosedServiceStartsNothing(t *testing.T) {
	t.Parallel()
	mux := farcall.NewMux()
	service := playground.Register(mux, nil)
	service.Close()
	service.Close()
	ours, theirs := farcall.Pipe()
	server, client := farcall.NewPeer(theirs, mux, nil), farcall.NewPeer(ours, nil, nil)
	defer server.Close()
	defer client.Close()
	if got := call(t, client, "clock/subscribe", ``); !strings.HasPrefix(got, "-32000 ") {
		t.Errorf("subscribe after Close: %s", got)
	}
}

// Events of time/ticks come until they are all there, or the service is closed.
func TestTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		s := playground.Register(mux, nil)
		a, b := farcall.Pipe()
		server, client := farcall.NewPeer(a, mux, nil), farcall.NewPeer(b, nil, nil)
		defer server.Close()
		defer client.Close()
		type moment struct {
			Tick int       `json:"tick"`
			Time time.Time `json:"time"`
		}
		begun := time.Now()
		sub, err := farcall.Subscribe[moment](t.Context(), client, "time/ticks", []int{500, 3})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for m, err := range sub.Events() {
			if n++; err != nil || m.Tick != n ||
				!m.Time.Equal(begun.Add(time.Duration(n)*500*time.Millisecond)) {
				t.Errorf("%d: %+v, %v", n, m, err)
			}
		}
		if n != 3 {
			t.Errorf("%d ticks", n)
		}
		if sub, err = farcall.Subscribe[moment](t.Context(), client, "time/ticks", nil); err != nil {
			t.Fatal(err)
		}
		s.Close()
		for m, err := range sub.Events() {
			t.Errorf("after Close: %+v, %v", m, err)
		}
	})
}
