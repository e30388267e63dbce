package guard_test

import (
	"net/http"
	"testing"

	"github.com/farcall-dev/farcall/guard"
)

// TestHostNames: a web page that had its name rebound to this server is a caller without
// credentials, so names matter where those are let in.
func TestHostNames(t *testing.T) {
	keys := []guard.Key{keyOf("ci", goodKey)}
	config := func(anonymous bool, url string) *guard.Config {
		c := &guard.Config{Anonymous: anonymous, Keys: keys}
		c.Resource.URL = url
		return c
	}
	const url = "https://tools.example.com:8443/mcp"
	for _, c := range []struct {
		name    string
		config  *guard.Config
		host    string
		headers []string
		status  int
	}{
		{"no credentials, rebound name", config(true, ""), "evil.example", nil, http.StatusForbidden},
		{"no credentials, address", config(true, ""), "192.0.2.1:80", nil, http.StatusOK},
		{"no credentials, name in Options.Hosts", config(true, ""), "rpc.example", nil, http.StatusOK},
		{
			"no credentials, host of the resource", config(true, url), "tools.example.com", nil,
			http.StatusOK,
		},
		{
			"no credentials, host and port of the resource", config(true, url), "Tools.Example.com:8443",
			nil, http.StatusOK,
		},
		{
			"no credentials, another host than the resource's", config(true, url), "evil.example", nil,
			http.StatusForbidden,
		},
		{
			"a key, rebound name, where others need none", config(true, url), "evil.example",
			[]string{bearer(goodKey)},
			http.StatusForbidden,
		},
		{
			"a key, any name", config(false, ""), "api.example.com",
			[]string{bearer(goodKey)},
			http.StatusOK,
		},
		{
			"no credentials where they are needed", config(false, ""), "evil.example", nil,
			http.StatusUnauthorized,
		},
	} {
		s := newSite(t, c.config, nil)
		if a := s.call("who", "", append(c.headers, "Host: "+c.host)...); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, a.status, a.body, c.status)
		}
	}
}

// TestHostOfPreflight: a browser asks without credentials, and knows names as its user does.
func TestHostOfPreflight(t *testing.T) {
	for anonymous, want := range map[bool]int{
		false: http.StatusNoContent,
		true:  http.StatusForbidden,
	} {
		s := newSite(t, &guard.Config{Anonymous: anonymous, Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
		r := s.request("who", "", "Host: api.example.com", "Origin: http://api.example.com",
			"Access-Control-Request-Method: POST")
		r.Method = http.MethodOptions
		if a := s.do(r); a.status != want {
			t.Errorf("anonymous %v: %d %s, want %d", anonymous, a.status, a.body, want)
		}
	}
}
