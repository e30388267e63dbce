package inspect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/mcp"
)

// hopCapture is what a gateway has recorded of one call, and a torn line.
const hopCapture = `{"v":1,"type":"capture","seq":1,"t":1000000000,"program":"test"}
{"type":"conn","seq":2,"t":1000000000,"conn":1,"transport":"http","label":"http-1"}
{"type":"conn","seq":3,"t":1000000000,"conn":2,"upstream":"calc","transport":"stdio"}
{"type":"frame","seq":4,"t":1000000000,"conn":1,"dir":"up","kind":"request","id":"7","method":"calc.add","call":2,"n":61,"raw":"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"calc.add\",\"params\":{\"a\":1}}"}
{"type":"frame","seq":5,"t":1004000000,"conn":2,"dir":"up","kind":"request","id":"1","method":"add","call":5,"parent":2,"upstream":"calc","n":56,"raw":"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"add\",\"params\":{\"a\":1}}"}
{"type":"frame","seq":6,"t":1009000000,"conn":2,"dir":"down","kind":"response","id":"1","method":"add","ref":5,"dur":5000000,"call":5,"parent":2,"upstream":"calc","n":76,"raw":"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"two\"}]}}"}
{"type":"frame","seq":7,"t":1010000000,"conn":1,"dir":"down","kind":"response","id":"7","method":"calc.add","ref":4,"dur":10000000,"call":2,"n":76,"raw":"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"two\"}]}}"}
{"type":"stderr","seq":8,"t":1010000000,"conn":2,"n":6,"raw":"\u001b[31mhi"}
{"type":"fra`

// A capture of a gateway has both sides of a call, and a mock of it answers.
func TestOpenCapture(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hop.jsonl")
	if err := os.WriteFile(path, []byte(hopCapture), 0o600); err != nil {
		t.Fatal(err)
	}
	_, p, _ := inspector(t, &Options{Servers: []Server{{Capture: path}}, Connect: true})
	v := p.state(1, stateReady)
	if v.Speaks != protocolCapture || !strings.Contains(v.Reason, "4 frames") || !strings.Contains(v.Reason, "torn") {
		t.Errorf("the capture: %+v", v)
	}
	var r pollResult
	p.call("poll", pollParams{Events: 1 << 60}, &r)
	got := fmt.Sprint(r.Rows.Dir, r.Rows.Kind, r.Rows.Ref, r.Rows.Parent, r.Rows.Hop, r.Rows.Took, r.Rows.Time)
	if want := "!!>><<!!qqrr[0 0 0 0 4 3] [0 0 0 3 3 0] [3 4] [0 0 0 0 5000 10000] [0 0 0 4000 9000 10000]"; got != want {
		t.Errorf("rows\n%s, want\n%s", got, want)
	}
	p.fails("call", callParams{Conn: 1, Call: "c", Kind: kindMethod, Name: "calc.add"}, "not connected")
	var mocked serverView
	p.call("mock", mockParams{Conn: 1}, &mocked)
	p.state(mocked.ID, stateReady)
	var o outcome
	p.call("replay", replayParams{Seq: 3, Conn: mocked.ID, Call: "c"}, &o)
	if !strings.Contains(o.Result, `"two"`) {
		t.Errorf("the mock answers %+v", o)
	}
	p.fails("mock", mockParams{Conn: 1, Filter: "nothing of this kind"}, "no request with its answer")
	p.fails("mock", mockParams{Conn: 99}, "no server 99")
}

// What was seen is saved without secrets, or with them, and opened again. A link is good once.
func TestSaveAndOpen(t *testing.T) {
	t.Parallel()
	s := mcp.NewServer("seen", "1", &mcp.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
	mcp.AddTool(s, mcp.Tool{Name: "login"}, func(_ context.Context, in struct {
		Password string `json:"password"`
	},
	) (string, error) {
		return fmt.Sprint(len(in.Password)), nil
	})
	_, p, url := inspector(t, &Options{Servers: []Server{{InProcess: s}}, Connect: true})
	p.state(1, stateReady)
	p.call("call", map[string]any{
		"conn": 1, "call": "c", "kind": kindTool, "name": "login",
		"params": map[string]string{"password": "correct-horse-battery"},
	}, nil)
	do := func(method, path, body string, header ...string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for n := 0; n < len(header); n += 2 {
			r.Header.Set(header[n], header[n+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	file := ""
	for _, raw := range []bool{true, false} {
		var link ticketResult
		p.call("save", saveParams{Raw: raw, Filter: "login"}, &link)
		path := "/save?ticket=" + link.Ticket
		if code, _ := do("POST", path, ""); code != http.StatusForbidden {
			t.Errorf("POST of a download: %d", code)
		}
		p.call("save", saveParams{Raw: raw, Filter: "login"}, &link)
		path = "/save?ticket=" + link.Ticket
		if code, _ := do("GET", path, "", "Origin", "https://evil.example"); code != http.StatusForbidden {
			t.Errorf("a foreign page: %d", code)
		}
		if code, _ := do("GET", path, "", "Sec-Fetch-Site", "cross-site"); code != http.StatusForbidden {
			t.Errorf("a foreign page: %d", code)
		}
		code, text := do("GET", path, "")
		if code != http.StatusOK || strings.Contains(text, "correct-horse-battery") != raw || !strings.Contains(text, "login") {
			t.Fatalf("raw %v: %d %s", raw, code, text)
		}
		if code, _ := do("GET", path, ""); code != http.StatusForbidden {
			t.Errorf("the second time: %d", code)
		}
		file = text
	}
	r, err := capture.NewReader(bytes.NewReader([]byte(file)))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var kinds []string
	for rec, err := r.Next(); err == nil; rec, err = r.Next() {
		kinds = append(kinds, rec.Type+rec.Kind+rec.Label)
	}
	if got, want := strings.Join(kinds, " "), "capture connin this process framerequest end"; !strings.HasPrefix(got, want[:30]) {
		t.Errorf("records %q", got)
	}

	var link ticketResult
	p.call("open", openParams{Name: "again.jsonl"}, &link)
	if code, text := do("POST", "/open?ticket="+link.Ticket, file); code != http.StatusOK || text != "2" {
		t.Errorf("open: %d %s", code, text)
	}
	if v := p.state(2, stateReady); v.Name != "again.jsonl" || v.Speaks != protocolCapture {
		t.Errorf("the capture %+v", v)
	}
	p.fails("connect", connectParams{Conn: 2}, "open the file again")
	p.call("open", openParams{Name: "bad"}, &link)
	if code, _ := do("POST", "/open?ticket="+link.Ticket, "<script>"); code != http.StatusUnprocessableEntity {
		t.Errorf("no capture: %d", code)
	}
	p.fails("save", saveParams{Filter: `method=~"("`}, "")
}
