package raw

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A porter lets pass what is not called "deny…", and counts.
type porter struct {
	t                       *testing.T
	mu                      sync.Mutex
	pipes, passed, over, no int
	open                    map[int]string
	errs                    []string
}

func (p *porter) admit(context.Context) Admission {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipes++
	return func(method string, params jsonrpc.Raw) (func(jsonrpc.Raw, error), error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if strings.HasPrefix(method, "deny") {
			p.no++
			return nil, &jsonrpc.Error{Code: -32002, Message: "Permission denied"}
		}
		if strings.HasPrefix(method, "odd") {
			return nil, fmt.Errorf("secret of %s", params)
		}
		p.passed++
		n := p.passed
		if p.open == nil {
			p.open = map[int]string{}
		}
		p.open[n] = method
		return func(_ jsonrpc.Raw, err error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if _, is := p.open[n]; !is {
				p.t.Errorf("%s has ended twice", method)
			}
			delete(p.open, n)
			p.over++
			if err != nil {
				p.errs = append(p.errs, method+": "+err.Error())
			}
		}, nil
	}
}

// left is how many have not ended.
func (p *porter) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open)
}

// What may not pass is answered, what may goes on as it is, batches element by element.
func TestAdmit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testAdmit) // a call is never answered, and waited for
}

func testAdmit(t *testing.T) {
	t.Helper()
	s, w := newScripted(), &porter{t: t}
	u := open(t, &Options{Dial: s.dial, Admit: w.admit})
	p := pipeTo(t, u)
	p.send(t,
		`{"jsonrpc":"2.0","id":0,"result":"of no question"}`,
		`{"jsonrpc":"2.0","method":"deny-this"}`,
		call("1", "deny", "[]"))
	p.expect(t, `{"jsonrpc":"2.0","error":{"code":-32002,"message":"Permission denied"},"id":1}`)
	if st := u.Status(); st.Dials != 0 || st.Dropped != 2 || st.Calls != 1 || st.Errors != 1 {
		t.Fatalf("%+v", st) // every call was refused, so nothing is connected
	}
	p.send(t, call("2", "odd", "[17]"))
	p.expectLike(t, `{"code":-32603,"message":"Internal error"}`, `"id":2`)
	p.send(t, `[`+call("3", "deny", "[]")+`,{"jsonrpc":"2.0","method":"deny"},17]`)
	p.expectLike(t, `[{"jsonrpc":"2.0","error":{"code":-32002,`, `"id":3},{`, `-32600`, `"id":null}]`)

	p.send(t, ` { "id":1.0, "method":"m\u0061y" ,"jsonrpc":"2.0"}`)
	server := <-s.made
	expect := func(want string) {
		t.Helper()
		if got, err := server.Read(); string(got) != want || err != nil {
			t.Fatalf("%s, %v, want %s", got, err, want)
		}
	}
	expect(` { "id":1.0, "method":"m\u0061y" ,"jsonrpc":"2.0"}`)
	p.send(t,
		`[`+call("4", "deny", "[]")+`, `+call("5", "a", "[]")+`, {"jsonrpc":"2.0","method":"n"}]`)
	expect(`[` + call("5", "a", "[]") + `,{"jsonrpc":"2.0","method":"n"}]`)
	p.expectLike(t, `[{"jsonrpc":"2.0","error":{"code":-32002,`, `"id":4}]`)
	p.send(t, `[`+call("6", "a", "[]")+`, `+call("7", "b", "[]")+` ]`,
		`{"jsonrpc":"2.0","id":0,"result":1}`)
	expect(`[` + call("6", "a", "[]") + `, ` + call("7", "b", "[]") + ` ]`)
	expect(`{"jsonrpc":"2.0","id":0,"result":1}`)
	if n := w.left(); n != 4 {
		t.Errorf("%d are open, want 4", n)
	}
	if err := server.Write([]byte(result("1", "1")), []byte(`[`+result("5", "1")+`]`),
		[]byte(`{"jsonrpc":"2.0","id":6,"error":{"code":5,"message":"no"}}`)); err != nil {
		t.Fatal(err)
	}
	p.expect(t, result("1", "1"), `[`+result("5", "1")+`]`)
	p.expectLike(t, "no")
	p.Close()
	<-p.done
	if n := w.left(); n != 0 || w.pipes != 1 || w.passed != 5 || len(w.errs) != 2 ||
		!strings.HasPrefix(w.errs[0], "a: jsonrpc") && !strings.HasPrefix(w.errs[0], "a: ") {
		t.Errorf("%+v", w)
	}
}

// What another reader might take for another call does not go on.
func TestAdmitDisguised(t *testing.T) {
	t.Parallel()
	s, w := newScripted(), &porter{t: t}
	p := pipeTo(t, open(t, &Options{Dial: s.dial, Admit: w.admit}))
	p.send(t, call("0", "first", "[]"))
	server := <-s.made
	if _, err := server.Read(); err != nil {
		t.Fatal(err)
	}
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"a","Method":"deny"}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","\u004dETHOD":"deny"}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","param\u017f":["x"]}`,
		`{"jsonrpc":"2.0","id":1,"method":"a","method":"deny"}`,
		`{"jsonrpc":"2.0","id":1,"method":"deny","method":"a"}`,
		`{"id":1,"method":"deny","params":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"deny","result":1}`,
		`{"jsonrpc":"2.0","id":"` + strings.Repeat("x", trackedID) + `","method":"a"}`,
		`{"jsonrpc":"2.0","id":{},"method":"deny"}`,
		`{"jsonrpc":"3.0","method":"deny"}`,
	} {
		p.send(t, frame)
		p.expectLike(t, "-32600")
	}
	p.send(t, `{"jsonrpc":"2.0","id":1,"result":"a","Method":"deny"}`, call("2", "last", "[]"))
	if got, err := server.Read(); string(got) != call("2", "last", "[]") || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

// However a call ends, its admission does, once.
func TestAdmitEnds(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"client", "server", "cancelled", "refused", "drain"} {
		t.Run(end, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := newScripted(), &porter{t: t}
				o := &Options{Name: "up", Dial: s.dial, Admit: w.admit}
				if end == "refused" {
					o.Dial = func(context.Context) (farcall.Transport, error) {
						return nil, fmt.Errorf("connection refused")
					}
				}
				u := New(o)
				ours, theirs := farcall.Pipe()
				p := &piped{ours, make(chan error, 1)}
				go func() { p.done <- u.Pipe(context.Background(), theirs) }()
				p.send(t, call("1", "a", "[]"), `{"jsonrpc":"2.0","method":"n"}`)
				if end == "refused" {
					p.send(t, call("2", "a", "[]"))
				}
				if end == "refused" {
					p.expectLike(t, "-32008", `"id":1`)
					p.expectLike(t, "-32008", `"id":2`) // the next attempt has failed as well
				} else {
					server := <-s.made
					for range 2 {
						if _, err := server.Read(); err != nil {
							t.Fatal(err)
						}
					}
					switch synctest.Wait(); end {
					case "server":
						server.Close()
						p.expectLike(t, "-32008", `"id":1`)
						<-p.done
					case "client":
						p.Close()
						<-p.done
					case "cancelled":
						p.send(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1.0}}`)
						if _, err := server.Read(); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
						if n := w.left(); n != 0 {
							t.Errorf("%d are open", n)
						}
						if err := server.Write([]byte(result("1", "1"))); err != nil { // all the same
							t.Fatal(err)
						}
						p.expect(t, result("1", "1"))
					case "drain":
						ctx, cancel := context.WithCancel(context.Background())
						cancel()
						_ = u.Close(ctx)
					}
				}
				synctest.Wait()
				if n := w.left(); n != 0 {
					t.Errorf("%d are open", n)
				}
				p.Close()
				synctest.Wait()
				shut(t, u)
			})
		})
	}
}

// Calls that are never answered are forgotten, and so do not count for ever.
func TestAdmitForgotten(t *testing.T) {
	t.Parallel()
	w := &porter{t: t}
	k := &tracker{meter: new(meter)}
	ask := w.admit(t.Context())
	for i := range 2 * trackedCalls {
		done, _ := ask("m", nil)
		if _, err := k.add(
			&jsonrpc.Batch{
				Messages: []jsonrpc.Message{{Kind: jsonrpc.Request, ID: jsonrpc.IntID(int64(i))}},
			}, false, []func(jsonrpc.Raw, error){done}); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.left(); n > trackedCalls {
		t.Errorf("%d are open", n)
	}
	for _, f := range k.end(errShuttingDown) {
		f.finish(nil, errShuttingDown)
	}
	if n := w.left(); n != 0 {
		t.Errorf("%d are open", n)
	}
}

// To an Exchanger, and over a connection that all share, it is the same.
func TestAdmitOtherWays(t *testing.T) {
	t.Parallel()
	var seen sync.Map
	mux := farcall.HandlerFunc(func(_ context.Context, r *farcall.Request) (any, error) {
		seen.Store(r.Method, true)
		return r.Params, nil
	})
	for name, o := range map[string]*Options{
		"exchanger": {Exchanger: exchanger(func(
			ctx context.Context, frame []byte, reply func([]byte) error,
		) error {
			seen.Store(string(frame), true)
			if strings.Contains(string(frame), "hang") {
				<-ctx.Done()
				return ctx.Err()
			}
			id, ok := strings.CutPrefix(string(frame), `{"jsonrpc":"2.0","id":`)
			if !ok {
				return nil
			}
			id, _, _ = strings.Cut(id, ",")
			return reply([]byte(result(id, "[]")))
		})},
		"shared": {Dial: inMemory(mux), Lifetime: "shared"},
	} {
		t.Run(name, func(t *testing.T) {
			w := &porter{t: t}
			o.Admit = w.admit
			u := open(t, o)
			p := pipeTo(t, u)
			p.send(t, `{"jsonrpc":"2.0","id":1,"result":"unrequested"}`, `{"jsonrpc":"2.0","method":"deny"}`)
			for i := range 50 {
				p.send(t, call(strconv.Itoa(i), "deny", "[]"))
				p.expectLike(t, "-32002", `"id":`+strconv.Itoa(i))
				p.send(t, call(strconv.Itoa(i), "a", "[]"))
				p.expectLike(t, "[]", `"id":`+strconv.Itoa(i))
			}
			if name == "exchanger" {
				p.send(t, call("99", "hang", "[]"),
					`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":99}}`)
				p.expectLike(t, "-32800")
			}
			p.Close()
			<-p.done
			if n := w.left(); n != 0 || w.no != 51 {
				t.Errorf("%d are open, %d were refused", n, w.no)
			}
			seen.Range(func(k, _ any) bool {
				if s, _ := k.(string); strings.Contains(s, "deny") || strings.Contains(s, "unrequested") {
					t.Errorf("it has reached the server: %s", s)
				}
				return true
			})
		})
	}
}
