package inspect

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/mcp"
)

// A capture of a gateway has both sides of a call, and a mock of it answers.
func TestOpenCapture(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "hop.jsonl") // of a gateway; its last line is torn
	_, p, _ := inspector(t, &Options{Servers: []Server{{Capture: path}}, Connect: true})
	v := p.state(1, stateReady)
	if v.Speaks != protocolCapture || !strings.Contains(v.Reason, "4 frames") ||
		!strings.Contains(v.Reason, "torn") {
		t.Errorf("the capture: %+v", v)
	}
	var r pollResult
	p.call("poll", pollParams{Events: 1 << 60}, &r)
	c := r.Rows
	got := fmt.Sprint(c.Dir, c.Kind, c.Ref, c.Parent, c.Hop, c.Took, c.Time)
	want := "!!>><<!!qqrr[0 0 0 0 4 3] [0 0 0 3 3 0] [3 4] " +
		"[0 0 0 0 5000 10000] [0 0 0 4000 9000 10000]"
	if got != want {
		t.Errorf("rows\n%s, want\n%s", got, want)
	}
	add := callParams{Conn: 1, Call: "c", Kind: kindMethod, Name: "calc.add"}
	p.fails("call", add, "not connected")
	var mocked serverView
	p.call("mock", mockParams{Conn: 1}, &mocked)
	p.state(mocked.ID, stateReady)
	var o outcome
	p.call("replay", replayParams{Seq: 3, Conn: mocked.ID, Call: "c"}, &o)
	if !strings.Contains(o.Result, `"two"`) {
		t.Errorf("the mock answers %+v", o)
	}
	none := mockParams{Conn: 1, Filter: "nothing of this kind"}
	p.fails("mock", none, "no request with its answer")
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
		for _, h := range [][2]string{
			{"Origin", "https://evil.example"}, {"Sec-Fetch-Site", "cross-site"},
		} {
			if code, _ := do("GET", path, "", h[0], h[1]); code != http.StatusForbidden {
				t.Errorf("%s of a foreign page: %d", h[0], code)
			}
		}
		code, text := do("GET", path, "")
		if code != http.StatusOK || strings.Contains(text, "correct-horse-battery") != raw ||
			!strings.Contains(text, "login") {
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
	got := strings.Join(kinds, " ")
	if !strings.HasPrefix(got, "capture connin this process fr") {
		t.Errorf("records %q", got)
	}

	var link ticketResult
	p.call("open", openParams{Name: "again.jsonl"}, &link)
	upload := "/open?ticket="
	if code, text := do("POST", upload+link.Ticket, file); code != http.StatusOK || text != "2" {
		t.Errorf("open: %d %s", code, text)
	}
	if v := p.state(2, stateReady); v.Name != "again.jsonl" || v.Speaks != protocolCapture {
		t.Errorf("the capture %+v", v)
	}
	p.fails("connect", connectParams{Conn: 2}, "open the file again")
	p.call("open", openParams{Name: "bad"}, &link)
	code, _ := do("POST", upload+link.Ticket, "<script>")
	if code != http.StatusUnprocessableEntity {
		t.Errorf("no capture: %d", code)
	}
	p.fails("save", saveParams{Filter: `method=~"("`}, "")
}

// A capture that is being recorded is shown live.
func TestLiveCapture(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "live.jsonl")
	rec, err := capture.New(&capture.Options{File: path})
	if err != nil {
		t.Fatal(err)
	}
	conn := rec.Connect(&capture.Record{Transport: "stdio"})
	rec.Frame(conn, true, []byte(`{"jsonrpc":"2.0","id":1,"method":"first"}`))
	if err := rec.Flush(); err != nil {
		t.Fatal(err)
	}
	i, p, _ := inspector(t, &Options{Servers: []Server{{Capture: path}}, Connect: true})
	if v := p.state(1, stateReady); !strings.Contains(v.Reason, "live") {
		t.Errorf("%+v", v)
	}
	_, before := i.store.First()
	rec.Frame(conn, false, []byte(`{"jsonrpc":"2.0","id":1,"result":"second"}`))
	if err := rec.Flush(); err != nil {
		t.Fatal(err)
	}
	<-i.store.Changed(before)
	row, raw, ok := i.store.Frame(before)
	if !ok || row.Method != "first" || !strings.Contains(string(raw), "second") {
		t.Errorf("%+v %s", row, raw)
	}
	if err := rec.Close(); err != nil {
		t.Error(err)
	}
}
