package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"testing"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

const (
	writing = "fk_ada_an-example-of-a-key-that-farcall-key-new-makes"
	reading = "fk_bob_another-example-of-a-key-that-farcall-makes-it"
)

func key(id, secret, role string) guard.Key {
	hash := sha256.Sum256([]byte(secret))
	return guard.Key{ID: id, Hash: "sha256:" + hex.EncodeToString(hash[:]), Roles: []string{role}}
}

func TestAuth(t *testing.T) {
	h, err := newHandler(key("ada", writing, "writer"), key("bob", reading, "reader"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	dial := func(bearer, era string) (*mcp.Client, error) {
		return mcp.Dial(t.Context(), server.URL, &mcp.ClientOptions{Era: era, HTTP: &mcphttp.DialOptions{
			Header: http.Header{"Authorization": {"Bearer " + bearer}},
		}})
	}
	for _, era := range []string{"modern", "legacy"} {
		if _, err := dial("fk_eve_no-such-key", era); err == nil {
			t.Errorf("%s: a wrong key was accepted", era)
		}
		ada, err := dial(writing, era)
		if err != nil {
			t.Fatal(err)
		}
		defer ada.Close()
		bob, err := dial(reading, era)
		if err != nil {
			t.Fatal(err)
		}
		defer bob.Close()
		if said, err := mcp.CallTool[string](t.Context(), ada, "note",
			note{"Buy milk"}); said != "Written" || err != nil {
			t.Errorf("%s: %q, %v", era, said, err)
		}
		if notes, err := mcp.CallTool[[]string](t.Context(), bob, "notes", nil); err != nil ||
			!slices.Contains(notes, "ada: Buy milk") {
			t.Errorf("%s: %q, %v", era, notes, err)
		}
		var failure *mcp.ToolError
		if _, err := mcp.CallTool[string](t.Context(), bob, "note", note{"Sell milk"}); err == nil ||
			errors.As(err, &failure) {
			t.Errorf("%s: a reader wrote a note: %v", era, err)
		}
		tools, err := bob.Tools(t.Context())
		if err != nil || len(tools) != 1 || !slices.ContainsFunc(tools, func(x spec.Tool) bool {
			return x.Name == "notes"
		}) {
			t.Errorf("%s: a reader sees %v, %v", era, tools, err)
		}
	}
}

func TestWrongHash(t *testing.T) {
	if err := run(t.Context(), []string{"not a hash"}); err == nil {
		t.Error("an invalid hash was accepted")
	}
}
