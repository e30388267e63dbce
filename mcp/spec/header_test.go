package spec_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestHeaderValue(t *testing.T) {
	for _, test := range []struct{ value, header string }{
		// The examples of the specification.
		{"us-west1", "us-west1"},
		{"Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="},
		{" padded ", "=?base64?IHBhZGRlZCA=?="},
		{"line1\nline2", "=?base64?bGluZTEKbGluZTI=?="},
		{"=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="},
		// Others.
		{"", ""},
		{"a\tb c", "a\tb c"},
		{"\x7f", "=?base64?fw==?="},
		{"=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="},
		{"=?base64?SGVsbG8=", "=?base64?SGVsbG8="},
	} {
		if got := spec.EncodeHeader(test.value); got != test.header {
			t.Errorf("encode %q: %q, want %q", test.value, got, test.header)
		}
		if got, ok := spec.DecodeHeader(test.header); !ok || got != test.value {
			t.Errorf("decode %q: %q %v, want %q", test.header, got, ok, test.value)
		}
	}
	for _, bad := range []string{
		"=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVsbG9=?=",
		"=?base64?/w==?=", "a\x00", "\xff", "é", "=?base64?SGVs\nbG8=?=",
	} {
		if got, ok := spec.DecodeHeader(bad); ok {
			t.Errorf("decode %q: %q", bad, got)
		}
	}
	if got, ok := spec.DecodeHeader("=?BASE64?SGVsbG8=?="); !ok || got != "=?BASE64?SGVsbG8=?=" {
		t.Errorf("the marker is case-sensitive: %q %v", got, ok)
	}
}

func FuzzHeaderValue(f *testing.F) {
	f.Add("a")
	f.Add("=?base64?SGVsbG8=?=")
	f.Add(" ż\x00")
	f.Fuzz(func(t *testing.T, s string) {
		if decoded, ok := spec.DecodeHeader(s); ok && strings.HasPrefix(s, "=?base64?") && decoded != s &&
			spec.EncodeHeader(decoded) != s && !spec.HeaderText(decoded) {
			t.Errorf("%q decodes to %q, which encodes to %q", s, decoded, spec.EncodeHeader(decoded))
		}
		if !utf8.ValidString(s) {
			return
		}
		header := spec.EncodeHeader(s)
		if got, ok := spec.DecodeHeader(header); !ok || got != s || !spec.HeaderText(header) ||
			strings.TrimSpace(header) != header {
			t.Errorf("%q is written %q and read %q %v", s, header, got, ok)
		}
	})
}
