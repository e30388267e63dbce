package stream

import (
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
)

// TestNoAllocations: small frames in steady state.
func TestNoAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes pools forget")
	}
	for name, connect := range connections(t) {
		if name == "tls" || name == "net.Pipe" || name == "npipe" {
			continue // they allocate themselves
		}
		for _, framing := range []Framing{NDJSON, Header, Raw, Detect} {
			ra, rb := connect(t)
			a, b := New(ra, framing, nil), New(rb, framing, nil)
			echoed := make(chan struct{})
			go func() {
				defer close(echoed)
				var out [1][]byte
				for {
					frame, err := b.Read()
					if err != nil {
						return
					}
					out[0] = frame
					if b.Write(out[:]...) != nil {
						return
					}
				}
			}()
			out := [][]byte{[]byte(`{"jsonrpc":"2.0","id":1,"method":"x"}`)}
			try, _ := a.(farcall.TryWriter)
			n := testing.AllocsPerRun(2000, func() {
				var err error
				if try != nil {
					_, err = try.TryWrite(out...)
				} else {
					err = a.Write(out...)
				}
				if err == nil {
					_, err = a.Read()
				}
				if err != nil {
					t.Fatal(err)
				}
			})
			if n >= 1 {
				t.Errorf("%s/%d: %v allocations for a call", name, framing, n)
			}
			a.Close()
			b.Close()
			<-echoed
		}
	}
}

// TestIdleMemory: connections that wait hold no large buffer, also when they
// have received a part of a message.
func TestIdleMemory(t *testing.T) {
	const conns = 300
	for _, input := range []string{"{}\n", "{}\n[1,"} {
		var all []farcall.Transport
		var clients []io.ReadWriteCloser
		for range conns {
			ra, rb := socketPair(t, "tcp", "127.0.0.1:0")
			all = append(all, New(rb, NDJSON, nil))
			clients = append(clients, ra)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		done := make(chan error)
		for i, tr := range all {
			_, _ = io.WriteString(clients[i], input)
			if _, err := tr.Read(); err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := tr.Read()
				done <- err
			}()
		}
		for waiting := 0; waiting < conns; {
			buf := make([]byte, 4<<20)
			waiting = strings.Count(string(buf[:runtime.Stack(buf, true)]),
				"internal/poll.runtime_pollWait(")
		}
		for range 3 { // what is in a pool survives one collection
			runtime.GC()
		}
		runtime.ReadMemStats(&after)
		if each := int64(after.HeapAlloc-before.HeapAlloc) / conns; each > 2048 &&
			runtime.GOOS != "windows" {
			t.Errorf("%q: %d bytes of heap for each idle connection", input, each)
		}
		for i, tr := range all {
			tr.Close()
			clients[i].Close()
			<-done
		}
	}
}
