package replace

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A file is replaced when it is what it was, and in any other case it and its folder stay as they
// are.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	no := errors.New("no")
	for _, test := range []struct {
		old, text string
		before    error
		good      bool
		want      string
	}{
		{"", "a", nil, true, "a"}, // there was none
		{"", "b", nil, false, "a"},
		{"x", "b", nil, false, "a"},
		{"a", "b", no, false, "a"},
		{"a", "b", nil, true, "b"},
	} {
		err := File(path, []byte(test.old), []byte(test.text), 0o600, func() error { return test.before })
		text, readErr := os.ReadFile(path)
		if (err == nil) != test.good || readErr != nil || string(text) != test.want {
			t.Errorf("%+v: %v; the file is %q, %v", test, err, text, readErr)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := File(path, []byte("b"), []byte("c"), 0o600, nil); err == nil {
		t.Error("a file that is gone was replaced")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}
