package fault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// sent runs frames of the server through a rule, and returns the lines that the client gets.
func sent(t *testing.T, rule string, frames ...string) (lines []string, events []Event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r, err := ParseRule(rule)
		if err != nil {
			t.Fatal(err)
		}
		in, err := New([]Rule{r}, &Options{Seed: 1, OnFault: func(e Event) {
			events = append(events, e)
		}})
		if err != nil {
			t.Fatal(err)
		}
		client, ours := net.Pipe()
		theirs, server := net.Pipe()
		ended, over := make(chan error, 1), make(chan struct{})
		go func() { ended <- in.Proxy(t.Context(), ours, theirs, false) }()
		go func() {
			lines := bufio.NewScanner(server)
			for range 2 {
				lines.Scan() // the requests
			}
			for _, f := range frames {
				if _, err := io.WriteString(server, f+"\n"); err != nil {
					return
				}
			}
			select {
			case <-time.After(time.Minute):
			case <-over:
			}
			server.Close()
		}()
		io.WriteString(client, `{"jsonrpc":"2.0","id":1,"method":"one"}`+"\n"+
			`{"jsonrpc":"2.0","id":2,"method":"two"}`+"\n")
		got, _ := io.ReadAll(client)
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		client.Close()
		close(over)
		lines = strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
	})
	return lines, events
}

const (
	first  = `{"jsonrpc":"2.0","id":1,"result":"äöü"}`
	second = `{"jsonrpc":"2.0","id":2,"result":2}`
)

// Each fault does what its help says.
func TestFaults(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string][]string{
		"delay":                {first, second},
		"late:method=one":      {second, first},
		"drop:method=one":      {second},
		"silence:after=1":      {first},
		"reorder:times=1":      {second, first},
		"reorder:every=2":      {first, second}, // there is no next one
		"duplicate:method=two": {first, second, second},
		"wrong-id:method=one": {
			`{"jsonrpc":"2.0","id":"farcall-fault","result":"äöü"}`,
			second,
		},
		"duplicate-id:to=client,of=any": {first, `{"jsonrpc":"2.0","id":1,"result":2}`},
		"duplicate-member:method=two":   {first, `{"jsonrpc":"2.0","id":2,"result":2,"id":2}`},
		"error:method=one": {`{"jsonrpc":"2.0","error":{"code":-32603,` +
			`"message":"Internal error"},"id":1}`, second},
		"huge:size=5,method=two": {first, `{"jsonrpc":"2.0","result":"xxxxx","id":2}`},
		"split:size=3":           {first, second},
		"slow":                   {first, second},
		"half:method=two":        {first, second[:len(second)/2]},
		"close:method=two":       {first},
		"reset:method=two":       {first},
	} {
		got, _ := sent(t, rule, first, second)
		if !equal(got, want) {
			t.Errorf("%s: got\n%q, want\n%q", rule, got, want)
		}
	}
	if got, _ := sent(t, "garbage:method=one,size=9", first, second); len(got) != 3 ||
		len(got[0]) != 9 || utf8.ValidString(got[0]) || got[1] != first {
		t.Errorf("%q", got)
	}
	if got, _ := sent(t, "bad-utf8:method=one", first, second); len(got) != 2 ||
		len(got[0]) != len(first)+1 || utf8.ValidString(got[0]) || got[1] != second {
		t.Errorf("%q", got)
	}
}

// equal compares answers without regard to the order of members of an error or result that we
// wrote.
func equal(a, b []string) bool {
	return slices.EqualFunc(a, b, func(x, y string) bool {
		var p, q map[string]any
		if json.Unmarshal([]byte(x), &p) != nil || json.Unmarshal([]byte(y), &q) != nil ||
			strings.Count(x, `"id"`) != strings.Count(y, `"id"`) {
			return x == y
		}
		n, _ := json.Marshal(p)
		m, _ := json.Marshal(q)
		return bytes.Equal(n, m)
	})
}

// Every fault in the list is tried by TestFaults, and says what it was applied to.
func TestEvents(t *testing.T) {
	t.Parallel()
	if n := len(Faults()); n < 10 {
		t.Errorf("%d faults", n)
	}
	_, events := sent(t, "drop:method=t*", first, second)
	want := Event{Connection: 1, Fault: "drop", To: ToClient, Frame: 2, Method: "two", ID: "2"}
	if len(events) != 1 || events[0] != want {
		t.Errorf("%+v", events)
	}
}

// The same seed gives the same faults, another seed others.
func TestSeed(t *testing.T) {
	t.Parallel()
	decisions := func(seed uint64) (list []bool) {
		in, err := New([]Rule{{Fault: "drop", P: 0.3}}, &Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		d := in.decider(1, ToClient)
		for range 1000 {
			list = append(list, len(d.decide(ToClient, Answer, "m")) > 0)
		}
		return list
	}
	a, b, c := decisions(1), decisions(1), decisions(2)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("the seed does not decide")
	}
	n := 0
	for _, yes := range a {
		if yes {
			n++
		}
	}
	if n < 250 || n > 350 {
		t.Errorf("%d of 1000 at p=0.3", n)
	}
}

func TestParseRule(t *testing.T) {
	t.Parallel()
	r, err := ParseRule("late:every=10,delay=2s,method=tools/*,after=3,times=4")
	if want := (Rule{
		Fault: "late", Of: Answer, Every: 10, Delay: 2 * time.Second, Method: "tools/*",
		After: 3, Times: 4,
	}); err != nil || r != want {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{
		"", "lost", "drop:p=0", "drop:p=1.5", "drop:p=x", "drop:every=x", "drop:to=x", "drop:of=x",
		"drop:when=1", "drop:every=2,p=0.5",
		"drop:size=-1", "huge:to=server", "error:of=request", "huge:size=9999999999",
	} {
		if _, err := ParseRule(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// Headers frame as language servers do.
func TestHeaders(t *testing.T) {
	t.Parallel()
	in, err := New([]Rule{{Fault: "split", Size: 5}, {Fault: "duplicate"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, ours := net.Pipe()
	theirs, server := net.Pipe()
	go in.Proxy(t.Context(), ours, theirs, true)
	go func() {
		io.WriteString(server, "Content-Length: 2\r\n\r\n{}")
		server.Close()
	}()
	got, _ := io.ReadAll(client)
	if want := strings.Repeat("Content-Length: 2\r\n\r\n{}", 2); string(got) != want {
		t.Errorf("%q", got)
	}
	client.Close()
}

// Over HTTP each fault reaches the client, also in events, and none leaves anything running.
func TestHandler(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]string{
		"delay:delay=1ms": first, "late:delay=1ms": first, "duplicate": first + first,
		"wrong-id":     `{"jsonrpc":"2.0","id":"farcall-fault","result":"äöü"}`,
		"split:size=3": first, "slow:delay=1ms": first, "reorder:delay=1ms": first,
		"duplicate:to=server": first, "delay:to=server,delay=1ms": first,
		"half": "EOF", "close": "EOF", "reset": "reset", "close:to=server,of=request": "EOF",
		"reset:to=server,of=request": "reset",
		"drop":                       "deadline", "silence": "deadline",
		"drop:to=server,of=request": "deadline",
	} {
		for _, events := range []bool{false, true} {
			got := overHTTP(t, rule, events)
			if events && strings.HasPrefix(want, "{") {
				want = strings.ReplaceAll(want, "}{", "}\n\ndata: {")
				want = "data: " + want
			}
			if !strings.Contains(got, want) {
				t.Errorf("%s, events %v: got %q, want %q", rule, events, got, want)
			}
			want = strings.TrimPrefix(want, "data: ")
		}
	}
}

func overHTTP(t *testing.T, rule string, events bool) string {
	t.Helper()
	r, err := ParseRule(rule)
	if err != nil {
		t.Fatal(err)
	}
	in, err := New([]Rule{r}, nil)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if events {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "data: "+first+"\n\n")
			return
		}
		io.WriteString(w, first)
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewUnstartedServer(in.Handler(u, server.Client()))
	proxy.Config.ErrorLog = nil
	proxy.Start()
	defer proxy.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	if strings.HasPrefix(rule, "drop") || rule == "silence" {
		cancel()
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	}
	defer cancel()
	q, _ := http.NewRequestWithContext(ctx, http.MethodPost, proxy.URL,
		strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"one"}`))
	answer, err := proxy.Client().Do(q)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return string(body) + " " + err.Error()
	}
	return string(body)
}

// FuzzProxy: no bytes of either end make the proxy panic or hang.
func FuzzProxy(f *testing.F) {
	f.Add([]byte(first+"\n"+second+"\n"), uint8(3))
	f.Add([]byte("[]\n\n{}\n[1]\n"), uint8(9))
	f.Add([]byte(`{"jsonrpc":"2.0","id":{},"method":1}`), uint8(8))
	f.Fuzz(func(t *testing.T, input []byte, which uint8) {
		all := Faults()
		r := Rule{Fault: all[int(which)%len(all)].Name, Size: 10, Delay: time.Microsecond}
		if all[int(which)%len(all)].fixed {
			r.Of = Answer
		}
		in, err := New([]Rule{r}, nil)
		if err != nil {
			t.Fatal(err)
		}
		server := &script{in: bytes.NewReader(input)}
		client := &script{in: bytes.NewReader(input)}
		if err := in.Proxy(t.Context(), client, server, which > 128); err != nil &&
			!errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "fault") &&
			!strings.Contains(err.Error(), "MIME") {
			t.Skip(err)
		}
	})
}

// A script is a byte stream with a known input.
type script struct {
	in *bytes.Reader
}

func (s *script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error) { return len(b), nil }
func (s *script) Close() error                { return nil }
