package mock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/capture/mock"
)

// session is a capture: direction and frame.
var session = [][2]string{
	{"up", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"clientInfo":{"name":"a"}}}`},
	{"down", `{"jsonrpc":"2.0","id":1,"result":{"serverInfo":{"name":"s"}}}`},
	{"up", `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
	{"up", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t",` +
		`"arguments":{"b":[1, 2],"a":"é"},"_meta":{"progressToken":9}}}`},
	{"down", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":9,` +
		`"progress":1}}`},
	{"down", `{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"sure?"}}`},
	{"up", `{"jsonrpc":"2.0","id":"q1","result":{"action":"accept"}}`},
	{"down", `{"jsonrpc":"2.0", "id":2, "result":{"content":[],"n":1.50}}`},
	{"up", `{"jsonrpc":"2.0","id":3,"method":"next"}`},
	{"down", `{"jsonrpc":"2.0","id":3,"result":"first"}`},
	{"up", `{"jsonrpc":"2.0","id":4,"method":"next"}`},
	{"down", `{"jsonrpc":"2.0","id":4,"result":"second"}`},
}

func record(t *testing.T, o capture.Options, frames [][2]string) *capture.Reader {
	t.Helper()
	var out bytes.Buffer
	o.Out = &out
	r, err := capture.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	conn := r.Connect(&capture.Record{Transport: "stdio"})
	for _, f := range frames {
		r.Frame(conn, f[0] == "up", []byte(f[1]))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := capture.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// serve plays the server of the session at the other end of what it returns.
func serve(t *testing.T) farcall.Transport {
	t.Helper()
	script, err := mock.Load(record(t, capture.Options{Raw: true}, session), nil)
	if err != nil {
		t.Fatal(err)
	}
	return play(t, script)
}

// play has a script at the other end of what it returns.
func play(t *testing.T, script *mock.Script) farcall.Transport {
	t.Helper()
	client, server := farcall.Pipe()
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- script.Serve(ctx, server, nil) }()
	t.Cleanup(func() {
		client.Close()
		cancel()
		if err := <-done; err != nil && !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	})
	return client
}

func TestServe(t *testing.T) {
	t.Parallel()
	c := serve(t)
	for _, test := range []struct{ send, want string }{
		{
			`{"jsonrpc":"2.0","id":"x","method":"initialize","params":{}}`,
			`{"jsonrpc":"2.0","id":"x","result":{"serverInfo":{"name":"s"}}}`,
		},
		{
			`{"id":7,"jsonrpc":"2.0","method":"tools/call","params":{"_meta":{"progressToken":"p","x":1},` +
				`"arguments":{"a":"\u00e9","b":[1,2]},"name":"t"}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p",` +
				`"progress":1}}`,
		},
		{"", `{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"sure?"}}`},
		{
			`{"jsonrpc":"2.0","id":"q1","result":{"action":"decline"}}`,
			`{"jsonrpc":"2.0", "id":7, "result":{"content":[],"n":1.50}}`,
		},
		{
			`{"jsonrpc":"2.0","id":8,"method":"next","params":{}}`,
			`{"jsonrpc":"2.0","id":8,"result":"first"}`,
		},
		{`{"jsonrpc":"2.0","id":9,"method":"next"}`, `{"jsonrpc":"2.0","id":9,"result":"second"}`},
		{`[{"jsonrpc":"2.0","id":10,"method":"next"}]`, `[{"jsonrpc":"2.0","id":10,"result":"second"}]`},
		{`{"jsonrpc":"2.0","id":11,"method":"ping"}`, `{"jsonrpc":"2.0","id":11,"result":{}}`},
		{
			`{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"u"}}`,
			`{"jsonrpc":"2.0","id":12,"error":{"code":-32602,"message":"the capture has no call of ` +
				`tools/call with these params; it has 1 with others"}}`,
		},
		{
			`{"jsonrpc":"2.0","id":13,"method":"y"}`,
			`{"jsonrpc":"2.0","id":13,"error":{"code":-32601,"message":"the capture has no call of y"}}`,
		},
	} {
		if test.send != "" {
			if err := c.Write([]byte(test.send)); err != nil {
				t.Fatal(err)
			}
		}
		got, err := c.Read()
		if err != nil || string(got) != test.want {
			t.Fatalf("%s\ngot  %s %v\nwant %s", test.send, got, err, test.want)
		}
	}
}

func TestRedacted(t *testing.T) {
	t.Parallel()
	frames := [][2]string{
		{"up", `{"id":1,"method":"m","params":{"token":"abc"}}`},
		{"down", `{"id":1,"result":1}`},
	}
	_, err := mock.Load(record(t, capture.Options{}, frames), nil)
	if !errors.Is(err, mock.ErrRedacted) {
		t.Errorf("a redacted capture was taken: %v", err)
	}
	allowed := &mock.Part{Redacted: true}
	if _, err := mock.Load(record(t, capture.Options{}, frames), allowed); err != nil {
		t.Error(err)
	}
	if _, err := mock.Load(record(t, capture.Options{}, session), nil); err != nil {
		t.Errorf("a capture without a secret: %v", err)
	}
}

// pipeLink is a link over a transport.
type pipeLink struct{ farcall.Transport }

func (l pipeLink) Send(_ context.Context, frame []byte) error { return l.Write(frame) }

func (l pipeLink) Receive(context.Context) ([]byte, error) {
	frame, err := l.Read()
	return bytes.Clone(frame), err
}

func TestReplay(t *testing.T) {
	t.Parallel()
	replay := func(frames [][2]string, ignore ...string) *mock.Report {
		client, err := mock.LoadClient(record(t, capture.Options{Raw: true}, frames), nil)
		if err != nil {
			t.Fatal(err)
		}
		report, err := client.Replay(t.Context(), func(context.Context) (mock.Link, error) {
			return pipeLink{serve(t)}, nil
		}, diff.New(&diff.Options{Exact: true, Ignore: ignore}))
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	if r := replay(session); len(r.Results) != 4 || r.Changed() != 0 {
		t.Errorf("%+v", r)
	}
	var changed [][2]string
	for _, f := range session {
		f[1] = strings.Replace(f[1], `"n":1.50`, `"n":2`, 1)
		changed = append(changed, f)
	}
	if r := replay(changed); r.Changed() != 1 || r.Results[1].Name != "t" ||
		r.Results[1].Findings[0] != (diff.Finding{
			Rule: "value-changed", Level: diff.Breaking, Path: "result.n", Was: "2", Is: "1.50",
		}) {
		t.Errorf("%+v", r)
	}
	if r := replay(changed, "n"); r.Changed() != 0 {
		t.Errorf("%+v", r)
	}
	if r := replay(changed, "**.n"); r.Changed() != 0 {
		t.Errorf("%+v", r)
	}
}

// A capture of a gateway has each call twice. A mock, and a replay, take one side of it.
func TestSides(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r, err := capture.New(&capture.Options{Raw: true, Out: &out})
	if err != nil {
		t.Fatal(err)
	}
	front := r.Connect(&capture.Record{Transport: "tcp"})
	back := r.Connect(&capture.Record{Transport: "stdio", Upstream: "calc"})
	for _, f := range []struct {
		conn uint64
		up   bool
		text string
	}{
		{front, true, `{"jsonrpc":"2.0","id":1,"method":"calc__add"}`},
		{back, true, `{"jsonrpc":"2.0","id":1,"method":"add"}`},
		{back, false, `{"jsonrpc":"2.0","id":1,"result":"inner"}`},
		{front, false, `{"jsonrpc":"2.0","id":1,"result":"outer"}`},
	} {
		r.Frame(f.conn, f.up, []byte(f.text))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	load := func(upstream string) (*mock.Script, *mock.Client, error) {
		part := &mock.Part{Upstream: upstream}
		in, err := capture.NewReader(bytes.NewReader(out.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		script, err := mock.Load(in, part)
		if err != nil {
			return nil, nil, err
		}
		if in, err = capture.NewReader(bytes.NewReader(out.Bytes())); err != nil {
			t.Fatal(err)
		}
		client, err := mock.LoadClient(in, part)
		return script, client, err
	}
	for upstream, want := range map[string]string{"": "calc__add", "calc": "add"} {
		script, client, err := load(upstream)
		if err != nil {
			t.Fatal(err)
		}
		report, err := client.Replay(t.Context(), func(context.Context) (mock.Link, error) {
			return pipeLink{play(t, script)}, nil
		}, diff.New(&diff.Options{Exact: true}))
		if err != nil || len(report.Results) != 1 || report.Changed() != 0 {
			t.Errorf("%q: %+v %v", upstream, report, err)
		}
		for _, method := range []string{"calc__add", "add"} {
			c := play(t, script)
			if err := c.Write([]byte(`{"jsonrpc":"2.0","id":5,"method":"` + method + `"}`)); err != nil {
				t.Fatal(err)
			}
			answer, err := c.Read()
			if err != nil || bytes.Contains(answer, []byte(`"result"`)) != (method == want) {
				t.Errorf("upstream %q answers %s: %s %v", upstream, method, answer, err)
			}
		}
	}
	if _, _, err := load("other"); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Error(err)
	}
}

// Two captures are compared call by call.
func TestCompare(t *testing.T) {
	t.Parallel()
	load := func(frames [][2]string) *mock.Script {
		s, err := mock.Load(record(t, capture.Options{Raw: true}, frames), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	was := load(session)
	if r := mock.Compare(was, load(session), diff.New(nil)); len(r.Results) != 4 || r.Changed() != 0 {
		t.Errorf("%+v", r)
	}
	is := load([][2]string{
		{"up", `{"jsonrpc":"2.0","id":"n","method":"next"}`},
		{"down", `{"jsonrpc":"2.0","id":"n","result":7}`},
		{"up", `{"jsonrpc":"2.0","id":"i","method":"initialize"}`},
		{"down", `{"jsonrpc":"2.0","id":"i","result":{"serverInfo":{"name":"s"}}}`},
		{"up", `{"jsonrpc":"2.0","id":"z","method":"new"}`},
		{"down", `{"jsonrpc":"2.0","id":"z","result":{}}`},
	})
	var got []string
	for _, r := range mock.Compare(was, is, diff.New(nil)).Results {
		for _, f := range r.Findings {
			got = append(got, fmt.Sprint(r.Seq, " ", r.Method, " ", f.Rule, " ", f.Path))
		}
	}
	want := []string{
		"6 tools/call call-removed ", "11 next type-changed result", "13 next call-removed ",
		"7 new call-added ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestResumed: the client of the capture has come back for a question and the answer, in another
// exchange of HTTP.
func TestResumed(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r, err := capture.New(&capture.Options{Out: &out, Raw: true})
	if err != nil {
		t.Fatal(err)
	}
	call := `{"id":3,"method":"tools/call","params":{"name":"t"}}`
	ask, answer := `{"id":"q","method":"elicitation/create"}`, `{"id":"q","result":{}}`
	result := `{"id":3,"result":{"content":[]}}`
	for _, f := range []struct {
		exchange uint64
		text     string
	}{{1, call}, {2, ask}, {3, answer}, {2, result}} {
		r.FrameOf(1, f.exchange, f.text == call || f.text == answer, []byte(f.text), len(f.text))
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	in, err := capture.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	script, err := mock.Load(in, nil)
	if err != nil || script.Skipped > 0 {
		t.Fatalf("%+v %v", script, err)
	}
	c := play(t, script)
	for _, step := range [][2]string{{call, ask}, {answer, result}} {
		if err := c.Write([]byte(step[0])); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Read(); err != nil || string(got) != step[1] {
			t.Fatalf("%s %v, want %s", got, err, step[1])
		}
	}
}
