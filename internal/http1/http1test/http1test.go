// Package http1test answers one question: does a handler do the same behind
// internal/http1?
package http1test

import (
	"net/http"
	"net/http/httptest"

	"github.com/farcall-dev/farcall/internal/http1"
)

// NewServer is httptest.NewServer with a reader of package http1 in front, for every
// path. With FARCALL_HTTP=std in the environment there is none.
func NewServer(h http.Handler) *httptest.Server {
	s := httptest.NewUnstartedServer(h)
	if !http1.Std() {
		fast := http1.New(s.Config, func(string) bool { return true })
		s.Listener = http1.NewFront(s.Listener, fast)
	}
	s.Start()
	return s
}
