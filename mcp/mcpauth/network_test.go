package mcpauth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/fetch"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// overSockets puts an MCP server and an authorization server on ports of this machine.
func overSockets(t *testing.T) (address string, s *mcpServer, as *authServer) {
	t.Helper()
	w := newWorld(t)
	as = w.newAS(asHost)
	s = w.newServer(as)
	one, two := httptest.NewServer(s), httptest.NewServer(as)
	t.Cleanup(one.Close)
	t.Cleanup(two.Close)
	for name, v := range as.metadata {
		if text, ok := v.(string); ok {
			as.metadata[name] = strings.Replace(text, asURL, two.URL, 1)
		}
	}
	as.issuer, as.iss, as.w.now = two.URL, two.URL, as.w.now.AddDate(1, 0, 0)
	s.prm = map[string]map[string]any{
		pathPRM: {"resource": one.URL + "/mcp", "authorization_servers": []string{two.URL}},
	}
	return one.URL + "/mcp", s, as
}

// With the real transport, real connections and the default way to fetch.
func TestOverTheNetwork(t *testing.T) {
	address, s, as := overSockets(t)
	s.challenge = `Bearer scope="read"`
	s.judge = func(g *given) (int, string) {
		if !strings.Contains(g.scope, "write") {
			return http.StatusForbidden, `Bearer error="insufficient_scope", scope="write"`
		}
		return http.StatusOK, ""
	}
	auth, err := New(address, &Options{Visit: as.user(nil)})
	if err != nil {
		t.Fatal(err)
	}
	auth.now = as.w.clock
	x, err := mcphttp.Dial(address, &mcphttp.DialOptions{Authorize: auth})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	err = x.Exchange(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/x"}`),
		func([]byte) error {
			return nil
		})
	if err != nil || len(as.requests) != 2 || as.requests[1].Get("resource") != address ||
		as.requests[1].Get("scope") != "read offline_access write" {
		t.Errorf("%v; the user was asked for %v", err, as.requests)
	}
	if err := auth.Logout(t.Context()); err != nil || len(as.revoked) != 2 {
		t.Errorf("%v; revoked %q", err, as.revoked)
	}
}

// A server that says where it is by a name is public until it resolves to something else, and the
// names it leads to are checked when they are dialled.
func TestSSRFIsBlockedWhenDialled(t *testing.T) {
	_, _, as := overSockets(t)
	c, err := New(serverURL, &Options{Visit: as.user(nil)})
	if err != nil {
		t.Fatal(err)
	}
	form := url.Values{"grant_type": {"x"}}
	if _, err := c.post(t.Context(), c.url, as.issuer+"/token", nil,
		form); !errors.Is(err, fetch.ErrAddress) || len(as.forms) > 0 {
		t.Errorf("%v, %d token requests", err, len(as.forms))
	}
	if _, err := c.post(t.Context(), nil, as.issuer+"/token", nil, form); err != nil ||
		len(as.forms) != 1 {
		t.Errorf("what the operator has named: %v", err)
	}
}
