package mcptest_test

import (
	"os"
	"testing"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/internal/mcptest"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// failures is a test that counts instead of failing.
type failures struct {
	testing.TB
	n int
}

func (f *failures) Helper()               {}
func (f *failures) Errorf(string, ...any) { f.n++ }

func TestValidator(t *testing.T) {
	for _, test := range []struct {
		revision, def, raw string
		plain, strict      int // failures
	}{
		{"2024-11-05", "TextContent", `{"type":"text","text":"x"}`, 0, 0},
		{"2024-11-05", "TextContent", `{"type":"text","text":"x","odd":1}`, 0, 1},
		{"2024-11-05", "TextContent", `{"type":"text"}`, 1, 1},
		{"2025-03-26", "AudioContent", `{"type":"audio","data":"","mimeType":"audio/wav"}`, 0, 0},
		{"2025-06-18", "ResourceLink", `{"type":"resource_link","uri":"a b","name":"x"}`, 1, 1},
		{"2025-11-25", "Task", `{}`, 1, 1},
		{
			"2026-07-28", "CallToolResult",
			`{"resultType":"complete","content":[{"type":"text","text":"x"}]}`, 0, 0,
		},
		{"2026-07-28", "CallToolResult", `{"content":[]}`, 1, 1},
		{
			"2026-07-28", "CallToolResult",
			`{"resultType":"complete","content":[],"_meta":{"example.com/a":1}}`, 0, 0,
		},
		{"2026-07-28", "CallToolResult", `{"resultType":"complete"`, 1, 1},
	} {
		plain, strict := &failures{TB: t}, &failures{TB: t}
		mcptest.Validator(t, test.revision)(plain, test.def, []byte(test.raw))
		mcptest.Strict(t, test.revision)(strict, test.def, []byte(test.raw))
		if plain.n != test.plain || strict.n != test.strict {
			t.Errorf("%s %s %s: %d and %d failures, want %d and %d",
				test.revision, test.def, test.raw, plain.n, strict.n, test.plain, test.strict)
		}
	}
}

func TestSkipsWithoutSchemas(t *testing.T) {
	t.Setenv("FARCALL_SPEC_DIR", "")
	skipped := false
	t.Run("validator", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		mcptest.Validator(t, "2026-07-28")
	})
	if !skipped {
		t.Error("not skipped")
	}
}
