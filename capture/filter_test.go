package capture_test

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/capture"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	rec := &capture.Record{
		Type: "frame", Dir: "up", Kind: "request", ID: `"a"`, Method: "tools/call",
		Name: "git_log", Code: -32602,
		Duration: 600e6, Size: 20 << 10, Conn: 3,
	}
	rec.SetData([]byte(`{"id":"a","params":{"path":"/etc/x","n":7,"list":[{"s":"q\"t"}],"ok":true,` +
		`"none":null}}`))
	for text, want := range map[string]bool{
		``: true,
		`method:tools/* name:git* dur>500ms code:-32602 dir:up params.path=~"^/etc"`: true,
		`method:tools/list`:              false,
		`method=tools/call`:              true,
		`method!=tools/call`:             false,
		`id=a`:                           true,
		`dur<500ms`:                      false,
		`dur>=0.6s`:                      true,
		`n>10KB n<=20KB`:                 true,
		`code<0`:                         true,
		`code:-32*`:                      true,
		`conn:3`:                         true,
		`params.n>6.5`:                   true,
		`params.n<7`:                     false,
		`params.n=7`:                     true,
		`params.list.0.s="q\"t"`:         true,
		`params.list.1.s:*`:              false,
		`params.ok=true`:                 true,
		`has:params.none`:                true,
		`has:params.missing`:             false,
		`message.id=a`:                   true,
		`error`:                          true,
		`tool_error`:                     false,
		`redacted or cut`:                false,
		`etc`:                            true,
		`"/etc/x"`:                       true,
		`ETC`:                            true,
		`"Q\"T"`:                         false, // it is escaped in the frame
		`GIT_L`:                          true,
		`etc/y`:                          false,
		`-etc`:                           false,
		`-method:x size>10KB`:            true,
		`"error"`:                        false,
		`!etc`:                           false,
		`not (method:x or name:y)`:       true,
		`method:x or name:git* dir:down`: false,
		`(method:x or name:git*) dir:up`: true,
		`dir:up and name:git*`:           true,
		`method!~^tools`:                 false,
	} {
		f, err := capture.ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if f.Match(rec) != want || f.String() != text {
			t.Errorf("%s: not %v", text, want)
		}
	}
}

// TestFilterDuration: only an answer has a duration.
func TestFilterDuration(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"dur<1s", "dur>=0", "dur!=1"} {
		f, err := capture.ParseFilter(text)
		if err != nil || f.Match(&capture.Record{}) || !f.Match(&capture.Record{Duration: 5}) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`nosuch:1`:                     `column 1: unknown field "nosuch"`,
		`dir:up code:x`:                `column 13: the value is not valid: "x" is not a number`,
		`method:`:                      `column 8: a value is missing`,
		`method>a`:                     `column 1: > compares numbers`,
		`method=~"("`:                  `column 9: the value is not valid: error parsing regexp`,
		`"abc`:                         `column 1: unterminated quote`,
		`(dir:up`:                      `column 1: the parenthesis is not closed`,
		`dir:up)`:                      `column 7: unexpected ")"`,
		`or dir:up`:                    `column 1: a term is missing before or`,
		`dir:up or`:                    `column 10: a term is missing after or`,
		`!`:                            `column 1: a term is missing after the negation`,
		`:x`:                           `column 1: a field is missing before :`,
		strings.Repeat("(", 100) + "a": `nested at most 32 deep`,
		strings.Repeat("a ", 5000):     `a filter has at most 4096 bytes`,
	} {
		if _, err := capture.ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v, want %s", text, err, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	for _, text := range []string{
		`method:tools/* dur>500ms`, `not (a or "b")`, `params.0.x=~"^a"`,
		`!code:-1`,
	} {
		f.Add(text)
	}
	rec := &capture.Record{Type: "frame", Method: "m"}
	rec.SetData([]byte(`{"params":[{"x":"a"}]}`))
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := capture.ParseFilter(text)
		if err != nil {
			return
		}
		filter.Match(rec)
		if again, err := capture.ParseFilter(filter.String()); err != nil ||
			again.Match(rec) != filter.Match(rec) {
			t.Fatalf("%q: %v", text, err)
		}
	})
}
