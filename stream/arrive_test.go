package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
)

var framings = map[string]Framing{"lines": NDJSON, "headers": Header, "raw": Raw, "detect": Detect}

// frameOf is a message of so many bytes, as a framing writes it.
func frameOf(f Framing, size int) []byte {
	text := `["` + strings.Repeat("x", size-4) + `"]`
	if f == Header {
		return fmt.Appendf(nil, "Content-Length: %d\r\n\r\n%s", size, text)
	}
	return []byte(text + "\n")
}

// pair is a transport and the other end of its bytes.
func pair(t *testing.T, f Framing, o *Options) (farcall.Transport, net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	tr := New(ours, f, o)
	t.Cleanup(func() { tr.Close(); theirs.Close() })
	return tr, theirs
}

// send writes in a goroutine that ends with the connection.
func send(t *testing.T, w io.Writer, p []byte) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.Write(p) // the other end may be closed
	}()
	t.Cleanup(func() { <-done })
}

func codeOf(t *testing.T, err error) jsonrpc.Code {
	t.Helper()
	var e *jsonrpc.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not a refusal", err)
	}
	return e.Code
}

func held(t *testing.T, b *farcall.Budget, want int64) {
	t.Helper()
	if n, few := b.Used(); n+few != want {
		t.Errorf("%d bytes of the budget are held, want %d", n+few, want)
	}
}

// One connection fills the budget: it is refused at once and stays in step, and another one works.
func TestBudgetIsShared(t *testing.T) {
	for name, f := range framings {
		t.Run(name, func(t *testing.T) {
			b := farcall.NewBudget(1<<20, 0)
			a, aEnd := pair(t, f, &Options{Budget: b})
			send(t, aEnd, append(frameOf(f, 600<<10), frameOf(f, 100)...))
			if _, err := a.Read(); codeOf(t, err) != jsonrpc.Overloaded {
				t.Errorf("%v", err)
			}
			other, otherEnd := pair(t, f, &Options{Budget: b})
			send(t, otherEnd, frameOf(f, 200<<10))
			if frame, err := other.Read(); err != nil || len(frame) != 200<<10 {
				t.Errorf("the other connection got %d bytes, %v", len(frame), err)
			}
			if frame, err := a.Read(); err != nil || len(frame) != 100 {
				t.Errorf("after the refusal came %d bytes, %v", len(frame), err)
			}
			if n, _ := b.Used(); n < 200<<10 {
				t.Errorf("a frame that is being handled holds %d bytes", n)
			}
			if err := errors.Join(a.Close(), other.Close()); err != nil {
				t.Error(err)
			}
			held(t, b, 0)
		})
	}
}

// What a frame has drawn is given back once, however it ends.
func TestBudgetIsGivenBack(t *testing.T) {
	for name, f := range framings {
		large := frameOf(f, 300<<10)
		for _, c := range []struct {
			name, input string
			use         func(tr farcall.Transport)
		}{
			{"read on", string(large) + string(frameOf(f, 10)), func(tr farcall.Transport) {
				_, _ = tr.Read()
				_, _ = tr.Read()
				_, _ = tr.Read()
			}},
			{"closed", string(large), func(tr farcall.Transport) { _, _ = tr.Read(); tr.Close() }},
			{"closed within", string(large[:200<<10]), func(tr farcall.Transport) {
				tr.(*conn).fillUp()
				tr.Close()
			}},
			{"ended within", string(large[:200<<10]), func(tr farcall.Transport) {
				_, _ = tr.Read()
				_, _ = tr.Read()
			}},
			{"kept", string(large), func(tr farcall.Transport) {
				_, _ = tr.Read()
				tr.(farcall.Keeper).Keep()
			}},
			{"kept twice", string(large), func(tr farcall.Transport) {
				_, _ = tr.Read()
				tr.(farcall.Keeper).Keep()
				tr.(farcall.Keeper).Keep()
			}},
			{
				"kept with more behind", string(large) + string(frameOf(f, 250<<10)),
				func(tr farcall.Transport) {
					first, _ := tr.Read()
					copied := bytes.Clone(first)
					tr.(farcall.Keeper).Keep()
					if second, err := tr.Read(); err != nil || len(second) != 250<<10 ||
						!bytes.Equal(first, copied) {
						t.Errorf("%d bytes, %v", len(second), err)
					}
					tr.(farcall.Keeper).Keep()
					tr.Close()
				},
			},
			{"too large", string(frameOf(f, 3<<20)), func(tr farcall.Transport) {
				_, _ = tr.Read()
				_, _ = tr.Read()
			}},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				b := farcall.NewBudget(8<<20, 0)
				tr := New(&once{Reader: strings.NewReader(c.input)}, f,
					&Options{Budget: b, MaxMessage: 2 << 20})
				c.use(tr)
				held(t, b, 0)
				tr.Close()
				held(t, b, 0)
			})
		}
	}
}

// fillUp reads what there is without looking for a frame.
func (c *conn) fillUp() {
	for c.err == nil {
		c.fill()
	}
}

type once struct {
	io.Reader
	io.Writer
}

func (*once) Close() error { return nil }

// The oldest incomplete frame of an unauthenticated connection makes room.
func TestOldestUnauthenticatedFrameGoes(t *testing.T) {
	for name, f := range framings {
		t.Run(name, func(t *testing.T) {
			b := farcall.NewBudget(0, 1<<20)
			large := frameOf(f, 400<<10)
			var trs []farcall.Transport
			var read []chan error
			for range 3 { // each grows to 256 KiB, and then to 400 or 512
				tr, end := pair(t, f, &Options{Budget: b.Unauthenticated()})
				ended := make(chan error, 2)
				go func() {
					for range 2 {
						_, err := tr.Read()
						ended <- err
					}
				}()
				if _, err := end.Write(large[:300<<10]); err != nil {
					t.Fatal(err)
				}
				trs, read = append(trs, tr), append(read, ended)
			}
			if err := <-read[0]; codeOf(t, err) != jsonrpc.Overloaded {
				t.Errorf("%v", err)
			}
			if err := <-read[0]; err == nil || errors.As(err, new(*jsonrpc.Error)) {
				t.Errorf("the stream goes on: %v", err)
			}
			for _, tr := range trs {
				tr.Close()
			}
			<-read[1]
			<-read[2]
			held(t, b, 0)
		})
	}
}

// A frame that has begun must go on; one that is large may take its time, and so
// may the next one.
func TestFrameTimeout(t *testing.T) {
	for name, f := range framings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, end := pair(t, f, nil)
				began, done := time.Now(), make(chan struct{})
				go func() {
					defer close(done)
					part := frameOf(f, 100)[:20]
					for {
						if _, err := end.Write(part[:1]); err != nil {
							return
						}
						if part = part[1:]; len(part) == 0 {
							part = []byte{'x'}
							if f == Header {
								part = []byte("Content-Length: 1000\r\n\r\n\"xxxxxxxxxxxxxxx")
							}
						}
						<-time.After(time.Second)
					}
				}()
				_, err := tr.Read()
				if took := time.Since(began); codeOf(t, err) != jsonrpc.InvalidRequest ||
					took != 30*time.Second || !strings.Contains(err.Error(), "30s") {
					t.Errorf("after %v: %v", took, err)
				}
				if _, err := tr.Read(); err == nil || errors.As(err, new(*jsonrpc.Error)) {
					t.Errorf("the stream goes on: %v", err)
				}
				tr.Close()
				end.Close()
				<-done
			})
		})
	}
}

func TestFrameTimeoutOfLargeFrames(t *testing.T) {
	race.Skip(t, "TestFrameTimeout has smaller frames")
	for name, f := range framings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, end := pair(t, f, nil)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range 2 {
						frame := frameOf(f, 20<<20) // 110 KB a second: more than three minutes
						for len(frame) > 0 {
							n := min(len(frame), 110<<10)
							if _, err := end.Write(frame[:n]); err != nil {
								return
							}
							frame = frame[n:]
							<-time.After(time.Second)
						}
						<-time.After(time.Hour) // between frames nothing is slow
					}
				}()
				for range 2 {
					if frame, err := tr.Read(); err != nil || len(frame) != 20<<20 {
						t.Fatalf("%d bytes, %v", len(frame), err)
					}
				}
				tr.Close()
				end.Close()
				<-done
			})
		})
	}
}

func TestNoFrameTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, end := pair(t, NDJSON, &Options{FrameTimeout: -1})
		go func() {
			_, _ = end.Write([]byte(`{"a"`))
			<-time.After(24 * time.Hour)
			_, _ = end.Write([]byte(":1}\n"))
		}()
		if frame, err := tr.Read(); err != nil || string(frame) != `{"a":1}` {
			t.Errorf("%s, %v", frame, err)
		}
		tr.Close()
	})
}

// What stands between messages is not a slow message.
func TestFrameTimeoutSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, end := pair(t, NDJSON, &Options{Skip: func(p []byte, _ bool) bool { return p[0] != '{' }})
		go func() {
			_, _ = end.Write([]byte("Loading ... "))
			<-time.After(time.Hour)
			_, _ = end.Write([]byte("done\n{}\n{"))
		}()
		if frame, err := tr.Read(); err != nil || string(frame) != `{}` {
			t.Errorf("%s, %v", frame, err)
		}
		if _, err := tr.Read(); codeOf(t, err) != jsonrpc.InvalidRequest {
			t.Error(err)
		}
		tr.Close()
	})
}
