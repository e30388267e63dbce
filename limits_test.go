package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

func overloaded(id string) string { return refusal(-32010, "Overloaded", id) }

func waitRequest(id string) string { return `{"jsonrpc":"2.0","method":"wait","id":` + id + `}` }

func (w *wire) expectEnd(text string) {
	w.t.Helper()
	select {
	case <-w.p.Done():
	case <-time.After(10 * time.Second):
		w.t.Fatal("the connection is open")
	}
	if err := w.p.Err(); err == nil || !strings.Contains(err.Error(), text) {
		w.t.Errorf("ended with %v, want %q", err, text)
	}
}

func TestMaxInFlight(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, &farcall.Options{MaxInFlight: 2})
	w.write(waitRequest("1"), waitRequest("2"))
	<-h.started
	<-h.started
	w.write(waitRequest("3"),
		`[`+waitRequest("4")+`,{"jsonrpc":"2.0","method":"wait"},`+waitRequest(`"5"`)+`]`)
	w.expect(overloaded("3")) // at once
	w.expect(`[` + overloaded("4") + `,` + overloaded(`"5"`) + `]`)
	<-h.started // the notification is no request
	if st := w.p.Stats(); st.InFlight != 2 || st.Overloaded == 0 {
		t.Errorf("%+v", st)
	}
	close(h.release)
	if a, b := w.read(), w.read(); a+b != result(`"held"`, "1")+result(`"held"`, "2") &&
		a+b != result(`"held"`, "2")+result(`"held"`, "1") {
		t.Errorf("got %s and %s", a, b)
	}
	w.ping()
}

func TestMaxInFlightOfAResponder(t *testing.T) {
	h := newHold()
	r := farcall.NewResponder(h, &farcall.Options{MaxInFlight: 1})
	held := make(chan []byte, 1)
	go func() { held <- r.Respond(t.Context(), nil, []byte(waitRequest("1")), nil) }()
	<-h.started
	for request, want := range map[string]string{
		pingRequest:                           overloaded(`"ping"`),
		`[` + pingRequest + `]`:               `[` + overloaded(`"ping"`) + `]`,
		`{"jsonrpc":"2.0","method":"wait"}`:   ``, // a notification is never answered
		`[{"jsonrpc":"2.0","method":"wait"}]`: ``,
	} {
		if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(request), nil))); got != want {
			t.Errorf("%s\n got %s\nwant %s", request, got, want)
		}
	}
	close(h.release)
	if got := string(<-held); got != result(`"held"`, "1") {
		t.Errorf("got %s", got)
	}
	if got := withoutReasons(string(r.Respond(t.Context(), nil, []byte(pingRequest), nil))); got !=
		pingAnswer {
		t.Errorf("afterwards: %s", got)
	}
}

func TestMaxInFlightBytes(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, &farcall.Options{MaxInFlightBytes: 2000})
	pad := `["` + strings.Repeat("x", 1200) + `"]`
	w.write(echoCall(strings.Repeat("[", 1)+pad+","+pad+","+pad+"]", "0")) // one is always admitted
	if got := w.read(); !strings.Contains(got, `"result":[["xxx`) {
		t.Errorf("got %.100s", got)
	}
	w.write(`{"jsonrpc":"2.0","method":"wait","params":` + pad + `,"id":1}`)
	<-h.started
	w.write(echoCall(pad, "2"), `[`+echoCall(pad, "3")+`]`)
	w.expect(overloaded("2"))
	w.expect(`[` + overloaded("3") + `]`)
	w.ping() // a small one fits
	close(h.release)
	w.expect(result(`"held"`, "1"))
	w.write(echoCall(pad, "4"))
	w.expect(result(pad, "4"))
}

// Notifications must not be lost silently: too many end the connection.
func TestNotificationFlood(t *testing.T) {
	h := newHold()
	w := newWire(t, stream.NDJSON, h, &farcall.Options{MaxInFlightBytes: 10_000})
	note := `{"jsonrpc":"2.0","method":"wait","params":["` + strings.Repeat("x", 1000) + `"]}`
	w.write(note)
	<-h.started
	for range 8 {
		w.write(note)
	}
	w.ping() // these wait
	if st := w.p.Stats(); st.Queued != 8 {
		t.Errorf("%+v", st)
	}
	w.write(note, note, note)
	w.expectEnd("more notifications arrived")
	close(h.release)
}

// Unread answers beyond MaxUnsent end the connection.
func TestMaxUnsent(t *testing.T) {
	far, near := net.Pipe() // it has no buffer
	defer far.Close()
	all := make(chan struct{})
	var started sync.WaitGroup
	started.Add(20)
	p := farcall.NewPeer(stream.New(near, stream.NDJSON, nil),
		farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
			started.Done()
			<-all
			return strings.Repeat("x", 100_000), nil
		}), &farcall.Options{MaxUnsent: 1_000_000})
	for i := range 20 {
		if _, err := fmt.Fprintf(far, `{"jsonrpc":"2.0","method":"big","id":%d}`+"\n", i); err != nil {
			t.Fatal(err)
		}
	}
	started.Wait()
	close(all)
	select {
	case <-p.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the connection is open")
	}
	if err := p.Err(); err == nil || !strings.Contains(err.Error(), "does not read") {
		t.Errorf("ended with %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// Answers that match nothing are dropped and counted, and never answered.
func TestAnswersThatMatchNothing(t *testing.T) {
	framings(t, func(t *testing.T, f stream.Framing) {
		w := newWire(t, f, wireHandler(), nil)
		answers := []string{
			`{"jsonrpc":"2.0","result":1,"id":99}`,
			`{"jsonrpc":"2.0","result":1,"id":"x"}`,
			`{"jsonrpc":"2.0","result":1,"id":null}`,
			`{"jsonrpc":"2.0","error":{"code":1,"message":""},"id":99}`,
			`{"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error"},"id":null}`,
			`{"jsonrpc":"2.0","error":{"code":"1"},"id":99}`,
			`{"jsonrpc":"2.0","error":7,"id":99}`,
			`{"jsonrpc":"2.0","result":1,"error":{"code":1,"message":""},"id":99}`,
			`{"jsonrpc":"2.0","result":1}`,
			`{"jsonrpc":"2.0","result":1,"id":{}}`,
			`{"jsonrpc":"2.0","result":1,"id":1,"id":2}`,
			`{"result":1,"id":99}`,
			`{"result":1,"error":null,"id":99}`,
		}
		for i, answer := range answers {
			w.write(answer)
			w.ping()
			if n := w.p.Stats().Dropped; n != uint64(i+1) {
				t.Fatalf("%s: %d were dropped, want %d", answer, n, i+1)
			}
		}
		w.write(`[` + strings.Join(answers, ",") + `,` + pingRequest + `]`)
		w.expect(`[` + pingAnswer + `]`)
		if n := w.p.Stats().Dropped; n != uint64(2*len(answers)) {
			t.Errorf("%d were dropped", n)
		}
	})
}

func (w *wire) call(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- w.p.Call(ctx, "ask", nil, nil) }()
	return done
}

// Only the very id answers a call, and only once; the ids of the other end are
// of another space.
func TestCrossTalk(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), nil)
	got := make(chan string, 1)
	go func() {
		raw, err := farcall.Call[jsonrpc.Raw](t.Context(), w.p, "ask", nil)
		got <- fmt.Sprint(raw, err)
	}()
	w.expect(`{"jsonrpc":"2.0","method":"ask","id":1}`)
	w.write(result("0", `"1"`), result("0", "1.0"), result("0", "-1"), result("0", "1e0"),
		result("0", "2"), result("0", "null"))
	w.write(echoCall("[1]", "1")) // a request with the id of ours
	w.expect(result("[1]", "1"))
	// cancels nothing of ours
	w.write(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	w.ping()
	if st := w.p.Stats(); st.Dropped != 6 || st.Calls != 1 {
		t.Errorf("%+v", st)
	}
	w.write(result("7", "1"), result("8", "1"))
	if r := <-got; r != "7 <nil>" {
		t.Errorf("got %s", r)
	}
	w.ping()
	if st := w.p.Stats(); st.Dropped != 7 || st.Calls != 0 {
		t.Errorf("%+v", st)
	}
}

// The late answer of a call that was given up reaches no other call.
func TestLateAnswer(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	first := w.call(ctx)
	w.expect(`{"jsonrpc":"2.0","method":"ask","id":1}`)
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	w.expect(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
	second := w.call(t.Context())
	w.expect(`{"jsonrpc":"2.0","method":"ask","id":2}`)
	w.write(refusal(-32800, "Request cancelled", "1"), result("0", "1"))
	w.ping()
	if st := w.p.Stats(); st.Dropped != 2 || st.Calls != 1 {
		t.Errorf("%+v", st)
	}
	w.write(result("0", "2"))
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestMalformedAnswer(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), nil)
	for i, members := range []string{
		`"result":1,"error":{"code":1,"message":""}`,
		`"error":{}`,
		`"error":"text"`,
		`"error":null`,
		`"error":{"code":1}`,
		`"error":{"code":1.5,"message":""}`,
		`"error":{"code":1,"message":2}`,
		`"result":1,"result":1`,
	} {
		done := w.call(t.Context())
		id := fmt.Sprint(i + 1)
		w.expect(`{"jsonrpc":"2.0","method":"ask","id":` + id + `}`)
		w.write(`{"jsonrpc":"2.0",` + members + `,"id":` + id + `}`)
		var wire *jsonrpc.Error
		if err := <-done; !errors.Is(err, farcall.ErrProtocol) || errors.As(err, &wire) {
			t.Errorf("%s: got %v", members, err)
		}
		w.ping()
	}
	strict := newWire(t, stream.NDJSON, wireHandler(), &farcall.Options{StrictAnswers: true})
	for i, members := range []string{`"result":1`, `"jsonrpc":"2.0","result":1,"error":null`} {
		for _, w := range []*wire{w, strict} {
			id := i + 1
			if w != strict {
				id += 8
			}
			done := w.call(t.Context())
			w.read()
			w.write(fmt.Sprintf(`{%s,"id":%d}`, members, id))
			if err := <-done; (w == strict) != errors.Is(err, farcall.ErrProtocol) ||
				w != strict && err != nil {
				t.Errorf("%s, strict %v: got %v", members, w == strict, err)
			}
		}
	}
}

// An error without an id can only be meant for the one call that waits.
func TestErrorWithoutID(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), nil)
	done := w.call(t.Context())
	w.read()
	w.write(notJSON)
	if err := <-done; !errors.Is(err, jsonrpc.ParseError) {
		t.Errorf("got %v", err)
	}
	one, two := w.call(t.Context()), w.call(t.Context())
	w.read()
	w.read()
	w.write(notJSON) // it could belong to either of two
	w.ping()
	if st := w.p.Stats(); st.Calls != 2 || st.Dropped != 1 {
		t.Errorf("%+v", st)
	}
	w.write(result("1", "2"), result("1", "3"))
	if err := errors.Join(<-one, <-two); err != nil {
		t.Error(err)
	}
}

// Our ids stay below 2^53, which JavaScript peers keep exact; then it is time to
// connect again.
func TestIDsStayBelow2To53(t *testing.T) {
	w := newWire(t, stream.NDJSON, wireHandler(), nil)
	farcall.SetLastID(w.p, 1<<53-2)
	done := w.call(t.Context())
	w.expect(`{"jsonrpc":"2.0","method":"ask","id":9007199254740991}`)
	w.write(result("1", "9007199254740991"))
	if err := <-done; err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := w.p.Call(t.Context(), "ask", nil, nil); err == nil ||
			!strings.Contains(err.Error(), "connect again") {
			t.Errorf("got %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := w.p.Batch(ctx, &farcall.BatchCall{Method: "ask"}); err == nil ||
		!strings.Contains(err.Error(), "connect again") {
		t.Errorf("batch: got %v", err)
	}
	if err := w.p.Notify(t.Context(), "tell", nil); err != nil {
		t.Error(err)
	}
	w.expect(`{"jsonrpc":"2.0","method":"tell"}`)
	w.ping()
	c := httpClient(t, wireHandler(), nil)
	farcall.SetLastID(c, 1<<53-1)
	if err := c.Call(t.Context(), "echo", nil, nil); err == nil ||
		!strings.Contains(err.Error(), "connect again") {
		t.Errorf("http: got %v", err)
	}
}
