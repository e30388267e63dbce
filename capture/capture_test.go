package capture_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/capture"
)

// record runs f with a recorder, and returns the bytes of its capture.
func record(tb testing.TB, o *capture.Options, f func(*capture.Recorder)) []byte {
	tb.Helper()
	var out bytes.Buffer
	if o == nil {
		o = &capture.Options{Raw: true}
	}
	o.Out = &out
	r, err := capture.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	f(r)
	if err := r.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// read returns the records of a capture.
func read(tb testing.TB, data []byte) (all []*capture.Record) {
	tb.Helper()
	r, err := capture.NewReader(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	return readAll(tb, r)
}

func readAll(tb testing.TB, r *capture.Reader) (all []*capture.Record) {
	tb.Helper()
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, rec.Clone())
	}
}

func ofType(all []*capture.Record, kind string) (some []*capture.Record) {
	for _, rec := range all {
		if rec.Type == kind {
			some = append(some, rec)
		}
	}
	return some
}

func text(tb testing.TB, rec *capture.Record) string {
	tb.Helper()
	data, err := rec.Data()
	if err != nil {
		tb.Fatal(err)
	}
	return string(data)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	frames := []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"git_log",` +
			`"arguments":{"path":"/etc"}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`,
		` { "jsonrpc" : "2.0" , "id" : "a\"b" , "method" : "x" , "params" : [ "\u0000é" ] } `,
		`{"jsonrpc":"2.0","id":"a\"b","error":{"code":-32602,"message":"no"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`[{"jsonrpc":"2.0","method":"a"}]`,
		"not JSON \xff\x00",
		"",
		`{"jsonrpc":"2.0","id":null,"method":"` + strings.Repeat("m", 5000) + `"}`,
	}
	data := record(t, nil, func(r *capture.Recorder) {
		conn := r.Connect(&capture.Record{
			Transport: "stdio", Command: []string{"server", "--x"}, Peer: "p",
		})
		for i, f := range frames {
			r.Frame(conn, i%2 == 0, []byte(f))
		}
		r.Put(&capture.Record{
			Type: "http", Conn: conn, Verb: "POST", Path: "/mcp", Status: 200,
			Header: map[string]string{"a": "b"},
		})
	})
	all := read(t, data)
	if all[0].Type != "capture" || all[0].Version != 1 || all[0].Owner == "" ||
		all[len(all)-1].Type != "end" || all[len(all)-1].Size != len(frames) {
		t.Fatalf("head %+v, end %+v", all[0], all[len(all)-1])
	}
	conn := ofType(all, "conn")[0]
	if conn.Conn != 1 || conn.Transport != "stdio" || strings.Join(conn.Command, " ") != "server --x" {
		t.Errorf("conn %+v", conn)
	}
	got := ofType(all, "frame")
	for i, f := range frames {
		if text(t, got[i]) != f || got[i].Size != len(f) || got[i].Conn != 1 {
			t.Errorf("frame %d is %q, want %q", i, text(t, got[i]), f)
		}
		head := bytes.Clone(data[:bytes.IndexByte(data, '\n')+1])
		if again := read(t, append(head, got[i].Append(nil)...)); text(t, again[1]) != f {
			t.Errorf("frame %d appended again is %q", i, text(t, again[1]))
		}
	}
	if g := got[0]; g.Kind != "request" || g.ID != "1" || g.Method != "tools/call" ||
		g.Name != "git_log" || g.Dir != "up" {
		t.Errorf("request %+v", g)
	}
	if g := got[1]; g.Kind != "response" || g.Ref != got[0].Seq || g.Duration <= 0 ||
		g.Name != "git_log" || !g.ToolError || g.Dir != "down" {
		t.Errorf("response %+v", g)
	}
	if g := got[3]; g.Code != -32602 || g.Ref != got[2].Seq || g.ID != `"a\"b"` {
		t.Errorf("error %+v", g)
	}
	for i, kind := range []string{
		"request", "response", "request", "response", "notification", "batch", "bad", "bad", "request",
	} {
		if got[i].Kind != kind {
			t.Errorf("frame %d is a %s, want %s", i, got[i].Kind, kind)
		}
	}
	if h := ofType(all, "http")[0]; h.Status != 200 || h.Header["a"] != "b" || h.Verb != "POST" {
		t.Errorf("http %+v", h)
	}
}

func TestCut(t *testing.T) {
	t.Parallel()
	big := `{"jsonrpc":"2.0","id":7,"method":"m","params":["` + strings.Repeat("x", 4000) + `"]}`
	for _, raw := range []bool{true, false} {
		data := record(t, &capture.Options{Raw: raw, MaxFrame: 100}, func(r *capture.Recorder) {
			r.Frame(1, true, []byte(big))
		})
		f := ofType(read(t, data), "frame")[0]
		if f.Cut == 0 || f.Size != len(big) || f.ID != "7" || f.Method != "m" ||
			!strings.HasPrefix(big, text(t, f)) || (f.SHA256 != "") != raw {
			t.Errorf("raw %v: %+v", raw, f)
		}
	}
}

func TestEnvelopes(t *testing.T) {
	t.Parallel()
	data := record(t, &capture.Options{Envelopes: true}, func(r *capture.Recorder) {
		r.Frame(1, true, []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"n",`+
			`"arguments":{"x":"visible"}}}`))
	})
	f := ofType(read(t, data), "frame")[0]
	if bytes.Contains(data, []byte("visible")) || f.HasData() || f.Name != "n" || f.Size == 0 {
		t.Errorf("%s", data)
	}
}

func TestDrops(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	r, err := capture.New(&capture.Options{Raw: true, Out: slow{hold}, MaxFrame: 1000, Buffer: 4096})
	if err != nil {
		t.Fatal(err)
	}
	for range 10000 {
		r.Frame(1, true, make([]byte, 1000)) // it must not wait
	}
	if r.Dropped() == 0 {
		t.Error("nothing was dropped")
	}
	close(hold)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

type slow struct{ hold chan struct{} }

func (s slow) Write(p []byte) (int, error) { <-s.hold; return len(p), nil }

func TestFile(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.jsonl", "a.jsonl.zst"} {
		path := filepath.Join(t.TempDir(), name)
		for i := range 3 {
			r, err := capture.New(&capture.Options{File: path, Raw: true})
			if err != nil {
				t.Fatal(err)
			}
			conn := r.Connect(&capture.Record{Transport: "tcp"})
			r.Frame(conn, true, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
			r.Frame(conn, false, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":1}`, i))
			if other, err := capture.New(&capture.Options{File: path}); err == nil {
				t.Error("two recorders have one file", other.Close())
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			if i == 0 { // as after kill -9
				if f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0); err == nil && name == "a.jsonl" {
					f.WriteString(`{"type":"frame","seq":9,"raw":"{`)
					f.Close()
				}
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v %v", info.Mode(), err)
		}
		r, err := capture.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		seen, broken := map[uint64]bool{}, 0
		for {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				broken++
				continue
			}
			if seen[rec.Seq] {
				t.Errorf("seq %d is there twice", rec.Seq)
			}
			seen[rec.Seq] = true
			if rec.Kind == "response" && !seen[rec.Ref] {
				t.Errorf("ref %d of %d", rec.Ref, rec.Seq)
			}
		}
		if want := map[bool]int{true: 1}[name == "a.jsonl"]; broken != want || r.Torn() {
			t.Errorf("%s: %d broken lines, want %d; torn %v", name, broken, want, r.Torn())
		}
		r.Close()
	}
}

func TestTorn(t *testing.T) {
	t.Parallel()
	data := record(t, nil, func(r *capture.Recorder) {
		r.Frame(1, true, []byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
		r.Frame(1, true, []byte(`{"jsonrpc":"2.0","id":2,"method":"m"}`))
	})
	whole := len(read(t, data))
	for n := bytes.IndexByte(data, '\n') + 1; n < len(data); n++ {
		r, err := capture.NewReader(bytes.NewReader(data[:n]))
		if err != nil {
			t.Fatal(err)
		}
		got := len(readAll(t, r))
		if want := bytes.Count(data[:n], []byte("\n")); got != want || got >= whole ||
			r.Torn() != (data[n-1] != '\n') {
			t.Fatalf("%d bytes: %d records, want %d; torn %v", n, got, want, r.Torn())
		}
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.jsonl")
	r, err := capture.New(&capture.Options{File: path, Raw: true, MaxSize: 2000, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	conn := r.Connect(&capture.Record{Transport: "tcp", Label: "tcp-1"})
	for i := 0; ; i++ {
		r.Frame(conn, true, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
		if _, err := os.Stat(path + ".2"); err == nil {
			break
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, path + ".1", path + ".2"} {
		in, err := capture.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		all := readAll(t, in)
		if len(ofType(all, "conn")) == 0 || ofType(all, "conn")[0].Label != "tcp-1" {
			t.Errorf("%s does not say what the connection is", name)
		}
		in.Close()
	}
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("more old files than Keep")
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	failed := make(chan error, 1)
	r, err := capture.New(&capture.Options{
		Raw: true, Dir: dir, Ring: 1 << 20,
		DumpOn: []string{"error"}, OnError: func(err error) { failed <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	conn := r.Connect(&capture.Record{Transport: "tcp"})
	for i := range 5000 {
		r.Frame(conn, true, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m","params":%q}`, i,
			strings.Repeat("x", 500)))
	}
	path, err := r.Dump("by the test")
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 ||
		info.Size() > 1<<20+4096 || info.Size() < 1<<19 {
		t.Errorf("%v %v", info, err)
	}
	in, err := capture.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	all := readAll(t, in)
	in.Close()
	last := all[len(all)-1]
	if all[0].Why != "by the test" || all[1].Type != "conn" || last.ID != "4999" {
		t.Errorf("%+v, %+v, %+v", all[0], all[1], last)
	}
	r.Frame(conn, false, []byte(`{"jsonrpc":"2.0","id":4999,"error":{"code":-32000,"message":"x"}}`))
	for matches := []string(nil); len(matches) == 0; {
		matches, _ = filepath.Glob(filepath.Join(dir, "*-error.jsonl"))
		select {
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Dump("x"); err == nil {
		t.Error("a closed recorder has dumped")
	}
}

func TestNotCapture(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		"", "x", `{"type":"frame","raw":"{}"}` + "\n",
		`{"v":2,"type":"capture"}` + "\n", "\x28\xb5\x2f\xfd", "[]\n",
	} {
		r, err := capture.NewReader(strings.NewReader(in))
		if err == nil {
			_, err = r.Next()
			r.Close()
		}
		if err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	data := record(f, nil, func(r *capture.Recorder) {
		conn := r.Connect(&capture.Record{Transport: "tcp", Command: []string{"a"}})
		r.Frame(conn, true, []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call",`+
			`"params":{"name":"x"}}`))
		r.Frame(conn, false, []byte("\xff"))
		r.Put(&capture.Record{
			Type: "http", Header: map[string]string{"a": "b"},
			Redacted: []capture.Redaction{{Path: "a", Why: "b"}},
		})
	})
	f.Add(data)
	f.Add([]byte(`{"v":1,"type":"capture"}` + "\n" + `{"type":"frame","raw":"\u12"}` + "\n"))
	// What a writer leaves that was stopped.
	for _, line := range []string{"{", `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`} {
		f.Add([]byte(`{"v":1,"type":"capture"}` + "\n" + line + "\n"))
		f.Add([]byte(line + "\n"))
	}
	filter, err := capture.ParseFilter(`params.name:x or code<0 or !"y"`)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := capture.NewReader(bytes.NewReader(in))
		if err != nil {
			return
		}
		defer r.Close()
		for range bytes.Count(in, []byte("\n")) + 2 {
			rec, err := r.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				continue
			}
			filter.Match(rec)
			first, err := rec.Data()
			if err != nil {
				continue
			}
			line := append([]byte(`{"v":1,"type":"capture"}`+"\n"), rec.Append(nil)...)
			if rec.Type == "capture" {
				continue
			}
			again := read(t, line)
			if second, err := again[1].Data(); err != nil || !bytes.Equal(first, second) {
				t.Fatalf("%q became %q: %v", first, second, err)
			}
		}
	})
}

// Frames of earlier keep their times, and Flush keeps a small buffer from losing any.
func TestFrameAt(t *testing.T) {
	t.Parallel()
	began := time.Now().Add(-time.Hour)
	o := &capture.Options{Raw: true, Began: began, MaxFrame: 100, Buffer: 1}
	const frames = 1000
	all := read(t, record(t, o, func(r *capture.Recorder) {
		conn := r.Connect(&capture.Record{Transport: "stdio"})
		for i := range frames {
			at := began.Add(time.Duration(i) * time.Second)
			frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, i)
			r.FrameAt(conn, 0, i%2 == 0, frame, at)
			if i%5 == 0 {
				if err := r.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n := r.Dropped(); n > 0 {
			t.Errorf("%d frames are lost", n)
		}
	}))
	n := 0
	for _, rec := range all {
		if rec.Type != "frame" {
			continue
		}
		after := time.Duration(n) * time.Second
		if want := began.Add(after); !rec.At().Equal(want) || rec.Mono != int64(after) {
			t.Fatalf("frame %d: %v, %d ns; want %v", n, rec.At(), rec.Mono, want)
		}
		n++
	}
	if n != frames {
		t.Errorf("%d frames, want %d", n, frames)
	}
}
