package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The headers in a file go to the server that the file has there, and no other gets them.
func TestNamedHeaders(t *testing.T) {
	var got []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("X-Tenant"))
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":true}`)
	}))
	defer server.Close()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	config, err := os.UserConfigDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(config, "farcall"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "upstreams:\n  api:\n    url: " + server.URL + "/rpc\n    headers: {X-Tenant: a}\n"
	if err := os.WriteFile(filepath.Join(config, "farcall", "targets.yaml"), []byte(text),
		0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"call", "api", "m"},
		{"call", "api", "m", "-H", "X-Tenant: b"},
		{"call", server.URL + "/rpc", "m"},
	} {
		if code := run(t.Context(), args, strings.NewReader(""), io.Discard, t.Output()); code != exitOK {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
	if strings.Join(got, ",") != "a,b," {
		t.Errorf("the server got the tenants %q", got)
	}
}
