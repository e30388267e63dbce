package farcall_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func pair(t *testing.T, mux *farcall.Mux, o *farcall.Options) *farcall.Peer {
	t.Helper()
	mine, theirs := farcall.Pipe()
	server, client := farcall.NewPeer(theirs, mux, o), farcall.NewPeer(mine, nil, nil)
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
	})
	return client
}

// A hidden method is called as any other, and described nowhere.
func TestHide(t *testing.T) {
	mux := farcall.NewMux()
	math := mux.Group("math/")
	for _, name := range []string{"old", "new"} {
		farcall.Handle(math, name, func(context.Context, struct{}) (string, error) { return name, nil })
	}
	client := pair(t, mux, nil)
	for _, want := range []bool{true, false} {
		doc, err := farcall.Call[jsonrpc.Raw](t.Context(), client, "rpc.discover", nil)
		if got := bytes.Contains(doc, []byte("math/old")); got != want ||
			!bytes.Contains(doc, []byte("math/new")) || err != nil {
			t.Errorf("%s, %v", doc, err)
		}
		math.Hide("old")
	}
	if all := mux.Methods(); len(all) != 1 || all[0].Name != "math/new" {
		t.Errorf("%+v", all)
	}
	if got, err := farcall.Call[string](t.Context(), client, "math/old", nil); got != "old" ||
		err != nil {
		t.Errorf("%q, %v", got, err)
	}
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, `no method "math/none"`) {
			t.Error(text)
		}
	}()
	math.Hide("none")
}

func TestGroup(t *testing.T) {
	var trail []string
	mark := func(name string) farcall.Interceptor {
		return func(next farcall.Handler) farcall.Handler {
			return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
				trail = append(trail, name+" "+req.Method)
				defer func() { trail = append(trail, "end of "+name) }()
				return next.ServeRPC(ctx, req)
			})
		}
	}
	mux := farcall.NewMux()
	math := mux.Group("math/", mark("outer"), mark("inner"))
	farcall.Handle(math, "double", func(_ context.Context, n int) (int, error) {
		return 2 * n, nil
	}, "Double a number")
	farcall.HandleStream(math.Group("stream/", mark("deep")), "count",
		func(context.Context, struct{}) iter.Seq2[int, error] {
			return func(yield func(int, error) bool) {
				trail = append(trail, "values")
				_ = yield(1, nil) && yield(2, nil)
			}
		})
	farcall.Handle(mux, "alone", func(context.Context, struct{}) (int, error) { return 1, nil })
	client := pair(t, mux, &farcall.Options{Interceptors: []farcall.Interceptor{mark("all")}})

	if n, err := farcall.Call[int](t.Context(), client, "math/double", []int{4}); n != 8 ||
		err != nil {
		t.Error(n, err)
	}
	if want := []string{
		"all math/double", "outer math/double", "inner math/double", "end of inner",
		"end of outer", "end of all",
	}; !slices.Equal(trail, want) {
		t.Errorf("%q", trail)
	}
	trail = nil
	if list, err := farcall.Call[[]int](t.Context(), client, "math/stream/count",
		nil); !slices.Equal(list, []int{1, 2}) || err != nil {
		t.Error(list, err)
	}
	if at := slices.Index(trail, "values"); at < 0 || slices.Index(trail, "end of deep") < at {
		t.Errorf("the values do not come inside of the interceptors: %q", trail)
	}
	trail = nil
	if _, err := farcall.Call[int](t.Context(), client, "alone", nil); err != nil || len(trail) != 2 {
		t.Errorf("%v, %q", err, trail)
	}
	if m := mux.Methods(); len(m) != 3 || m[1].Name != "math/double" ||
		m[1].Summary != "Double a number" {
		t.Errorf("%+v", m)
	}
	for name, misuse := range map[string]func(){
		"taken": func() { mux.Handle("math/double", farcall.HandlerFunc(nil)) },
		"no name": func() {
			farcall.Handle(math, "", func(context.Context, struct{}) (int, error) { return 0, nil })
		},
		"nil":      func() { math.Handle("x", nil) },
		"reserved": func() { mux.Group("rpc.").Handle("x", farcall.HandlerFunc(nil)) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			misuse()
		}()
	}
	if _, err := math.ServeRPC(t.Context(), &farcall.Request{Method: "math/double"}); err == nil {
		t.Error("a group serves")
	}
}

// TestHandleNotification notifies, in order; a request, and wrong params, are errors.
func TestHandleNotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []int
		var log strings.Builder
		mux := farcall.NewMux()
		farcall.HandleNotification(mux, "moved", func(_ context.Context, p struct{ X int }) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, p.X)
			if p.X == 3 {
				return errors.New("the disk is full")
			}
			return nil
		}, "Something has moved")
		client := pair(t, mux, &farcall.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		for n := range 4 {
			if err := client.Notify(t.Context(), "moved", map[string]int{"X": n}); err != nil {
				t.Error(err)
			}
		}
		if err := client.Notify(t.Context(), "moved", map[string]int{"Y": 1}); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !slices.Equal(got, []int{0, 1, 2, 3}) || !strings.Contains(log.String(), "the disk is full") {
			t.Error(got, log.String())
		}
		wire := new(jsonrpc.Error)
		if err := client.Call(t.Context(), "moved", map[string]int{"X": 1},
			nil); !errors.As(err, &wire) || wire.Code != jsonrpc.MethodNotFound {
			t.Error(err)
		}
		raw, err := farcall.Call[jsonrpc.Raw](t.Context(), client, "rpc.discover", nil)
		if err != nil || strings.Contains(string(raw), `"result"`) ||
			!strings.Contains(string(raw), `"x-farcall-notification":true`) {
			t.Errorf("%s, %v", raw, err)
		}
		if m := mux.Methods()[0]; !m.Notification || m.Result != nil {
			t.Errorf("%+v", m)
		}
	})
}

type userKey struct{}

// TestConnContext gives each connection its own value, which handlers and notifications see, and
// which ends with the connection.
func TestConnContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var made int
		var contexts []context.Context
		mux := farcall.NewMux()
		farcall.Handle(mux, "login", func(ctx context.Context, name string) (struct{}, error) {
			*ctx.Value(userKey{}).(*string) = name
			return struct{}{}, nil
		})
		farcall.Handle(mux, "whoami", func(ctx context.Context, _ struct{}) (string, error) {
			return *ctx.Value(userKey{}).(*string), nil
		})
		o := &farcall.Options{ConnContext: func(ctx context.Context) context.Context {
			made++
			ctx = context.WithValue(ctx, userKey{}, new(string))
			contexts = append(contexts, ctx)
			return ctx
		}}
		ada, bob := pair(t, mux, o), pair(t, mux, o)
		for p, name := range map[*farcall.Peer]string{ada: "ada", bob: "bob"} {
			if err := p.Call(t.Context(), "login", []string{name}, nil); err != nil {
				t.Error(err)
			}
		}
		for p, name := range map[*farcall.Peer]string{ada: "ada", bob: "bob"} {
			if got, err := farcall.Call[string](t.Context(), p, "whoami", nil); got != name || err != nil {
				t.Error(got, err)
			}
		}
		if made != 2 || contexts[0].Err() != nil {
			t.Error(made, contexts[0].Err())
		}
		_ = ada.Close()
		synctest.Wait()
		if contexts[0].Err() == nil || contexts[1].Err() != nil {
			t.Error("the context does not end with its connection")
		}
	})
}
