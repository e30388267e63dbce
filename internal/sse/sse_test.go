package sse

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

func readAll(r *Reader) (events []Event, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return events, err
		}
		events = append(events, e)
	}
}

func event(id, typ, data string) Event { return Event{ID: id, Type: typ, Data: []byte(data)} }

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 3*readSize+17)
	for _, c := range []struct {
		name, in string
		want     []Event
	}{
		{"empty", "", nil},
		{"one", "data: a\n\n", []Event{event("", "", "a")}},
		{"no space", "data:a\n\n", []Event{event("", "", "a")}},
		{"one space only is dropped", "data:  a\n\n", []Event{event("", "", " a")}},
		{"cr", "data: a\r\rdata: b\r\r", []Event{event("", "", "a"), event("", "", "b")}},
		{"crlf", "data: a\r\ndata: b\r\n\r\n", []Event{event("", "", "a\nb")}},
		{"mixed", "data: a\rdata: b\ndata: c\r\n\r\n", []Event{event("", "", "a\nb\nc")}},
		{"byte order mark", "\ufeffdata: a\n\n", []Event{event("", "", "a")}},
		{"two byte order marks", "\ufeff\ufeffdata: a\n\n", nil},
		{"comment", ": hello\n\n:\n\ndata: a\n:x\n\n", []Event{event("", "", "a")}},
		{"empty data is an event", "data:\n\ndata\n\n", []Event{event("", "", ""), event("", "", "")}},
		{"two empty lines", "data\ndata\n\n", []Event{event("", "", "\n")}},
		{"no data, no event", "event: x\n\nid: 7\n\ndata: a\n\n", []Event{event("7", "", "a")}},
		{
			"type and id", "event: e\nid: 1\ndata: a\n\ndata: b\n\n",
			[]Event{event("1", "e", "a"), event("1", "", "b")},
		},
		{
			"id reset", "id: 1\ndata: a\n\nid\ndata: b\n\n",
			[]Event{event("1", "", "a"), event("", "", "b")},
		},
		{
			"id with NUL is ignored", "id: 1\ndata: a\n\nid: 2\x00\ndata: b\n\n",
			[]Event{event("1", "", "a"), event("1", "", "b")},
		},
		{"unknown field", "foo: bar\ndata: a\nDATA: b\n\n", []Event{event("", "", "a")}},
		{"colon in the value", "data: {\"a\": \"b:c\"}\n\n", []Event{event("", "", `{"a": "b:c"}`)}},
		{"unfinished is dropped", "data: a\n\ndata: b\n", []Event{event("", "", "a")}},
		{"long line", "data: " + long + "\n\n", []Event{event("", "", long)}},
		{
			"long lines", "data: " + long + "\ndata: " + long + "\n\ndata: z\n\n",
			[]Event{event("", "", long+"\n"+long), event("", "", "z")},
		},
		{"utf-8", "data: żółć 🙂\n\n", []Event{event("", "", "żółć 🙂")}},
	} {
		for how, src := range map[string]io.Reader{
			"whole":     strings.NewReader(c.in),
			"bytewise":  iotest.OneByteReader(strings.NewReader(c.in)),
			"data+err":  iotest.DataErrReader(strings.NewReader(c.in)),
			"half read": iotest.HalfReader(strings.NewReader(c.in)),
		} {
			got, err := readAll(NewReader(src, 0, nil))
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s, %s: %.80q, %v, want %.80q", c.name, how, got, err, c.want)
			}
		}
	}
}

func TestReaderRetryAndLastID(t *testing.T) {
	r := NewReader(strings.NewReader("retry: 1500\nid: 9\n\nretry: 1x\n\nretry: 99999999999\n\n"), 0,
		nil)
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want EOF", err)
	}
	if r.Retry() != 1500*time.Millisecond || r.LastID() != "9" {
		t.Errorf("retry %v, last id %q", r.Retry(), r.LastID())
	}
}

func TestReaderLimit(t *testing.T) {
	const limit = 10_000
	fits := strings.Repeat("x", limit)
	for _, c := range []struct {
		name, in string
		ok       bool
	}{
		{"fits", "data: " + fits + "\n\n", true},
		{"one more", "data: " + fits + "x\n\n", false},
		{"many lines", strings.Repeat("data: "+fits[:100]+"\n", 101) + "\n", false},
		{"endless line", "data: " + strings.Repeat(fits, 5), false},
		{"endless comment line", ":" + strings.Repeat(fits, 5), false},
		{"many comments", strings.Repeat(": "+fits[:100]+"\n", 1000) + "data: a\n\n", true},
	} {
		r := NewReader(strings.NewReader(c.in), limit, nil)
		_, err := r.Next()
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, again := r.Next(); !c.ok && !errors.Is(again, ErrTooLarge) {
			t.Errorf("%s: read on after the limit: %v", c.name, again)
		}
	}
}

// An event is delivered as soon as its blank line is there, also when that ends
// with a CR and no further byte follows.
func TestReaderDoesNotWait(t *testing.T) {
	for _, in := range []string{"data: a\n\n", "data: a\r\r", "data: a\r\n\r\n"} {
		pr, pw := io.Pipe()
		r := NewReader(pr, 0, nil)
		got := make(chan string)
		go func() {
			e, err := r.Next()
			got <- fmt.Sprintf("%s %v", e.Data, err)
		}()
		io.WriteString(pw, in)
		if s := <-got; s != "a <nil>" {
			t.Errorf("%q: %s", in, s)
		}
		pw.Close()
	}
}

func TestWriter(t *testing.T) {
	for _, c := range []struct {
		name string
		in   Event
		want string
	}{
		{"data", event("", "", "a"), "data: a\n\n"},
		{"all", event("7", "e", "a"), "id: 7\nevent: e\ndata: a\n\n"},
		{"empty", event("", "", ""), "data: \n\n"},
		{"lines", event("", "", "a\nb\r\nc\rd\n"), "data: a\ndata: b\ndata: c\ndata: d\ndata: \n\n"},
		{"forged", event("", "", "a\n\ndata: b"), "data: a\ndata: \ndata: data: b\n\n"},
	} {
		var out bytes.Buffer
		writes, flushes := 0, 0
		w := NewWriter(writerFunc(func(b []byte) (int, error) {
			writes++
			return out.Write(b)
		}), func() error { flushes++; return nil })
		if err := w.Event(c.in); err != nil || out.String() != c.want || writes != 1 || flushes != 1 {
			t.Errorf("%s: %q %v, %d writes, %d flushes, want %q", c.name, &out, err, writes, flushes, c.want)
		}
	}
	var out bytes.Buffer
	w := NewWriter(&out, nil)
	for _, bad := range []Event{event("a\nb", "", ""), event("a\x00", "", ""), event("", "x\r", "")} {
		if w.Event(bad) == nil {
			t.Errorf("%q was written", bad)
		}
	}
	if err := errors.Join(w.Comment("keep\nalive"), w.Retry(2*time.Second)); err != nil ||
		out.String() != ": keep\n: alive\n\nretry: 2000\n\n" {
		t.Errorf("%q %v", &out, err)
	}
}

func TestWriterFails(t *testing.T) {
	want := errors.New("gone")
	if err := NewWriter(writerFunc(func([]byte) (int, error) {
		return 0, want
	}), nil).Event(Event{}); !errors.Is(err, want) {
		t.Error(err)
	}
	if err := NewWriter(io.Discard, func() error {
		return want
	}).Event(Event{}); !errors.Is(err, want) {
		t.Error(err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Reading must not depend on how the bytes arrive.
func FuzzReader(f *testing.F) {
	f.Add([]byte("\ufeffid: 1\r\nevent: e\rdata: a\ndata: ż\n\n:c\n\ndata"), uint16(3))
	f.Add([]byte("data\r\r\n\n\ndata:\n\nretry: 10\n"), uint16(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint16) {
		const limit = 1 << 10
		whole, err1 := readAll(NewReader(bytes.NewReader(in), limit, nil))
		parts, err2 := readAll(NewReader(&stepReader{in, int(step)%64 + 1}, limit, nil))
		if !reflect.DeepEqual(whole, parts) || fmt.Sprint(err1) != fmt.Sprint(err2) {
			t.Fatalf("%q: %q %v, in steps: %q %v", in, whole, err1, parts, err2)
		}
		for _, e := range whole {
			if len(e.Data) > limit || bytes.IndexByte(e.Data, '\r') >= 0 {
				t.Fatalf("%q: %d bytes: %q", in, len(e.Data), e.Data)
			}
		}
	})
}

type stepReader struct {
	b []byte
	n int
}

func (s *stepReader) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b[:min(s.n, len(s.b))])
	s.b = s.b[n:]
	return n, nil
}

// What is written is read back, except that every line break reads as LF.
func FuzzRoundTrip(f *testing.F) {
	f.Add("1", "e", []byte("a\r\nb\rc\n"))
	f.Fuzz(func(t *testing.T, id, typ string, data []byte) {
		var out bytes.Buffer
		if NewWriter(&out, nil).Event(Event{id, typ, data}) != nil {
			return
		}
		want := bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"),
			[]byte("\n"))
		got, err := readAll(NewReader(&out, 0, nil))
		if err != nil || len(got) != 1 || got[0].ID != id || got[0].Type != typ ||
			!bytes.Equal(got[0].Data, want) {
			t.Fatalf("%q %q %q: %q %v", id, typ, data, got, err)
		}
	})
}
