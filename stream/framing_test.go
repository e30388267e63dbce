package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// half is a stream that reads from r and writes to w.
type half struct {
	io.Reader
	io.Writer
}

func (half) Close() error { return nil }

// readAll reads to the end. A refusal is shown as its code.
func readAll(t farcall.Transport) (got []string, end error) {
	for {
		frame, err := t.Read()
		var refused *jsonrpc.Error
		switch {
		case errors.As(err, &refused):
			got = append(got, fmt.Sprintf("<%d %s>", refused.Code, refused.Message))
		case err != nil:
			return got, err
		default:
			got = append(got, string(frame))
		}
	}
}

func longHeader(n int) string { return strings.Repeat("X: y\r\n", n) }

func TestRead(t *testing.T) {
	race.Skip(t, "nothing is concurrent")
	const large, broken = "<-32012 Request too large>", "<-32700 Parse error>"
	frame := func(s string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(s), s) }
	tests := []struct {
		name    string
		framing Framing
		in      string
		want    []string
		end     string // io.EOF when empty, else part of the error
	}{
		{"nothing", NDJSON, "", nil, ""},
		{"lines", NDJSON, "{}\n[]\n", []string{"{}", "[]"}, ""},
		{"CRLF", NDJSON, "{}\r\n[]\r\n", []string{"{}", "[]"}, ""},
		{"last line without end", NDJSON, "{}\n[]", []string{"{}", "[]"}, ""},
		{"last line with CR only", NDJSON, "{}\r", []string{"{}"}, ""},
		{"blank lines", NDJSON, "\n\r\n \t\n{}\n\n\n[]\n\r\n ", []string{"{}", "[]"}, ""},
		{"no JSON", NDJSON, "hello\n{}\n", []string{"hello", "{}"}, ""},
		{
			"at the limit", NDJSON, strings.Repeat("x", 20) + "\n{}\n",
			[]string{strings.Repeat("x", 20), "{}"},
			"",
		},
		{
			"at the limit, CRLF", NDJSON, strings.Repeat("x", 20) + "\r\n{}\n",
			[]string{strings.Repeat("x", 20), "{}"},
			"",
		},
		{"over the limit by one", NDJSON, strings.Repeat("x", 21) + "\n{}\n", []string{large, "{}"}, ""},
		{
			"over the limit by one, CRLF", NDJSON, strings.Repeat("x", 21) + "\r\n{}\n",
			[]string{large, "{}"},
			"",
		},
		{
			"far over the limit", NDJSON, strings.Repeat("x", 300_000) + "\n{}\n",
			[]string{large, "{}"},
			"",
		},
		{
			"over the limit twice", NDJSON,
			strings.Repeat("x", 22) + "\n" + strings.Repeat("y", 200_000) + "\n{}\n",
			[]string{large, large, "{}"},
			"",
		},
		{"over the limit at the end", NDJSON, strings.Repeat("x", 22), []string{large}, ""},
		{"over the limit by one at the end", NDJSON, strings.Repeat("x", 21), []string{large}, ""},

		{"nothing", Header, "", nil, ""},
		{"two", Header, frame("{}") + frame("[1]"), []string{"{}", "[1]"}, ""},
		{
			"line breaks in the message", Header, frame("{\r\n\n}") + frame("[]"),
			[]string{"{\r\n\n}", "[]"},
			"",
		},
		{
			"other headers", Header,
			"Content-Type: application/vscode-jsonrpc; charset=utf8\r\nX-Y: z\r\n" +
				"Content-Length: 2\r\n\r\n{}",
			[]string{"{}"},
			"",
		},
		{"name in lower case, no space", Header, "content-LENGTH:2\r\n\r\n{}", []string{"{}"}, ""},
		{
			"bare newlines", Header, "Content-Length: 2\n\n{}" + "Content-Length: 2\n\r\n[]",
			[]string{"{}", "[]"},
			"",
		},
		{
			"line ends between messages", Header, "\r\n" + frame("{}") + "\r\n\n" + frame("[]") + "\r\n",
			[]string{"{}", "[]"},
			"",
		},
		{"empty message", Header, frame("") + frame("{}"), []string{"", "{}"}, ""},
		{
			"same length twice", Header, "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
			[]string{"{}"},
			"",
		},
		{
			"at the limit", Header, frame(strings.Repeat("x", 20)) + frame("{}"),
			[]string{strings.Repeat("x", 20), "{}"},
			"",
		},
		{
			"over the limit", Header, frame(strings.Repeat("x", 21)) + frame("{}"),
			[]string{large, "{}"},
			"",
		},
		{
			"far over the limit", Header, frame(strings.Repeat("x", 300_000)) + frame("{}"),
			[]string{large, "{}"},
			"",
		},
		{
			"a line without colon", Header, "nonsense\r\nContent-Length: 2\r\n\r\n{}" + frame("[]"),
			[]string{broken, "[]"},
			"",
		},
		{
			"two lengths", Header, "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + frame("{}"),
			[]string{broken},
			"two Content-Lengths",
		},
		{
			"no length", Header, "Content-Type: x\r\n\r\n{}" + frame("{}"),
			[]string{broken},
			"no Content-Length",
		},
		{"negative length", Header, "Content-Length: -2\r\n\r\n{}", []string{broken}, "is no length"},
		{"signed length", Header, "Content-Length: +2\r\n\r\n{}", []string{broken}, "is no length"},
		{"empty length", Header, "Content-Length:\r\n\r\n{}", []string{broken}, "empty"},
		{
			"length with a fraction", Header, "Content-Length: 2.0\r\n\r\n{}",
			[]string{broken},
			"is no length",
		},
		{
			"length beyond 64 bits", Header, "Content-Length: 99999999999999999999999\r\n\r\n{}",
			[]string{broken},
			"is no length",
		},
		{
			"huge length", Header, "Content-Length: 900000000000000000\r\n\r\n{}",
			[]string{large},
			"unexpected EOF",
		},
		{"a line of JSON", Header, "{\"jsonrpc\":\"2.0\"}\n", []string{broken}, "JSON where a header"},
		{"long header", Header, longHeader(20) + frame("{}"), []string{broken}, "limit of 100 bytes"},
		{"endless header", Header, longHeader(100_000), []string{broken}, "limit of 100 bytes"},
		{"end in a message", Header, "Content-Length: 5\r\n\r\n{}", nil, "unexpected EOF"},
		{"end before a message", Header, "Content-Length: 5\r\n\r\n", nil, "unexpected EOF"},
		{"end in a header", Header, "Content-Le", nil, "unexpected EOF"},
		{"nothing", Raw, "", nil, ""},
		{"white space", Raw, " \r\n\t", nil, ""},
		{"joined", Raw, `{}[]{"a":[{}]}`, []string{"{}", "[]", `{"a":[{}]}`}, ""},
		{"spaced", Raw, " {} []\n\n\t{}\r\n", []string{"{}", "[]", "{}"}, ""},
		{
			"on several lines", Raw, "{\n \"a\": [\n  1\n]\n}\n{}",
			[]string{"{\n \"a\": [\n  1\n]\n}", "{}"},
			"",
		},
		{
			"brackets in strings", Raw, `["}]{",{"]":"\\"}]{"\"}":0}`,
			[]string{`["}]{",{"]":"\\"}]`, `{"\"}":0}`},
			"",
		},
		{"tokens", Raw, `[-1.5e+3,true,null]`, []string{"[-1.5e+3,true,null]"}, ""},
		{"misspelt tokens are the decoder's", Raw, `[tru]{}`, []string{"[tru]", "{}"}, ""},
		{"no JSON", Raw, "hello\n{}", []string{"hello", "{}"}, ""},
		{"no object, no array", Raw, "7 \"x\"\r\n{}null[]", []string{`7 "x"`, "{}", "null", "[]"}, ""},
		{"no JSON at the end", Raw, "{} 7", []string{"{}", "7"}, ""},
		{"half a text", Raw, `{"a":`, []string{`{"a":`}, ""},
		{"a comma too many", Raw, `{"a":1,}{}`, []string{broken, "{}"}, ""},
		{"commas in an array", Raw, `[1,,2][]`, []string{broken, "[]"}, ""},
		{"a comma first", Raw, `[,1][]`, []string{broken, "[]"}, ""},
		{"no colon", Raw, `{"a" 1}[]`, []string{broken, "[]"}, ""},
		{"no comma", Raw, `[1 2][]`, []string{broken, "[]"}, ""},
		{"no name", Raw, `{1:2}[]`, []string{broken, "[]"}, ""},
		{"an array for a name", Raw, `{[1]:2}[]`, []string{broken, "[]"}, ""},
		{"wrong bracket", Raw, `{"a":[1}]}` + "[]", []string{broken, "}", "[]"}, ""},
		{"a bracket too many", Raw, "{}}\n[]", []string{"{}", "}", "[]"}, ""},
		{"strings in a broken text", Raw, `[,"]",1]{}`, []string{broken, "{}"}, ""},
		{"a truncated line", Raw, "{\"a\":1,\n{}\n[]", []string{broken, "{}", "[]"}, ""},
		{"a string without end", Raw, "{\"a:1}\n{}[]", []string{broken, "{}", "[]"}, ""},
		{"two broken texts", Raw, "[,\n[,\n[]", []string{broken, broken, "[]"}, ""},
		{"a broken text at the end", Raw, "[,", []string{broken}, ""},
		{"broken, on several lines", Raw, "{\n \"a\":1,,\n \"b\":2\n}\n{}", []string{broken, "{}"}, ""},
		{"at the limit", Raw, `["xxxxxxxxxxxxxxxx"]{}`, []string{`["xxxxxxxxxxxxxxxx"]`, "{}"}, ""},
		{"over the limit", Raw, `["xxxxxxxxxxxxxxxxx"]{}`, []string{large, "{}"}, ""},
		{
			"far over the limit", Raw, `["` + strings.Repeat("x", 300_000) + `"]{}`,
			[]string{large, "{}"},
			"",
		},
		{"over the limit at the end", Raw, `["` + strings.Repeat("x", 300_000), []string{large}, ""},
		{
			"over the limit, no JSON", Raw, strings.Repeat("x", 300_000) + "\n{}",
			[]string{large, "{}"},
			"",
		},
		{
			"over the limit and broken", Raw, `["` + strings.Repeat("x", 300) + `",]{}`,
			[]string{large, "{}"},
			"",
		},

		{"lines", Detect, "{}\n[]\n", []string{"{}", "[]"}, ""},
		{"lines, then two on one", Detect, "\n{} \r\n{}[]\n{}", []string{"{}", "{}[]", "{}"}, ""},
		{"a line that is no JSON", Detect, "hello\n{}[]\n{}", []string{"hello", "{}[]", "{}"}, ""},
		{"a truncated line", Detect, "{\"a\":1,\n{}\n[", []string{`{"a":1,`, "{}", "["}, ""},
		{"a broken line", Detect, "{,}{}\n{}\n", []string{"{,}{}", "{}"}, ""},
		{"a string without end", Detect, "{\"a\n{}\n", []string{`{"a`, "{}"}, ""},
		{"a text and more on its line", Detect, "{} x\n{}\n", []string{"{}", "x", "{}"}, ""},
		{"two on a line", Detect, "{} []\n{\n}", []string{"{}", "[]", "{\n}"}, ""},
		{
			"on several lines", Detect, "{ \r\n \"a\":1}\n[][]",
			[]string{"{ \r\n \"a\":1}", "[]", "[]"},
			"",
		},
		{"without line ends", Detect, `{}`, []string{"{}"}, ""},
		{
			"over the limit, lines", Detect, `["` + strings.Repeat("x", 300_000) + "\"]\n{}[]\n",
			[]string{large, "{}[]"},
			"",
		},
		{
			"over the limit, joined", Detect, `["` + strings.Repeat("x", 300_000) + "\"]{}[]\n",
			[]string{large, "{}", "[]"},
			"",
		},

		{
			"end in a refused message", Header, "Content-Length: 50\r\n\r\n{}",
			[]string{large},
			"unexpected EOF",
		},
	}
	for _, tt := range tests {
		t.Run([]string{"NDJSON", "Header", "Raw", "Detect"}[tt.framing]+"/"+tt.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole":          strings.NewReader(tt.in),
				"byte by byte":   iotest.OneByteReader(strings.NewReader(tt.in)),
				"by halves":      iotest.HalfReader(strings.NewReader(tt.in)),
				"with the error": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got, end := readAll(New(half{r, nil}, tt.framing, &Options{MaxMessage: 20, MaxHeader: 100}))
				checkRead(t, name, got, end, tt.want, tt.end)
			}
			for i := range min(len(tt.in), 40) {
				got, end := readAll(New(half{strings.NewReader(tt.in[i:]), nil}, tt.framing,
					&Options{MaxMessage: 20, MaxHeader: 100, Prefix: []byte(tt.in[:i])}))
				checkRead(t, fmt.Sprint("prefix of ", i), got, end, tt.want, tt.end)
			}
		})
	}
}

func checkRead(t *testing.T, name string, got []string, end error, want []string, wantEnd string) {
	t.Helper()
	if fmt.Sprintf("%.60q", got) != fmt.Sprintf("%.60q", want) {
		t.Errorf("%s: got %.60q, want %.60q", name, got, want)
	}
	if wantEnd == "" && !errors.Is(end, io.EOF) ||
		wantEnd != "" && (end == nil || !strings.Contains(end.Error(), wantEnd)) {
		t.Errorf("%s: ended with %v, want %q", name, end, wantEnd)
	}
	if errors.As(end, new(*jsonrpc.Error)) {
		t.Errorf("%s: ended with %v, which says that the stream goes on", name, end)
	}
}

func TestRefusalSaysWhatToDo(t *testing.T) {
	_, err := New(half{strings.NewReader("0123456789\n"), nil}, NDJSON, &Options{MaxMessage: 5}).Read()
	var refused *jsonrpc.Error
	if !errors.As(err, &refused) || string(refused.Data) != `{"maxSize":5,"unit":"bytes"}` {
		t.Fatalf("got %#v", err)
	}
	if s := refused.Cause.Error(); !strings.Contains(s, "limit of 5 bytes") ||
		!strings.Contains(s, "MaxMessage") {
		t.Error(s)
	}
}

func TestReadError(t *testing.T) {
	boom := errors.New("boom")
	tr := New(half{io.MultiReader(strings.NewReader("{}\n[1"), iotest.ErrReader(boom)), nil},
		NDJSON, nil)
	got, end := readAll(tr)
	if len(got) != 1 || !errors.Is(end, boom) {
		t.Errorf("got %q and %v; what was cut off must not be delivered", got, end)
	}
	if _, again := tr.Read(); !errors.Is(again, end) {
		t.Errorf("the end has changed from %v to %v", end, again)
	}
	tr = New(half{iotest.ErrReader(nil), nil}, NDJSON, nil)
	if _, err := tr.Read(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that gives nothing: %v", err)
	}
}

func TestBuffered(t *testing.T) {
	tests := []struct {
		framing Framing
		in      string
		want    string // per Read, whether another one is there
	}{
		{NDJSON, "1\n2\n\r\n \n3", "yn"},
		{NDJSON, "1\n\n\n", "n"},
		{NDJSON, "1\n" + strings.Repeat("x", 40) + "\n", "yn"},
		{NDJSON, "1\n" + strings.Repeat("x", 40), "yn"},
		{Header, "Content-Length: 1\r\n\r\n1Content-Length: 1\r\n\r\n2Content-Length: 2\r\n\r\n3", "yn"},
		{Header, "Content-Length: 1\r\n\r\n1\r\n\r\n", "n"},
		{Header, "Content-Length: 1\r\n\r\n1Content-Le", "n"},
		{Header, "Content-Length: 1\r\n\r\n1Content-Length: 40\r\n\r\n", "yn"},
	}
	for _, tt := range tests {
		tr := New(half{strings.NewReader(""), nil}, tt.framing,
			&Options{MaxMessage: 20, Prefix: []byte(tt.in)})
		b := tr.(farcall.Buffered)
		var got strings.Builder
		for range tt.want {
			_, _ = tr.Read()
			got.WriteByte(map[bool]byte{true: 'y', false: 'n'}[b.Buffered()])
		}
		if got.String() != tt.want {
			t.Errorf("%q: got %s, want %s", tt.in, got.String(), tt.want)
		}
	}
}

// TestKeep reads frames of all sizes, keeps some and checks those in the end.
func TestKeep(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for name, connect := range connections(t) {
		t.Run(name, func(t *testing.T) {
			a, b := connect(t)
			for _, framing := range []Framing{NDJSON, Header} {
				var frames [][]byte
				for i := range 1500 {
					size := 2 + rnd.IntN(300)
					if i%50 == 0 {
						size = 2 + rnd.IntN(300_000)
					}
					frames = append(frames, bytes.Repeat([]byte{'a' + byte(i%26)}, size))
				}
				done := make(chan error)
				w, r := New(a, framing, nil), New(b, framing, nil)
				go func() {
					for i := 0; i < len(frames); i += 100 {
						if err := w.Write(frames[i : i+100]...); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
				kept := map[int][]byte{}
				for i := range frames {
					got, err := r.Read()
					if err != nil || !bytes.Equal(got, frames[i]) {
						t.Fatalf("frame %d: got %.20q, %v, want %.20q", i, got, err, frames[i])
					}
					if rnd.IntN(3) == 0 {
						_ = r.(farcall.Buffered).Buffered()
						r.(farcall.Keeper).Keep()
						r.(farcall.Keeper).Keep()
						kept[i] = got
						_ = append(got, "must not reach what follows"...)
					}
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				for i, got := range kept {
					if !bytes.Equal(got, frames[i]) {
						t.Fatalf("kept frame %d has changed to %.20q", i, got)
					}
				}
			}
		})
	}
}

// FuzzRaw checks that the result of Raw and Detect does not depend on how the bytes arrive, that
// texts are found where a decoder finds them, and that one that is broken does not spoil those on
// later lines.
func FuzzRaw(f *testing.F) {
	f.Add([]byte(`{"a":[1,true,"}"]}[]`), uint8(3))
	f.Add([]byte("{\n\"a\": {}\n}\n[,\n{}"), uint8(1))
	f.Add([]byte("{} \n{\"a:1}\nx\n7"), uint8(2))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		const limit = 30
		for _, framing := range []Framing{Raw, Detect} {
			whole, end := readAll(New(half{bytes.NewReader(in), nil}, framing, &Options{MaxMessage: limit}))
			parts, partsEnd := readAll(
				New(half{&chunked{in, int(chunk)}, nil}, framing, &Options{MaxMessage: limit}))
			if fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", parts) || !errors.Is(end, io.EOF) ||
				!errors.Is(partsEnd, io.EOF) {
				t.Errorf("%d: %q: whole %q, %v; in parts %q, %v", framing, in, whole, end, parts, partsEnd)
			}
		}
		var want []string
		for dec := json.NewDecoder(bytes.NewReader(in)); ; {
			var text json.RawMessage
			if dec.Decode(&text) != nil || text[0] != '{' && text[0] != '[' {
				break
			}
			want = append(want, string(text))
		}
		got, _ := readAll(New(half{&chunked{in, int(chunk)}, nil}, Raw, nil))
		if len(got) < len(want) || fmt.Sprintf("%q", got[:len(want)]) != fmt.Sprintf("%q", want) {
			t.Errorf("%q: got %q, a decoder %q", in, got, want)
		}
		const last = `{"last":1}`
		in = append(slices.Clip(in), '\n')
		if got, _ = readAll(New(half{bytes.NewReader(in), nil}, Raw, nil)); len(got) == 0 ||
			!strings.HasPrefix(got[len(got)-1], "<-32700 ") {
			return
		}
		if got, _ = readAll(
			New(half{&chunked{append(in, last...), int(chunk)}, nil}, Raw, nil)); got[len(got)-1] != last {
			t.Errorf("%q: the line after it is lost: %q", in, got)
		}
	})
}

func FuzzNDJSON(f *testing.F) {
	f.Add([]byte("{}\n\n[1,2]\r\n \nlast"), uint8(3))
	f.Add([]byte(strings.Repeat("x", 40)+"\n{}"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		const limit = 30
		var want []string
		for line := range bytes.Lines(in) {
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			switch {
			case len(line) > limit:
				want = append(want, "<-32012 Request too large>")
			case len(bytes.Trim(line, " \t\r")) > 0:
				want = append(want, string(line))
			}
		}
		got, end := readAll(New(half{&chunked{in, int(chunk)}, nil}, NDJSON, &Options{MaxMessage: limit}))
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) || !errors.Is(end, io.EOF) {
			t.Errorf("%q: got %q, %v, want %q", in, got, end, want)
		}
	})
}

// FuzzHeader checks that the result does not depend on how the bytes arrive,
// and that frames survive being written and read.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("Content-Length: 2\r\n\r\n{}"), uint8(3))
	f.Add([]byte("a:b\ncontent-length:1\n\n1\r\nContent-Length: 99\r\n\r\n"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, chunk uint8) {
		o := &Options{MaxMessage: 30, MaxHeader: 60}
		whole, end := readAll(New(half{bytes.NewReader(in), nil}, Header, o))
		parts, partsEnd := readAll(New(half{&chunked{in, int(chunk)}, nil}, Header, o))
		if fmt.Sprint(whole, end) != fmt.Sprint(parts, partsEnd) {
			t.Errorf("%q: whole %q, %v; in parts %q, %v", in, whole, end, parts, partsEnd)
		}
		for framing, frame := range map[Framing][]byte{Header: in, NDJSON: bytes.TrimSpace(in)} {
			var buf bytes.Buffer
			tr := New(half{&buf, &buf}, framing, nil)
			if err := tr.Write(frame, []byte("{}")); err != nil {
				t.Fatal(err)
			}
			if framing == NDJSON {
				frame = []byte(strings.NewReplacer("\n", " ", "\r", " ").Replace(string(frame)))
			}
			got, end := readAll(tr)
			if framing == NDJSON && blank(frame) {
				got = append([]string{string(frame)}, got...)
			}
			if len(got) != 2 || got[0] != string(frame) || got[1] != "{}" || !errors.Is(end, io.EOF) {
				t.Errorf("wrote %q, read %q, %v", frame, got, end)
			}
		}
	})
}

// chunked gives n bytes at a time.
type chunked struct {
	p []byte
	n int
}

func (c *chunked) Read(p []byte) (int, error) {
	if len(c.p) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), max(1, c.n))], c.p)
	c.p = c.p[n:]
	return n, nil
}
