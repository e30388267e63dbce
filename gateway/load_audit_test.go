package gateway_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway"
)

// An audit in a file that is something else is refused, with the line that says so, and the file
// stays as it is.
func TestAuditIsNoOtherFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"audit.key":    strings.Repeat("k", 32),
		"policy.cedar": "permit(principal, action, resource);", "key.1": "x",
		"own.key": strings.Repeat("k", 32),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("audit.key", filepath.Join(dir, "link")); err != nil {
		t.Skip(err)
	}
	const other = " is another file of the configuration, or would be taken for one before the " +
		"audit; write the audit to its own file"
	for _, c := range []struct{ guard, where string }{
		{"audit: farcall.yaml", "3:10: guard.audit.file: " + filepath.Join(dir, "farcall.yaml")},
		{
			"audit: {file: ./x/../farcall.yaml}",
			"3:17: guard.audit.file: " + filepath.Join(dir, "farcall.yaml"),
		},
		{
			"audit: {file: audit.key, key: 'file:audit.key'}",
			"3:17: guard.audit.file: " + filepath.Join(dir, "audit.key"),
		},
		{
			"audit: {file: link, key: 'file:audit.key'}",
			"3:17: guard.audit.file: " + filepath.Join(dir, "audit.key"),
		},
		{
			"audit: {file: key, key: 'file:key.1'}",
			"3:17: guard.audit.file: " + filepath.Join(dir, "key.1"),
		},
		{
			"audit: policy.cedar\n  cedar_files: policy.cedar",
			"3:10: guard.audit.file: " + filepath.Join(dir, "policy.cedar"),
		},
		{
			"audit: locks.jsonl\n  locks_file: locks.jsonl",
			"3:10: guard.audit.file: " + filepath.Join(dir, "locks.jsonl"),
		},
		{"audit: {file: audit.jsonl, key: 'file:own.key'}", ""},
		{"audit: '-'", ""},
	} {
		text := "listen: 127.0.0.1:0\nguard:\n  " + c.guard +
			"\n  anonymous: true\nupstreams:\n  a: http://127.0.0.1:1/mcp\n"
		file := filepath.Join(dir, "farcall.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := gateway.Load(file)
		switch {
		case c.where == "" && err != nil:
			t.Errorf("%s: %v", c.guard, err)
		case c.where != "" && (err == nil || !strings.Contains(err.Error(), c.where+other)):
			t.Errorf("%s: %v, wanted %s", c.guard, err, c.where)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != text {
			t.Errorf("%s: the file is changed: %v", c.guard, err)
		}
	}
}
