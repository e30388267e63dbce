package fetch

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// A nameServer answers lookups: the nth of a name with its nth answer, then the last.
type nameServer struct {
	mu      sync.Mutex
	answers map[string][]string
	asked   map[string]int
}

// resolver starts a name server (RFC 1035) that knows the names.
func resolver(t *testing.T, answers map[string][]string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &nameServer{answers: answers, asked: map[string]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo(s.answer(buf[:n]), from)
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
		},
	}
}

func (s *nameServer) answer(q []byte) []byte {
	name, i := "", 12
	for q[i] != 0 {
		name += string(q[i+1:i+1+int(q[i])]) + "."
		i += 1 + int(q[i])
	}
	name = strings.TrimSuffix(name, ".")
	typ := binary.BigEndian.Uint16(q[i+1:])
	out := append([]byte(nil), q[:i+5]...)
	out[2], out[3] = 0x84, 0x00
	copy(out[6:12], make([]byte, 6))

	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.answers[name]
	if list == nil {
		out[3] = 3 // no such name
		return out
	}
	key := name + string(rune('0'+typ))
	at := min(s.asked[key], len(list)-1)
	s.asked[key]++
	a := netip.MustParseAddr(list[at])
	if want := map[bool]uint16{true: 1, false: 28}[a.Is4()]; want != typ {
		return out
	}
	out[7] = 1
	out = append(out, 0xC0, 12)
	out = binary.BigEndian.AppendUint16(out, typ)
	out = append(out, 0, 1, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(len(a.AsSlice())))
	return append(out, a.AsSlice()...)
}
