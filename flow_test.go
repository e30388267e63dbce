package farcall_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
	"github.com/farcall-dev/farcall/wsrpc"
)

// producer has a method that streams values and counts those that were taken from it.
type producer struct {
	mux   *farcall.Mux
	count atomic.Int64
}

type blobs struct {
	N    int `json:"n"`
	Size int `json:"size"`
}

func newProducer() *producer {
	p := &producer{mux: farcall.NewMux()}
	farcall.HandleStream(p.mux, "blobs", func(_ context.Context, q blobs) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			blob := strings.Repeat("x", q.Size)
			for range q.N {
				if p.count.Add(1); !yield(blob, nil) {
					return
				}
			}
		}
	})
	farcall.Handle(p.mux, "ping", func(context.Context, struct{}) (string, error) {
		return "pong", nil
	})
	return p
}

// settled waits until the producer is held back, and returns how many values it has made.
func (p *producer) settled() (n int64) {
	for same := 0; same < 3; same++ {
		if now := p.count.Load(); now != n {
			n, same = now, 0
		}
		<-time.After(10 * time.Millisecond)
	}
	return n
}

// withoutCredit is the dialect of a peer that knows nothing of credit.
func withoutCredit() farcall.Dialect {
	return farcall.Dialect{
		CancelMethod: "$/cancelRequest", CancelID: "id",
		ProgressMethod: "$/progress", ProgressToken: "token", ProgressValue: "value",
	}
}

// end is one direction of a pair of pipes, as a child process has them.
type end struct {
	io.Reader
	io.Writer
	closers []io.Closer
}

func (e *end) Close() error {
	for _, c := range e.closers {
		_ = c.Close()
	}
	return nil
}

func stdioPair(t *testing.T) (a, b farcall.Transport) {
	t.Helper()
	r1, w1, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r2, w2, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return stream.New(&end{r1, w2, []io.Closer{r1, w2}}, stream.NDJSON, nil),
		stream.New(&end{r2, w1, []io.Closer{r2, w1}}, stream.NDJSON, nil)
}

func webSocketPair(t *testing.T) (a, b farcall.Transport) {
	t.Helper()
	accepted := make(chan farcall.Transport, 1)
	server := httptest.NewServer(wsrpc.NewHandler(func(c farcall.Transport, _ *http.Request) {
		accepted <- c
	}, nil))
	t.Cleanup(server.Close)
	a, err := wsrpc.Dial(t.Context(), "ws"+strings.TrimPrefix(server.URL, "http"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a, <-accepted
}

// slowly are the ways that a stream takes to a consumer that is slower than its producer.
var slowly = map[string]func(t *testing.T, p *producer, o *farcall.Options) *farcall.Peer{
	"tcp": func(t *testing.T, p *producer, o *farcall.Options) *farcall.Peer {
		a, b := tcpPair(t, stream.NDJSON)
		c, _ := connect(t, a, b, nil, p.mux, nil, o)
		return c
	},
	"header": func(t *testing.T, p *producer, o *farcall.Options) *farcall.Peer {
		a, b := tcpPair(t, stream.Header)
		c, _ := connect(t, a, b, nil, p.mux, nil, o)
		return c
	},
	"stdio": func(t *testing.T, p *producer, o *farcall.Options) *farcall.Peer {
		a, b := stdioPair(t)
		c, _ := connect(t, a, b, nil, p.mux, nil, o)
		return c
	},
	"websocket": func(t *testing.T, p *producer, o *farcall.Options) *farcall.Peer {
		a, b := webSocketPair(t)
		c, _ := connect(t, a, b, nil, p.mux, nil, o)
		return c
	},
	"http": func(t *testing.T, p *producer, o *farcall.Options) *farcall.Peer {
		server := httptest.NewServer(httprpc.NewHandler(p.mux, &httprpc.Options{RPC: o}))
		t.Cleanup(server.Close)
		x, err := httprpc.Dial(server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		c := farcall.NewClient(x, nil, nil)
		t.Cleanup(func() { _ = c.Close() })
		return c
	},
}

// A consumer that is slower than the producer slows it: a stream of 100 or 300 MB (without make
// full, of 16 or 50 MB) arrives whole, and neither end holds more than some megabytes of it at any
// time. With credit and, where the producer knows nothing of it, without.
func TestSlowConsumerOfALongStream(t *testing.T) {
	const size, most = 64 << 10, 12 << 20
	for name, open := range slowly {
		for _, dialect := range []farcall.Dialect{{}, withoutCredit()} {
			t.Run(fmt.Sprintf("%s/credit=%v", name, dialect == farcall.Dialect{}), func(t *testing.T) {
				n := 300 << 20 / size
				if name != "tcp" || dialect != (farcall.Dialect{}) {
					n /= 3
				}
				if !full.Wanted() {
					n /= 6 // still several times what both ends may hold
				}
				n = race.Fewer(n)
				p := newProducer()
				c := open(t, p, &farcall.Options{Dialect: dialect})
				before, peak, ahead := heap(), 0, int64(0)
				got := 0
				for v, err := range farcall.Stream[jsonrpc.Raw](t.Context(), c, "blobs",
					blobs{N: n, Size: size}) {
					if err != nil {
						t.Fatalf("after %d values: %v", got, err)
					}
					if len(v) != size+2 {
						t.Fatalf("a value of %d bytes", len(v))
					}
					if got++; got%(n/8) == 1 {
						ahead = max(ahead, p.settled()-int64(got))
						peak = max(peak, heap()-before)
					}
				}
				if got != n {
					t.Errorf("got %d values of %d", got, n)
				}
				if peak > most {
					t.Errorf("both ends held %d bytes, more than %d", peak, most)
				}
				t.Logf("both ends held %.1f MB at most; the producer was %.1f MB ahead at most",
					float64(peak)/1e6, float64(ahead*size)/1e6)
			})
		}
	}
}
