package mcp

import (
	"context"
	"fmt"
	"reflect"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Once returns what f returns and does not run it again when the handler does,
// after it has asked the client: see [Elicit]. So what costs or changes
// something is done once for each call, as long as the client goes on with it.
// The key tells one Once of a handler from another.
//
// The T goes through JSON, also the first time. It is kept by the client, sealed
// so that the client can neither read nor change it; all the answers and Ts of a
// call may take up 64 KiB. An error of f is not kept.
func Once[T any](ctx context.Context, key string, f func() (T, error)) (T, error) {
	var v T
	c := callFrom(ctx)
	if c == nil || !c.mayAsk { // its handler runs once anyway
		return f()
	}
	a, err := c.rounds()
	if err != nil {
		return v, err
	}
	raw, err := a.once(ctx, key, func() (jsonrpc.Raw, error) {
		v, err := f()
		if err != nil {
			return nil, err
		}
		raw, err := jsonv2.Append(nil, v)
		if err != nil {
			return nil, fmt.Errorf("mcp: Once %q: %w", key, err)
		}
		return raw, nil
	})
	if err != nil {
		return v, err
	}
	if err := jsonv2.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("mcp: Once %q: its JSON is no %s again: %w", key, reflect.TypeFor[T](), err)
	}
	return v, nil
}

// memos are the results of Once. asks guards them.
type memos struct {
	done    map[string]jsonrpc.Raw
	running map[string]chan struct{} // closed when it runs no more
}

func (a *asks) once(ctx context.Context, key string, f func() (jsonrpc.Raw, error)) (jsonrpc.Raw, error) {
	for {
		raw, wait := a.begin(key)
		if raw != nil {
			return raw, nil
		}
		if wait == nil {
			return a.run(key, f)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin returns the result, or what to wait for while another one is at it, or
// neither: then it is the caller's.
func (a *asks) begin(key string) (raw jsonrpc.Raw, wait <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if raw, ok := a.memos.done[key]; ok {
		return raw, nil
	}
	if ch, ok := a.memos.running[key]; ok {
		return nil, ch
	}
	if a.memos.running == nil {
		a.memos.running = map[string]chan struct{}{}
	}
	a.memos.running[key] = make(chan struct{})
	return nil, nil
}

func (a *asks) run(key string, f func() (jsonrpc.Raw, error)) (raw jsonrpc.Raw, err error) {
	defer func() { // also when f panics
		a.mu.Lock()
		defer a.mu.Unlock()
		close(a.memos.running[key])
		delete(a.memos.running, key)
		if raw != nil && err == nil {
			if err = a.grow(key, raw); err == nil {
				setEntry(&a.memos.done, key, raw)
			}
		}
	}()
	return f()
}
