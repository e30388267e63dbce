//go:build !race

package mcp

import (
	"testing"

	"github.com/farcall-dev/farcall"
)

// Interceptors cost one allocation a call.
func TestInterceptorAllocations(t *testing.T) {
	pass := func(next farcall.Handler) farcall.Handler { return next }
	before := testing.AllocsPerRun(100, callInProcess(t))
	with := sumServerWith(
		&ServerOptions{RPC: &farcall.Options{Interceptors: []farcall.Interceptor{pass}}})
	if after := testing.AllocsPerRun(100, sumCall(t, with)); after > before+1 {
		t.Errorf("%v allocations with an interceptor, %v without", after, before)
	}
}

// Middleware costs no allocation: the call has room for what it sees.
func TestMiddlewareAllocations(t *testing.T) {
	without := testing.AllocsPerRun(100, callInProcess(t))
	s := sumServer()
	s.Use(before(func(*Request) {}), before(func(*Request) {}))
	if with := testing.AllocsPerRun(100, sumCall(t, s)); with > without {
		t.Errorf("%v allocations with middleware, %v without", with, without)
	}
}
