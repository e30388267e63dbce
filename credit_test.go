package farcall_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/race"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

// window is how much of a stream is on the way, and kilo the size of the values of the tests.
const (
	window = 1 << 20
	kilo   = 1 << 10
)

// pipePeers returns the ends of a pipe: one that calls, and one that serves p.
func pipePeers(t *testing.T, p *producer, calling, serving *farcall.Options) *farcall.Peer {
	t.Helper()
	a, b := farcall.Pipe()
	c, _ := connect(t, a, b, nil, p.mux, calling, serving)
	return c
}

// blobsOf pulls the values of a stream one by one.
func blobsOf(
	t *testing.T, c farcall.Caller, n, size int,
) (next func() (jsonrpc.Raw, error, bool), stop func()) {
	t.Helper()
	return iter.Pull2(farcall.Stream[jsonrpc.Raw](t.Context(), c, "blobs", blobs{N: n, Size: size}))
}

// A producer that counts is one window ahead of its consumer and no more, whichever of the two ends
// is older: a producer that does not count also fills the transport.
func TestProducerIsHeldBack(t *testing.T) {
	none := &farcall.Options{Dialect: withoutCredit()}
	for name, test := range map[string]struct {
		calling, serving *farcall.Options
		most             int64
	}{
		"credit":                {nil, nil, window + kilo},
		"producer without":      {nil, none, 3*window + 256*kilo},
		"consumer without":      {none, nil, 3*window + 256*kilo},
		"neither of them":       {none, none, 3*window + 256*kilo},
		"of another dialect":    {mcpLike(), mcpLike(), 3*window + 256*kilo},
		"one that unsent binds": {none, &farcall.Options{MaxUnsent: 1 << 20}, 2*window + 256*kilo},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProducer()
				next, stop := blobsOf(t, pipePeers(t, p, test.calling, test.serving), 20_000, kilo)
				defer stop()
				for taken := range int64(5000) {
					if v, err, ok := next(); err != nil || !ok || len(v) != kilo+2 {
						t.Fatalf("%d bytes, %v, %v", len(v), err, ok)
					}
					if synctest.Wait(); (p.count.Load()-taken)*kilo > test.most {
						t.Fatalf("the producer is %d values ahead", p.count.Load()-taken)
					}
				}
			})
		})
	}
}

func mcpLike() *farcall.Options {
	return &farcall.Options{Dialect: farcall.Dialect{
		CancelMethod: "notifications/cancelled", CancelID: "requestId",
		ProgressMethod: "notifications/progress", ProgressToken: "progressToken", ProgressValue: "value",
		Meta: "_meta",
	}}
}

// A value that is larger than the window passes.
func TestValuesLargerThanTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := collect(farcall.Stream[string](t.Context(), pipePeers(t, newProducer(), nil, nil),
			"blobs", blobs{N: 5, Size: 3 * window}))
		if err != nil || len(got) != 5 {
			t.Errorf("got %d values, %v", len(got), err)
		}
	})
}

// A stream that is not taken delays no other call, in either direction; where the producer does not
// count, a call makes this end read on.
func TestStreamThatIsNotTakenDelaysNoCall(t *testing.T) {
	for name, o := range map[string]*farcall.Options{
		"credit":  nil,
		"without": {Dialect: withoutCredit()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newProducer()
				c := pipePeers(t, p, nil, o)
				next, stop := blobsOf(t, c, 20_000, kilo)
				defer stop()
				if _, err, _ := next(); err != nil {
					t.Fatal(err)
				}
				for range 3 {
					synctest.Wait()
					start := time.Now()
					if err := c.Call(t.Context(), "ping", nil, nil); err != nil ||
						time.Since(start) > 10*time.Millisecond {
						t.Errorf("%v after %v", err, time.Since(start))
					}
				}
			})
		})
	}
}

// Two streams of one connection are taken in turns by one consumer, though neither producer counts.
func TestTwoStreamsTakenInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pipePeers(t, newProducer(), nil, &farcall.Options{Dialect: withoutCredit()})
		first, stop := blobsOf(t, c, 5000, kilo)
		defer stop()
		if _, err, _ := first(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first has filled the connection
		second, stop := blobsOf(t, c, 5000, kilo)
		defer stop()
		for range 4999 {
			if _, err, ok := second(); err != nil || !ok {
				t.Fatal(err, ok)
			}
			if _, err, ok := first(); err != nil || !ok {
				t.Fatal(err, ok)
			}
		}
	})
}

// A producer that waits for credit ends with its call: when the caller cancels, its time is over,
// it breaks off, the connection ends, or the call of the handler has a deadline.
func TestBlockedProducerEnds(t *testing.T) {
	for name, o := range map[string]*farcall.Options{
		"credit":  nil,
		"without": {Dialect: withoutCredit()},
	} {
		for how, end := range map[string]func(c *farcall.Peer, cancel, stop func()){
			"cancel":    func(_ *farcall.Peer, cancel, _ func()) { cancel() },
			"deadline":  func(*farcall.Peer, func(), func()) { <-time.After(2 * time.Minute) },
			"break":     func(_ *farcall.Peer, _, stop func()) { stop() },
			"hang up":   func(c *farcall.Peer, _, _ func()) { _ = c.Close(); <-time.After(time.Minute) },
			"its limit": func(*farcall.Peer, func(), func()) { <-time.After(40 * time.Second) },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ended := make(chan error, 1)
					m := farcall.NewMux()
					m.Handle("pour",
						farcall.HandlerFunc(func(ctx context.Context, _ *farcall.Request) (any, error) {
							if how == "its limit" {
								var done context.CancelFunc
								ctx, done = context.WithTimeout(ctx, 30*time.Second)
								defer done()
							}
							for {
								if err := farcall.Progress(ctx, strings.Repeat("x", kilo)); err != nil {
									ended <- err
									return nil, err
								}
							}
						}))
					a, b := farcall.Pipe()
					c, _ := connect(t, a, b, nil, m, nil, o)
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					next, stop := iter.Pull2(farcall.Stream[string](ctx, c, "pour", nil))
					defer stop()
					if _, err, _ := next(); err != nil {
						t.Fatal(err)
					}
					<-time.After(time.Second) // the producer is held back
					end(c, cancel, stop)
					synctest.Wait()
					select {
					case err := <-ended:
						if want := how == "its limit"; errors.Is(err, context.DeadlineExceeded) != want &&
							name == "credit" {
							t.Errorf("it ended with %v", err)
						}
					default:
						t.Error("the producer is still there")
					}
				})
			})
		}
	}
}

// A caller that sends no more and reads on gets all of a stream, though it can grant nothing.
func TestCreditAfterTheEndOfInput(t *testing.T) {
	m, _ := streamMux()
	w := newWire(t, stream.NDJSON, m, nil)
	w.write(`{"jsonrpc":"2.0","method":"count","params":{"to":100},"id":1,"progressToken":1,` +
		`"progressCredit":1}`)
	w.expect(progressOf(1, true, "0"))
	if err := w.c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for i := range 99 {
		w.expect(progressOf(1, false, fmt.Sprint(i+1)))
	}
	w.expect(result("null", "1"))
}

// A producer that runs in the goroutine that reads does not keep the connection from being read.
func TestBlockedProducerInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newProducer()
		c := pipePeers(t, p, nil, nil)
		for range 100 { // the method is fast, and inline from now on
			if _, err := collect(farcall.Stream[string](t.Context(), c, "blobs", blobs{N: 1})); err != nil {
				t.Fatal(err)
			}
		}
		got, err := collect(farcall.Stream[string](t.Context(), c, "blobs", blobs{N: 5000, Size: kilo}))
		if err != nil || len(got) != 5000 {
			t.Errorf("got %d values, %v", len(got), err)
		}
	})
}

// A stream that an interceptor calls again has its credit again.
func TestStreamThatIsCalledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := func(next farcall.Handler) farcall.Handler {
			return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				if _, err := next.ServeRPC(ctx, req); err != nil {
					return nil, err
				}
				return next.ServeRPC(ctx, req)
			})
		}
		c := pipePeers(t, newProducer(), &farcall.Options{CallInterceptors: []farcall.Interceptor{again}},
			nil)
		got, err := collect(farcall.Stream[string](t.Context(), c, "blobs", blobs{N: 5000, Size: kilo}))
		if err != nil || len(got) != 10_000 {
			t.Errorf("got %d values, %v", len(got), err)
		}
	})
}

// pour is a value of a stream as a test writes it.
func progressOf(id int, credit bool, value string) string {
	member := ""
	if credit {
		member = `"credit":true,`
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/progress","params":{"token":%d,%s"value":%s}}`,
		id, member, value)
}

// What the consumer says: nothing of credit before the producer has said that it counts, and then a
// grant for each half of a window that was taken.
func TestConsumerOnTheWire(t *testing.T) {
	const half = window/2 - 64 // the cost of a value
	value := `"` + strings.Repeat("x", half-2) + `"`
	for _, counts := range []bool{true, false} {
		w := newWire(t, stream.NDJSON, nil, nil)
		done := make(chan error, 1)
		go func() {
			got, err := collect(farcall.Stream[jsonrpc.Raw](t.Context(), w.p, "m", nil))
			if err == nil && len(got) != 3 {
				err = fmt.Errorf("%d values", len(got))
			}
			done <- err
		}()
		w.expect(`{"jsonrpc":"2.0","method":"m","id":1,"progressToken":1,"progressCredit":1048576}`)
		for i := range 3 {
			w.write(progressOf(1, counts, value))
			if counts {
				w.expect(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/credit","params":{"id":1,"limit":%d}}`,
					window+(i+1)*window/2))
			}
		}
		w.write(result("null", "1"))
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A producer that says it counts and sends more than it may breaks the protocol.
func TestProducerThatOverruns(t *testing.T) {
	w := newWire(t, stream.NDJSON, nil, nil)
	next, stop := iter.Pull2(farcall.Stream[jsonrpc.Raw](t.Context(), w.p, "m", nil))
	defer stop()
	go func() {
		w.read()
		w.write(progressOf(1, true, "1"))
	}()
	_, err, _ := next()
	for range 40 {
		w.write(progressOf(1, true, `"`+strings.Repeat("x", 64*kilo)+`"`))
	}
	w.write(pingRequest)
	w.read() // it has read them
	for ok := true; ok && err == nil; {
		_, err, ok = next()
	}
	if !errors.Is(err, farcall.ErrProtocol) || !strings.Contains(err.Error(), "credit") {
		t.Errorf("got %v", err)
	}
	stop()
	w.expect(`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":1}}`)
}

// grants are params of $/credit and whether a stream of id 1 that has come to a limit of 100 goes
// on.
var grants = map[string]bool{
	`{"id":1,"limit":131}`:                              true,
	`{"limit":131 , "x":[{}], "id": 1}`:                 true,
	`{"id":1,"limit":130}`:                              false, // so much has been sent already
	`{"id":1,"limit":9007199254740993}`:                 false,
	`{"id":1,"limit":9223372036854775808}`:              false, // 2^63
	`{"id":1,"limit":18446744073709551616}`:             false,
	`{"id":1,"limit":0}`:                                false,
	`{"id":1,"limit":-1}`:                               false,
	`{"id":1,"limit":-9223372036854775808}`:             false,
	`{"id":1,"limit":1e9}`:                              false,
	`{"id":1,"limit":1000.0}`:                           false,
	`{"id":1,"limit":"1000"}`:                           false,
	`{"id":1,"limit":null}`:                             false,
	`{"id":1,"limit":[1000]}`:                           false,
	`{"id":1}`:                                          false,
	`{"limit":1000}`:                                    false,
	`{"id":2,"limit":1000}`:                             false,
	`{"id":"1","limit":1000}`:                           false,
	`{"id":null,"limit":1000}`:                          false,
	`{"id":{},"limit":1000}`:                            false,
	`{"token":1,"limit":1000}`:                          false,
	`[1,1000]`:                                          false,
	`[]`:                                                false,
	`{"id":1,"limit":-1,"limit":1000}`:                  false, // the first one counts
	`{"id":1,"limit":` + strings.Repeat("9", 400) + `}`: false,
}

// creditWire is a stream of values that cost 65 each, come to its limit of 100: two have arrived.
func creditWire(t *testing.T) *wire {
	t.Helper()
	m := farcall.NewMux()
	farcall.HandleStream(m, "ones", func(context.Context, struct{}) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for yield(1, nil) {
			}
		}
	})
	farcall.Handle(m, "ping", func(context.Context, struct{}) (int, error) { return 0, nil })
	w := newWire(t, stream.NDJSON, m, nil)
	w.write(`{"jsonrpc":"2.0","method":"ones","id":1,"progressToken":1,"progressCredit":100}`)
	w.expect(progressOf(1, true, "1"))
	w.expect(progressOf(1, true, "1"))
	return w
}

// Grants that are wrong, or not for this stream, have no effect, and the connection goes on.
func TestHostileGrants(t *testing.T) {
	for params, goesOn := range grants {
		w := creditWire(t)
		w.write(`{"jsonrpc":"2.0","method":"$/credit","params":`+params+`}`,
			`{"jsonrpc":"2.0","method":"ping","id":2}`)
		want := []string{result("0", "2")}
		if goesOn {
			want = append(want, progressOf(1, false, "1"))
		}
		for range slices.Clone(want) { // in any order
			got := w.read()
			if i := slices.Index(want, got); i >= 0 {
				want = slices.Delete(want, i, i+1)
			} else {
				t.Errorf("%s: got %s, want one of %s", params, got, want)
			}
		}
		if err := w.p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A grant of one connection is none of another, though the id is the same.
func TestGrantOfAnotherConnection(t *testing.T) {
	one, other := creditWire(t), creditWire(t)
	other.write(`{"jsonrpc":"2.0","method":"$/credit","params":{"id":1,"limit":131}}`)
	other.expect(progressOf(1, false, "1"))
	one.write(`{"jsonrpc":"2.0","method":"ping","id":2}`)
	one.expect(result("0", "2"))
}

// A credit that is not valid is none: the stream goes out as to a caller that announces nothing.
func TestHostileAnnouncements(t *testing.T) {
	m, _ := streamMux()
	for _, announced := range []string{
		"0", "-1", "1e3", "null", `"1"`, "{}", "9007199254740993",
		"9223372036854775808",
	} {
		w := newWire(t, stream.NDJSON, m, nil)
		w.write(
			`{"jsonrpc":"2.0","method":"count","params":{"to":3},"id":1,"progressToken":1,` +
				`"progressCredit":` + announced + `}`)
		for i := range 3 {
			w.expect(progressOf(1, false, fmt.Sprint(i)))
		}
		w.expect(result("null", "1"))
	}
}

// Grants by the thousand, also for streams that have ended, leave nothing.
func TestManyGrants(t *testing.T) {
	w := creditWire(t)
	for i := range 10_000 {
		w.write(fmt.Sprintf(`{"jsonrpc":"2.0","method":"$/credit","params":{"id":%d,"limit":%d}}`,
			i+2, i+1))
	}
	w.write(`{"jsonrpc":"2.0","method":"ping","id":2}`)
	w.expect(result("0", "2"))
	if st := w.p.Stats(); st.Queued != 0 || st.InFlight != 1 {
		t.Errorf("%+v", st)
	}
}

// Many streams at once, each with a slow consumer.
func TestManySlowStreams(t *testing.T) {
	p, values := newProducer(), race.Fewer(40)
	a, b := tcpPair(t, stream.NDJSON)
	c, _ := connect(t, a, b, nil, p.mux, nil, nil)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			n := 0
			for _, err := range farcall.Stream[jsonrpc.Raw](t.Context(), c, "blobs",
				blobs{N: values, Size: 64 * kilo}) {
				if err != nil {
					t.Error(err)
				}
				n++
				runtime.Gosched()
			}
			if n != values {
				t.Errorf("%d values", n)
			}
		})
	}
	wg.Wait()
}

// A consumer takes a stream that has no end at its own pace: the producer is not far ahead.
func ExampleStream() {
	mux := farcall.NewMux()
	farcall.HandleStream(mux, "ticks", func(context.Context, struct{}) iter.Seq2[int, error] {
		return func(yield func(int, error) bool) {
			for i := 0; yield(i, nil); i++ { // until the consumer has left
			}
		}
	})
	near, far := farcall.Pipe()
	client, server := farcall.NewPeer(near, nil, nil), farcall.NewPeer(far, mux, nil)
	defer server.Close()
	defer client.Close()
	for tick, err := range farcall.Stream[int](context.Background(), client, "ticks", nil) {
		if err != nil || tick == 3 {
			break
		}
		fmt.Println(tick)
	}
	// Output:
	// 0
	// 1
	// 2
}

// FuzzCredit gives a stream any params as a grant: it never sends more than it may, and the
// connection goes on.
func FuzzCredit(f *testing.F) {
	for params := range grants {
		f.Add([]byte(params))
	}
	f.Add([]byte(`{"id":1,"limit":9007199254740992}`)) // 2^53
	f.Fuzz(func(t *testing.T, params []byte) {
		if jsonrpc.Valid(params) != nil || params[0] != '{' && params[0] != '[' {
			return
		}
		limit, sent := farcall.CreditAfter(params)
		if limit < 100 || limit > 1<<53 || sent >= limit+65 {
			t.Errorf("%s: a limit of %d, %d were sent", params, limit, sent)
		}
	})
}
