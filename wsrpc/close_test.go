package wsrpc_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/wsrpc"
)

// frame is a frame of a client; its mask is zero.
func frame(first byte, payload string) string {
	return string([]byte{first, 0x80 | byte(len(payload)), 0, 0, 0, 0}) + payload
}

// What breaks RFC 6455 closes the connection with the status that §7.4.1 has for it.
func TestCloseStatus(t *testing.T) {
	s := serve(t, &wsrpc.Options{MaxMessage: 100})
	for _, c := range []struct {
		name, send string
		status     uint16
		answer     string // before the close frame
		protocol   bool   // the peer's error is ErrProtocol
	}{
		{"unmasked", "\x81\x02{}", 1002, "", true},
		{
			"a 64-bit length with its first bit set",
			"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", 1002, "", true,
		},
		{"unmasked between fragments", frame(0x01, "[") + "\x80\x01]", 1002, "", true},
		{"a reserved bit", frame(0xc1, "{}"), 1002, "", true},
		{"a reserved opcode", frame(0x83, "{}"), 1002, "", true},
		{
			"a long ping", "\x89\xfe\x00\x7e\x00\x00\x00\x00" + string(bytes.Repeat([]byte("x"), 126)), 1002,
			"", true,
		},
		{"a continuation of nothing", frame(0x80, "{}"), 1002, "", true},
		{"a close frame with status 1005", frame(0x88, "\x03\xed"), 1002, "", true},
		{
			"text that is not UTF-8", frame(0x81, "\"\xff\""), 1007,
			`-32700,"message":"Parse error","data":{"reason":"the text message is not valid UTF-8"}`, false,
		},
		{
			"text that is not UTF-8, in fragments", frame(0x01, "\"\xc3") + frame(0x80, "\""), 1007,
			`-32700,"message":"Parse error","data":{"reason":"the text message is not valid UTF-8"}`, false,
		},
		{
			"too large", frame(0x81, string(message(101))), 1009,
			`-32012,"message":"Request too large","data":{"maxSize":100,"unit":"bytes"}`, false,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := rawConn(t, s.url())
			tr := <-s.conns
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			p := farcall.NewPeer(tr, nil, nil)
			if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			head := make([]byte, 2)
			var answer []byte
			for {
				if _, err := io.ReadFull(conn, head); err != nil {
					t.Fatalf("no close frame came: %v", err)
				}
				size := int(head[1])
				if size == 126 { // RFC 6455 §5.2: the length is in the next two bytes
					long := make([]byte, 2)
					if _, err := io.ReadFull(conn, long); err != nil {
						t.Fatal(err)
					}
					size = int(binary.BigEndian.Uint16(long))
				}
				payload := make([]byte, size)
				if _, err := io.ReadFull(conn, payload); err != nil {
					t.Fatal(err)
				}
				if head[0] != 0x88 {
					answer = append(answer, payload...)
					continue
				}
				if got := binary.BigEndian.Uint16(payload); got != c.status || len(payload) < 3 {
					t.Errorf("closed with status %d, reason %q; want %d and a reason", got, payload[2:], c.status)
				}
				break
			}
			if (len(answer) == 0) != (c.answer == "") || !bytes.Contains(answer, []byte(c.answer)) {
				t.Errorf("answered %q, want %q", answer, c.answer)
			}
			conn.Close()
			<-p.Done()
			if got := errors.Is(p.Err(), farcall.ErrProtocol); got != c.protocol {
				t.Errorf("the peer ended with %v", p.Err())
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Binary messages are not text: bad UTF-8 in them is a parse error like any other.
func TestBinaryNeedNotBeUTF8(t *testing.T) {
	s := serve(t, nil)
	conn := rawConn(t, s.url())
	tr := <-s.conns
	if _, err := io.WriteString(conn, frame(0x82, "\"\xff\"")+frame(0x82, "2")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\"\xff\"", "2"} {
		if got, err := tr.Read(); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	conn.Close()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}
