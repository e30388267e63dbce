package mcp

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestOnceInEveryEra(t *testing.T) {
	var runs, handlers atomic.Int64
	s := askServer(t, func(ctx context.Context) (string, error) {
		handlers.Add(1)
		id, err := Once(ctx, "order", func() (int64, error) { return runs.Add(1), nil })
		if err != nil {
			return "", err
		}
		if _, err := Roots(ctx); err != nil {
			return "", err
		}
		again, err := Once(ctx, "order", func() (int64, error) { return runs.Add(1), nil })
		if _, err := Elicit[askForm](ctx, "Who?"); err != nil {
			return "", err
		}
		return fmt.Sprint(id, again), err
	}, nil)
	r, n := sendRounds(t, s, "tools/call", `{"name":"ask"}`, humanAnswers)
	if r.text() != "1 1" || n != 3 || runs.Load() != 1 || handlers.Load() != 3 {
		t.Errorf("modern: %s, %d rounds, %d runs, handler %d", r.raw, n, runs.Load(), handlers.Load())
	}
	runs.Store(0)
	p := dialLegacy(t, s, rev2511, canAll, answeringPeer(humanAnswers))
	if r := sendLegacy(t, p, "tools/call", `{"name":"ask"}`); r.text() != "1 1" || runs.Load() != 1 {
		t.Errorf("legacy: %q, %d runs", r.text(), runs.Load())
	}
}

func TestOnceIsSealed(t *testing.T) {
	s := askServer(t, func(ctx context.Context) (string, error) {
		v, err := Once(ctx, "secret", func() (string, error) { return "hidden", nil })
		_, err2 := Roots(ctx)
		return v, errors.Join(err, err2)
	}, nil)
	r := sendModern(t, s, canAll, "tools/call", `{"name":"ask"}`)
	if r.Result.RequestState == "" ||
		strings.Contains(string(mustDecode(t, r.Result.RequestState)), "hidden") {
		t.Errorf("%s", r.raw)
	}
}

func TestOnceConcurrently(t *testing.T) {
	var runs atomic.Int64
	a := &asks{}
	c := (&call{asks: a, mayAsk: true}).derive(t.Context())
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if v, err := Once(c, "k", func() (int64, error) {
				return runs.Add(1), nil
			}); v != 1 || err != nil {
				t.Errorf("%d, %v", v, err)
			}
		})
	}
	wait.Wait()
}

func TestOnceFailures(t *testing.T) {
	c := (&call{mayAsk: true}).derive(t.Context())
	failed := errors.New("failed")
	if _, err := Once(c, "k", func() (int, error) { return 0, failed }); !errors.Is(err, failed) {
		t.Errorf("an error: %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = Once(c, "k", func() (int, error) { panic("boom") })
		t.Error("the panic is lost")
	}()
	if v, err := Once(c, "k", func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("after both: %d, %v", v, err)
	}
	if _, err := Once(c, "k", func() (string, error) { return "", nil }); err == nil ||
		!strings.Contains(err.Error(), "no string again") {
		t.Errorf("another type: %v", err)
	}
	if _, err := Once(c, "c", func() (chan int, error) { return make(chan int), nil }); err == nil {
		t.Error("a channel went through JSON")
	}
	big := strings.Repeat("x", maxState)
	if _, err := Once(c, "big", func() (string, error) { return big, nil }); err == nil ||
		!strings.Contains(err.Error(), "65536 bytes") {
		t.Errorf("too big: %v", err)
	}
	ctx, cancel := context.WithCancel(c)
	waiting := make(chan error, 1)
	_, _ = Once(ctx, "slow", func() (int, error) {
		go func() {
			_, err := Once(ctx, "slow", func() (int, error) { return 0, nil })
			waiting <- err
		}()
		cancel()
		return 1, jsonrpc.Errorf(1, "x %v", <-waiting)
	})
	if v, err := Once(t.Context(), "k", func() (int, error) { return 3, nil }); v != 3 || err != nil {
		t.Errorf("outside of a handler: %d, %v", v, err)
	}
}
