package tap

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// split gives text to a splitter in pieces of n bytes, and returns the frames.
func split(s func(emit func([]byte, int)) splitter, text string, n int) (frames []string) {
	x := s(func(data []byte, _ int) { frames = append(frames, string(data)) })
	for part := range slices.Chunk([]byte(text), n) {
		x.Write(part)
	}
	x.end()
	return frames
}

func newLines(emit func([]byte, int)) splitter    { return &lines{bounded: bounded{emit: emit}} }
func newEvents(emit func([]byte, int)) splitter   { return &events{bounded: bounded{emit: emit}} }
func newMessages(emit func([]byte, int)) splitter { return &messages{bounded: bounded{emit: emit}} }

// webSocketFrame makes one frame of a WebSocket.
func webSocketFrame(first byte, mask, text string) string {
	b := []byte{first, 0}
	switch n := len(text); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if mask == "" {
		return string(b) + text
	}
	b[1] |= 0x80
	b = append(b, mask...)
	for i := range len(text) {
		b = append(b, text[i]^mask[i%4])
	}
	return string(b)
}

func TestSplit(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 70000)
	for name, test := range map[string]struct {
		s    func(func([]byte, int)) splitter
		text string
		want []string
	}{
		"lines": {
			newLines, "\n{\"a\":1}\r\n\n[2]\nnot JSON\n{}",
			[]string{`{"a":1}`, "[2]", "not JSON", "{}"},
		},
		"header": {
			newLines, "Content-Length: 2\r\n\r\n{}Content-Type: x\r\ncontent-length: 3\r\n\r\n[1]",
			[]string{"{}", "[1]"},
		},
		"events": {
			newEvents, "id: 1\ndata: {\ndata:}\n\n: comment\n\nevent: x\r\ndata: []\r\n\r\ndata: {}",
			[]string{"{\n}", "[]"},
		},
		"webSocket": {
			newMessages,
			webSocketFrame(0x81, "abcd", "{}") + webSocketFrame(0x89, "abcd", "ping") +
				webSocketFrame(0x01, "", "[1") + webSocketFrame(0x80, "", "]") +
				webSocketFrame(0x81, "wxyz", long) + webSocketFrame(0x81, "", long[:300]),
			[]string{"{}", "[1]", long, long[:300]},
		},
	} {
		for _, n := range []int{1, 2, 7, 1 << 20} {
			got := split(test.s, test.text, n)
			if name == "events" && len(got) == 3 { // the last one has no end
				got = got[:2]
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s in pieces of %d: %.200q", name, n, got)
			}
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("Content-Length: 2\r\n\r\n{}"), byte(0), byte(1))
	f.Add([]byte("{}\n[]\n"), byte(0), byte(3))
	f.Add([]byte("data: {}\n\n"), byte(1), byte(1))
	f.Add([]byte(webSocketFrame(0x81, "abcd", "{}")), byte(2), byte(2))
	f.Fuzz(func(t *testing.T, text []byte, kind, n byte) {
		s := []func(func([]byte, int)) splitter{newLines, newEvents, newMessages}[kind%3]
		whole := split(s, string(text), len(text)+1)
		parts := split(s, string(text), int(n)+1)
		if !slices.Equal(whole, parts) {
			t.Fatalf("%q in pieces of %d: %q, whole %q", text, n+1, parts, whole)
		}
		total := 0
		for _, frame := range whole {
			total += len(frame)
		}
		if total > len(text) {
			t.Fatalf("the frames have %d bytes, the text %d", total, len(text))
		}
	})
}
