package mcpauth

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zalando/go-keyring"
)

// The keyring itself is the mock of its package: these are tests of what is ours.
func TestKeyring(t *testing.T) {
	keyring.MockInit()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	ctx := t.Context()
	s := NewKeyring("test").(*keyringStore)
	if got, err := s.Load(ctx, "a"); got != nil || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	long := strings.Repeat("0123456789", keyringPart/4) // three parts
	for _, value := range []string{long, "short", long + "1", ""} {
		if err := s.Save(ctx, "a", []byte(value)); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Load(ctx, "a"); string(got) != value || err != nil {
			t.Errorf("%d bytes: %d, %v", len(value), len(got), err)
		}
	}
	if _, err := keyring.Get("test", "a#2"); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("a part is left: %v", err)
	}
	if err := s.Save(ctx, "b", []byte(long)); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"b", "b#2", "b#3"} {
		if _, err := keyring.Get("test", key); !errors.Is(err, keyring.ErrNotFound) {
			t.Errorf("%s is left: %v", key, err)
		}
	}
	if err := s.Delete(ctx, "never"); err != nil {
		t.Error(err)
	}
	if err := s.Save(ctx, "c", make([]byte, keyringPart*maxKeyringParts+1)); err == nil {
		t.Error("a value may be of any size")
	}
}

func TestKeyringDamaged(t *testing.T) {
	keyring.MockInit()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	s := NewKeyring("test").(*keyringStore)
	if err := s.Save(t.Context(), "a", []byte(strings.Repeat("s3cret", keyringPart/4))); err != nil {
		t.Fatal(err)
	}
	first, err := keyring.Get("test", "a")
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(){
		"another part": func() { keyring.Set("test", "a#2", "s3cret") },
		"no part":      func() { keyring.Delete("test", "a#2") },
		"no number":    func() { keyring.Set("test", "a", "s3cret") },
		"many parts":   func() { keyring.Set("test", "a", "100000000"+first) },
		"none":         func() { keyring.Set("test", "a", "0 "+first) },
	} {
		damage()
		if _, err := s.Load(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "damaged") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := s.Save(t.Context(), "a", []byte("new")); err != nil {
		t.Errorf("it cannot be replaced: %v", err)
	}
}

// Tokens are never written to a file because there is no keyring.
func TestNoKeyring(t *testing.T) {
	keyring.MockInitWithError(errors.New("no bus"))
	t.Cleanup(keyring.MockInit)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("HOME", dir)
	s := NewKeyring("test")
	_, err := s.Load(t.Context(), "a")
	for _, err := range []error{
		err, s.Save(t.Context(), "a", []byte("s3cret")),
		s.Delete(t.Context(), "a"),
	} {
		if err == nil || !strings.Contains(err.Error(), "keep tokens in a file: no bus") {
			t.Errorf("%v", err)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*", "*.json")); len(files) > 0 {
		t.Errorf("%q", files)
	}
}
