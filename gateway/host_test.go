package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
)

// TestReloadHosts: a name that a new configuration has is accepted at once, and one that it lacks
// is not.
func TestReloadHosts(t *testing.T) {
	of := func(hosts ...string) *gateway.Config {
		c := config(&gateway.Upstream{Name: "a", URL: "http://127.0.0.1:1/mcp"})
		c.Hosts = hosts
		return c
	}
	g, err := gateway.New(of("old.example"), &gateway.Options{Hosts: []string{"always.example"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Shutdown(context.Background()) })
	want := func(statuses map[string]int) {
		t.Helper()
		for host, status := range statuses {
			r := httptest.NewRequest(http.MethodGet, "/api/status", nil)
			r.Host = host
			w := httptest.NewRecorder()
			if g.ServeHTTP(w, r); w.Code != status {
				t.Errorf("%s: %d %s, want %d", host, w.Code, w.Body, status)
			}
		}
	}
	want(map[string]int{"always.example": 200, "old.example": 200, "new.example": 403})
	if err := g.Reload(of("new.example")); err != nil {
		t.Fatal(err)
	}
	want(map[string]int{"always.example": 200, "old.example": 403, "new.example": 200})
}
