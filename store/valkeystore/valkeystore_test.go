package valkeystore

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/store"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// The contract is tested by interop.TestValkey, against a server.
func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		url, name, want string
	}{
		"no URL":   {"x", "", "invalid URL scheme"},
		"bad name": {"redis://127.0.0.1:1", "a:b", "letters, digits"},
	} {
		_, err := Open(t.Context(), test.url, &Options{Name: test.name})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(t.Context(), "redis://127.0.0.1:1", nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
}

// What is no record, birth or line of INFO is an error, and no panic.
func TestForeignAnswers(t *testing.T) {
	for _, found := range [][]any{{"x", "y"}, {"1", nil}, {"1", "short"}, {int64(1), "x"}} {
		if r, err := decode(found); err == nil || r != nil {
			t.Errorf("%v: %v, %v", found, r, err)
		}
	}
	for _, none := range [][]any{nil, {nil, nil}, {"1"}} {
		if r, err := decode(none); err != nil || r != nil {
			t.Errorf("%v: %v, %v", none, r, err)
		}
	}
	for _, birth := range []string{"", "a", "a:b:", "a:b:c"} {
		if at, err := milliseconds(birth); err == nil {
			t.Errorf("%q: %v", birth, at)
		}
	}
	if at, err := milliseconds("run:random:1500"); err != nil || at.UnixMilli() != 1500 {
		t.Errorf("%v, %v", at, err)
	}
	if got := field("# Server\r\nrun_id:abc\r\nx", "run_id") + field("x:1", "y"); got != "abc" {
		t.Errorf("%q", got)
	}
}

// A program that does not import this package links no client of Redis.
func TestImports(t *testing.T) {
	t.Parallel()
	const module = "github.com/farcall-dev/farcall"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", module, module+"/store",
		module+"/mcp", module+"/guard", module+"/gateway", module+"/store/natsstore").Output()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(out), "redis") || !strings.Contains(string(out), module+"/store\n") {
		t.Error("a library imports a client of Redis, or the list is not read")
	}
}
