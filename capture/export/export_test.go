package export_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/capture/export"
	"github.com/farcall-dev/farcall/internal/race"
)

const trace = "4bf92f3577b34da6a3ce929d0e0e4736"

// recorded is a capture with an exchange of HTTP and a connection to a command.
func recorded(tb testing.TB, more func(*capture.Recorder)) []byte {
	tb.Helper()
	var out bytes.Buffer
	r, err := capture.New(&capture.Options{Raw: true, Out: &out, Buffer: 256 << 20})
	if err != nil {
		tb.Fatal(err)
	}
	web := r.Connect(&capture.Record{Transport: "http", Peer: "127.0.0.1:7331"})
	x := r.Exchange()
	r.Put(&capture.Record{
		Type: "http", Conn: web, Exchange: x, Dir: "up", Verb: "POST", Path: "/mcp?a=b%20c",
		Header: map[string]string{"Mcp-Method": "tools/call"},
	})
	call := []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"it's",` +
		`"_meta":{"traceparent":"00-` + trace + `-00f067aa0ba902b7-01"}}}`)
	r.FrameOf(web, x, true, call, len(call))
	r.Put(&capture.Record{
		Type: "http", Conn: web, Exchange: x, Dir: "down", Status: 200,
		Header: map[string]string{"Content-Type": "text/event-stream"},
	})
	for _, text := range []string{
		`{"jsonrpc":"2.0","method":"notifications/progress"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[]}}`,
	} {
		r.FrameOf(web, x, false, []byte(text), len(text))
	}
	child := r.Connect(&capture.Record{Transport: "stdio", Command: []string{"sh", "-c", "echo 'x'"}})
	r.Frame(child, true, []byte(`{"jsonrpc":"2.0","id":"q","method":"add","params":[1,2]}`))
	r.Frame(child, false, []byte(`{"jsonrpc":"2.0","id":"q","error":{"code":-32602}}`))
	r.Frame(child, true, []byte("\xff\x00"))
	if more != nil {
		more(r)
	}
	if err := r.Close(); err != nil {
		tb.Fatal(err)
	}
	if r.Dropped() > 0 {
		tb.Fatal("frames were dropped")
	}
	return out.Bytes()
}

func write(tb testing.TB, data []byte, format string, o *export.Options) []byte {
	tb.Helper()
	r, err := capture.NewReader(bytes.NewReader(data))
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close()
	var out bytes.Buffer
	if err := export.Write(&out, r, format, o); err != nil {
		tb.Fatal(format, err)
	}
	return out.Bytes()
}

type pair struct{ Name, Value string }

type harFile struct {
	Log struct {
		Version string
		Creator struct{ Name, Version string }
		Entries []struct {
			StartedDateTime string
			Time            *float64
			Request         struct {
				Method, URL, HTTPVersion string
				Headers, QueryString     []pair
				PostData                 struct{ Text string }
			}
			Response struct {
				Status  int
				Content struct {
					Size           int
					MimeType, Text string
				}
			}
			Timings  struct{ Send, Wait, Receive *float64 }
			Messages []struct {
				Type   string
				Time   float64
				Opcode int
				Data   string
			} `json:"_webSocketMessages"`
		}
	}
}

func TestHAR(t *testing.T) {
	t.Parallel()
	var h harFile
	if err := json.Unmarshal(write(t, recorded(t, nil), "har", nil), &h); err != nil {
		t.Fatal(err)
	}
	if len(h.Log.Entries) != 2 || h.Log.Version != "1.2" || h.Log.Creator.Name == "" {
		t.Fatalf("%+v", h)
	}
	web, child := h.Log.Entries[0], h.Log.Entries[1]
	if web.Request.Method != http.MethodPost ||
		web.Request.URL != "http://127.0.0.1:7331/mcp?a=b%20c" ||
		web.Request.QueryString[0] != (pair{"a", "b c"}) || web.Response.Status != 200 ||
		!strings.Contains(web.Request.PostData.Text, `"name":"it's"`) || web.Time == nil ||
		strings.Count(web.Response.Content.Text, "data: {") != 2 || web.Timings.Wait == nil ||
		web.Response.Content.Size != len(web.Response.Content.Text) {
		t.Errorf("%+v", web)
	}
	m := child.Messages
	if len(m) != 3 || m[0].Type != "send" || m[1].Type != "receive" || m[0].Opcode != 1 ||
		m[2].Opcode != 2 || m[2].Data != "/wA=" || !strings.Contains(m[0].Data, `"add"`) ||
		m[0].Time < 1e9 {
		t.Errorf("%+v", m)
	}
}

type otlpLine struct {
	ResourceSpans []struct {
		ScopeSpans []struct {
			Spans []struct {
				TraceID, SpanID, ParentSpanID, Name string
				Kind                                int
				StartTimeUnixNano, EndTimeUnixNano  string
				Attributes                          []struct{ Key string }
				Status                              struct{ Code int }
			}
		}
	}
}

func TestOTLP(t *testing.T) {
	t.Parallel()
	data := recorded(t, func(r *capture.Recorder) {
		r.Frame(1, true, []byte(`{"jsonrpc":"2.0","id":9,"method":"never"}`))
	})
	var line otlpLine
	if err := json.Unmarshal(write(t, data, "otlp", nil), &line); err != nil {
		t.Fatal(err)
	}
	spans := line.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 3 {
		t.Fatalf("%+v", spans)
	}
	tool, add, never := spans[0], spans[1], spans[2]
	if tool.TraceID != trace || tool.ParentSpanID != "00f067aa0ba902b7" || tool.Status.Code != 2 ||
		tool.Name != "tools/call it's" || tool.Kind != 2 || len(tool.SpanID) != 16 {
		t.Errorf("%+v", tool)
	}
	if add.Status.Code != 2 || len(add.TraceID) != 32 || add.ParentSpanID != "" ||
		add.StartTimeUnixNano >= add.EndTimeUnixNano {
		t.Errorf("%+v", add)
	}
	if never.Status.Code != 0 || never.StartTimeUnixNano != never.EndTimeUnixNano {
		t.Errorf("%+v", never)
	}
}

// What comes from a capture cannot break out of a line of the shell.
func TestShell(t *testing.T) {
	t.Parallel()
	out := string(write(t, recorded(t, nil), "curl", nil))
	for _, want := range []string{
		`'http://127.0.0.1:7331/mcp?a=b%20c'`, `"name":"it'\''s"`, `-H 'Mcp-Method: tools/call'`,
		`printf '%s\n' '{"jsonrpc":"2.0","id":"q","method":"add","params":[1,2]}' | ` +
			`'sh' '-c' 'echo '\''x'\'''`, "is left out",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	out = string(write(t, recorded(t, nil), "curl", &export.Options{URL: "http://x/'; rm -r /"}))
	if !strings.Contains(out, `'http://x/'\''; rm -r /'`) {
		t.Error(out)
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	cmd := exec.CommandContext(t.Context(), sh, "-n")
	cmd.Stdin = strings.NewReader(out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, text)
	}
}

// The blocks of pcapng follow each other, and each packet has its tags and its bytes.
func TestPcapng(t *testing.T) {
	t.Parallel()
	rest := write(t, recorded(t, nil), "pcapng", nil)
	var packets [][]byte
	for i := 0; len(rest) > 0; i++ {
		kind, size := binary.LittleEndian.Uint32(rest), binary.LittleEndian.Uint32(rest[4:])
		if size%4 != 0 || binary.LittleEndian.Uint32(rest[size-4:]) != size {
			t.Fatalf("block %d of size %d", i, size)
		}
		body := rest[8 : size-4]
		rest = rest[size:]
		if want := []uint32{0x0A0D0D0A, 1, 6}[min(i, 2)]; kind != want {
			t.Fatalf("block %d is %x", i, kind)
		}
		if kind == 6 {
			packets = append(packets, body[20:20+binary.LittleEndian.Uint32(body[12:])])
		}
	}
	if len(packets) != 6 {
		t.Fatalf("%d packets", len(packets))
	}
	for i, p := range packets {
		seen := map[uint16]string{}
		for {
			kind, size := binary.BigEndian.Uint16(p), binary.BigEndian.Uint16(p[2:])
			seen[kind] = strings.TrimRight(string(p[4:4+size]), "\x00")
			p = p[4+size:]
			if kind == 0 {
				break
			}
		}
		if seen[12] != "json" || seen[33] != "JSON-RPC" || len(p) == 0 {
			t.Errorf("packet %d: %v %q", i, seen, p)
		}
		if i == 0 && seen[36] != "request tools/call it's 1" {
			t.Errorf("%v", seen)
		}
	}
}

func TestFormat(t *testing.T) {
	t.Parallel()
	filter, err := capture.ParseFilter("method:add")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range export.Formats() {
		all := write(t, recorded(t, nil), format, nil)
		some := write(t, recorded(t, nil), format, &export.Options{Filter: filter})
		if len(some) == 0 || len(some) >= len(all) || bytes.Contains(some, []byte("progress")) {
			t.Errorf("%s: %d of %d bytes", format, len(some), len(all))
		}
	}
	r, err := capture.NewReader(bytes.NewReader(recorded(t, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := export.Write(&bytes.Buffer{}, r, "xml", nil); err == nil {
		t.Error("xml was written")
	}
}

// peak is a writer that notes how much memory is in use while it is written to.
type peak struct {
	writes int
	most   uint64
}

func (p *peak) Write(b []byte) (int, error) {
	if p.writes++; p.writes%128 == 0 {
		p.most = max(p.most, inUse())
	}
	return len(b), nil
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Memory depends on what is in flight: calls that are never answered have a bound, too.
func TestMemory(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	race.Skip(t, "it measures memory")
	text := strings.Repeat("x", 8000)
	data := recorded(t, func(r *capture.Recorder) {
		for i := range 6000 {
			r.Frame(2, true, fmt.Appendf(nil, `{"id":%d,"method":"m","params":[%q]}`, i, text))
			r.FrameOf(1, uint64(100+i), true, []byte(`{"jsonrpc":"2.0","id":1,"method":"open"}`), 40)
		}
	})
	for _, format := range export.Formats() {
		before := inUse()
		r, err := capture.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		var p peak
		if err := export.Write(&p, r, format, nil); err != nil {
			t.Fatal(err)
		}
		if p.most > before+24<<20 {
			t.Errorf("%s: %d MiB for a capture of %d",
				format, (p.most-before)>>20, len(data)>>20)
		}
	}
}

func FuzzExport(f *testing.F) {
	f.Add(recorded(f, nil))
	f.Add([]byte(`{"v":1,"type":"capture"}` + "\n" +
		`{"type":"frame","kind":"request","dir":"up","t":-5,"seq":1,"raw":" "}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range export.Formats() {
			r, err := capture.NewReader(bytes.NewReader(data))
			if err != nil {
				return
			}
			var out bytes.Buffer
			if export.Write(&out, r, format, nil) != nil {
				continue
			}
			for line := range bytes.Lines(out.Bytes()) {
				if format == "otlp" && !json.Valid(line) {
					t.Fatalf("%s", line)
				}
			}
			if format == "har" && !json.Valid(out.Bytes()) {
				t.Fatalf("%s", out.Bytes())
			}
		}
	})
}
