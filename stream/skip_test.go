package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestSkip(t *testing.T) {
	const large, broken = "<-32012 Request too large>", "<-32700 Parse error>"
	frame := func(s string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(s), s) }
	long := strings.Repeat("x", 100)
	tests := []struct {
		name    string
		framing Framing
		in      string
		want    []string
		skipped []string // of what is too long its first 10 bytes and …
		end     string   // io.EOF when empty, else part of the error
	}{
		{
			"between lines", NDJSON, "hello\r\n{}\n\nx\n{1}\n",
			[]string{"{}", "{1}"},
			[]string{"hello", "x"},
			"",
		},
		{"last line", NDJSON, "{}\nhello", []string{"{}"}, []string{"hello"}, ""},
		{"binary", NDJSON, "\x00\xff\n{}\n", []string{"{}"}, []string{"\x00\xff"}, ""},
		{"long line", NDJSON, long + "\n{}\n", []string{"{}"}, []string{"xxxxxxxxxx…"}, ""},
		{"long last line", NDJSON, "{}\n" + long, []string{"{}"}, []string{"xxxxxxxxxx…"}, ""},
		{
			"a little too long", NDJSON, strings.Repeat("x", 21) + "\n{}\n" + strings.Repeat("x", 21),
			[]string{"{}"},
			[]string{"xxxxxxxxxx…", "xxxxxxxxxx…"},
			"",
		},
		{"refused though", NDJSON, "keep" + long + "\n{}\n", []string{large, "{}"}, nil, ""},
		{"nothing but", NDJSON, "a\nb\nc", nil, []string{"a", "b", "c"}, ""},

		{
			"messages", Header, frame("{}") + frame("hello") + frame("{1}"),
			[]string{"{}", "{1}"},
			[]string{"hello"},
			"",
		},
		{
			"lines before", Header, "hello\n\n[x]\r\n" + frame("{}"),
			[]string{"{}"},
			[]string{"hello", "[x]"},
			"",
		},
		{
			"lines between", Header, frame("{}") + "hello\n" + frame("{1}") + "\nCc: x\n",
			[]string{"{}", "{1}"},
			[]string{"hello", "Cc: x"},
			"",
		},
		{
			"no line end", Header, frame("{}") + "hello" + frame("{1}") + "abc",
			[]string{"{}", "{1}"},
			[]string{"hello", "abc"},
			"",
		},
		{
			"other header first", Header, "hello\nContent-Type: x\r\nCONTENT-length: 2\r\n\r\n{}",
			[]string{"{}"},
			[]string{"hello"},
			"",
		},
		{
			"long line before", Header, long + "\n" + frame("{}"),
			[]string{"{}"},
			[]string{"xxxxxxxxxx…"},
			"",
		},
		{"long line, no end", Header, long + frame("{}"), []string{"{}"}, []string{"xxxxxxxxxx…"}, ""},
		{
			"long message", Header, frame(long) + frame("{}") + frame("hello") + frame("{2}"),
			[]string{"{}", "{2}"},
			[]string{"…", "hello"},
			"",
		},
		{
			"long message refused", Header, frame("keep"+long) + frame("{}"),
			[]string{large, "{}"},
			nil, "",
		},
		{"binary between", Header, "\x00\xff\n" + frame("{}"), []string{"{}"}, []string{"\x00\xff"}, ""},
		{
			"a message without header", Header, frame("{}") + "{1}\n" + frame("{2}"),
			[]string{"{}", broken},
			nil, "JSON where a header was expected",
		},
		{
			"broken length", Header, "hello\nContent-Length: x\r\n\r\n{}",
			[]string{broken},
			[]string{"hello"},
			"no length",
		},
		{
			"cut", Header, frame("{}") + "Content-Length: 5\r\n\r\n{}",
			[]string{"{}"},
			nil,
			"within a message",
		},
	}
	for _, tt := range tests {
		for chunks, reader := range map[string]func(io.Reader) io.Reader{
			"whole":  func(r io.Reader) io.Reader { return r },
			"halves": iotest.HalfReader,
			"bytes":  iotest.OneByteReader,
		} {
			t.Run(tt.name+"/"+chunks, func(t *testing.T) {
				var skipped []string
				tr := New(half{reader(strings.NewReader(tt.in)), io.Discard}, tt.framing, &Options{
					MaxMessage: 20, MaxHeader: 40,
					Skip: func(p []byte, whole bool) bool {
						if bytes.HasPrefix(p, []byte("{")) || bytes.HasPrefix(p, []byte("keep")) {
							return false
						}
						text := string(p)
						if !whole {
							text = text[:min(10, len(text))] + "…"
						}
						skipped = append(skipped, text)
						return true
					},
				})
				got, err := readAll(tr)
				if tt.name == "long message" { // as much of it as is there
					skipped[0] = "…"
				}
				if tt.name == "long message refused" && chunks != "whole" {
					return // its beginning is not there yet
				}
				if !slices.Equal(got, tt.want) || !slices.Equal(skipped, tt.skipped) {
					t.Errorf("got %q, skipped %q", got, skipped)
				}
				if tt.end == "" && !errors.Is(err, io.EOF) ||
					tt.end != "" && !strings.Contains(err.Error(), tt.end) {
					t.Error(err)
				}
			})
		}
	}
}

// TestSkipBuffered: Buffered says that there is a frame only when there is one
// behind what is passed over.
func TestSkipBuffered(t *testing.T) {
	for framing, in := range map[Framing]string{
		NDJSON: "{}\n" + "x\ny\n",
		Header: "Content-Length: 2\r\n\r\n{}" + "Content-Length: 1\r\n\r\nx" +
			"Content-Length: 100\r\n\r\n",
	} {
		r, w := io.Pipe()
		tr := New(half{
			r, io.Discard,
		}, framing, &Options{MaxMessage: 50, Skip: func(p []byte, _ bool) bool {
			return !bytes.HasPrefix(p, []byte("{"))
		}})
		go func() {
			_, _ = io.WriteString(w, in)
			if framing == Header {
				_, _ = io.WriteString(w, strings.Repeat("z", 100)+"Content-Length: 2\r\n\r\n{}")
			} else {
				_, _ = io.WriteString(w, "{}\n")
			}
			w.Close()
		}()
		if frame, err := tr.Read(); err != nil || string(frame) != "{}" {
			t.Fatalf("%q, %v", frame, err)
		}
		if tr.(interface{ Buffered() bool }).Buffered() {
			t.Error("there is nothing to read")
		}
		if frame, err := tr.Read(); err != nil || string(frame) != "{}" {
			t.Fatalf("%q, %v", frame, err)
		}
		if _, err := tr.Read(); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
	}
}
