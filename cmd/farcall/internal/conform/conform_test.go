package conform

import (
	"context"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/race"
)

func TestRightServerPasses(t *testing.T) {
	s := &server{}
	for name, dialer := range map[string]func(*testing.T) Dialer{
		Lines: s.lines, Headers: s.headers,
		WebSocket: s.websocket, HTTP: s.http,
	} {
		synctest.Test(t, func(t *testing.T) {
			rep, err := Run(t.Context(), dialer(t), &Options{S1: true})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rep.Cases {
				if r.Verdict == Fail || r.Verdict == Skip && !strings.HasPrefix(r.Name, "framing/") &&
					!strings.HasSuffix(r.Name, "utf-8") {
					t.Errorf("%s %s: %s\nsent %q\nexpected %s\nreceived %q", r.Verdict, r.Name, r.Finding, r.Sent,
						r.Expected, r.Received)
				}
			}
			if rep.Transport != name || rep.Passed+rep.Failed+rep.Skipped != len(Cases()) {
				t.Errorf("report of %s: %d passed, %d failed, %d skipped of %d", rep.Transport, rep.Passed,
					rep.Failed, rep.Skipped, len(Cases()))
			}
		})
	}
}

// Each way in which the server can be wrong must be found by the case that is
// about it, and mostly by no other.
func TestBrokenServerIsFound(t *testing.T) {
	race.Skip(t, "it does dozens of times what TestRightServerPasses does")
	const all = ""
	for broken, found := range map[string]struct {
		by   string // this case finds it
		only string // and all that find it begin so
	}{
		"accepts-bom":                     {"json/byte-order-mark", "json/byte-order-mark"},
		"accepts-trailing-data":           {"json/trailing-data", "json/"},
		"accepts-invalid-utf-8":           {"json/invalid-utf-8", "json/"},
		"accepts-bad-escape":              {"json/bad-escape", "json/bad-escape"},
		"accepts-control":                 {"json/control-character", "json/control-character"},
		"accepts-depth":                   {"json/depth", "json/depth"},
		"parse-error-silent":              {"s1/05-invalid-json", all},
		"parse-error-closes":              {"json/truncated", all},
		"parse-error-hangs-up":            {"json/truncated", all},
		"parse-error-32600":               {"json/truncated", all},
		"parse-error-without-id":          {"json/truncated", all},
		"parse-error-id-0":                {"json/truncated", all},
		"batch-refused":                   {"batch/mixed", all},
		"batch-empty-array":               {"batch/empty", all},
		"batch-empty-silent":              {"s1/08-batch-empty", all},
		"batch-answers-notifications":     {"batch/notifications", all},
		"batch-notifications-empty-array": {"s1/12-batch-notifications", all},
		"batch-drops-invalid":             {"batch/invalid-3", all},
		"batch-apart":                     {"batch/mixed", all},
		"batch-one-unwrapped":             {"batch/one", all},
		"batch-truncated-100":             {"batch/100", "batch/100"},
		"batch-trailing-comma":            {"batch/one", all},
		"scalars-parse-error":             {"envelope/scalar-number", all},
		"echoes-any-id":                   {"id/true", all},
		"answers-responses":               {"response/result", "response/"},
		"accepts-method-and-result":       {"envelope/method-and-result", "envelope/method-and-"},
		"invalid-has-null-id":             {"envelope/no-method", all},
		"accepts-duplicate-ids":           {"batch/duplicate-ids", "batch/duplicate-ids"},
		"null-id-is-notification":         {"id/null", all},
		"answers-notifications":           {"notify/unknown-method", all},
		"ignores-escaped-names":           {"basic/escaped-members", all},
		"folds-case":                      {"envelope/case-sensitive", all},
		"accepts-duplicates":              {"duplicate/escaped", "duplicate/"},
		"refuses-unknown-members":         {"envelope/unknown-member", "envelope/"},
		"accepts-any-version":             {"version/1.0", all},
		"accepts-any-id":                  {"id/object", all},
		"bad-method-not-found":            {"s1/06-invalid-request", all},
		"refuses-params-null":             {"envelope/params-null", "envelope/params-null"},
		"accepts-scalar-params":           {"envelope/params-string", "envelope/params-"},
		"scalar-params-32602":             {"envelope/params-string", "envelope/params-"},
		"ids-as-float":                    {"id/2^53+1", all},
		"ids-as-int":                      {"id/fraction", all},
		"ids-decoded":                     {"id/escape", all},
		"ids-as-string":                   {"id/integer", all},
		"ids-kept-for-ever":               {"id/reuse", all},
		"ids-dropped":                     {"basic/answered", "basic/answered"},
		"echo-reencodes":                  {"echo/bytes", "echo/"},
		"wrong-result":                    {"s1/01-by-position", "s1/"},
		"unknown-method-32600":            {"basic/unknown-method", all},
		"unknown-method-null":             {"basic/unknown-method", all},
		"unknown-method-silent":           {"basic/unknown-method", all},
		"answers-1.0":                     {"basic/unknown-method", all},
		"answers-both":                    {"basic/unknown-method", all},
		"error-is-text":                   {"basic/unknown-method", all},
		"error-code-is-text":              {"basic/unknown-method", all},
		"answers-twice":                   {"basic/unknown-method", all},
		"other-message":                   {"s1/04-no-such-method", "s1/"},
		"empty-lines-parse-error":         {"framing/empty-lines", "framing/empty-lines"},
		"one-message-per-read":            {"framing/joined", all},
		"headers-case-sensitive":          {"framing/headers", "framing/headers"},
		"headers-unknown-refused":         {"framing/headers", "framing/headers"},
		"http-text-plain":                 {"basic/unknown-method", all},
		"http-html-error":                 {"id/object", all},
		"http-notification-500":           {"notify/unknown-method", all},
	} {
		t.Run(broken, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { mustFind(t, broken, found.by, found.only) })
		})
	}
}

func mustFind(t *testing.T, broken, by, only string) {
	t.Helper()
	s := &server{broken: broken}
	dialer := s.lines
	switch kind, _, _ := strings.Cut(broken, "-"); kind {
	case "headers":
		dialer = s.headers
	case "http":
		dialer = s.http
	}
	rep, err := Run(t.Context(), dialer(t), &Options{S1: true, Echo: "echo"})
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, r := range rep.Cases {
		if r.Verdict != Fail {
			continue
		}
		found = append(found, r.Name)
		if r.Finding == "" || r.Expected == "" || len(r.Sent) == 0 {
			t.Errorf("%s has no evidence: %+v", r.Name, r)
		}
		if !strings.HasPrefix(r.Name, only) {
			t.Errorf("found by %s as well: %s; received %q", r.Name, r.Finding, r.Received)
		}
	}
	if !slices.Contains(found, by) {
		t.Errorf("not found by %s, but by %q", by, found)
	}
}

func TestEventStreamAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, err := Run(t.Context(), (&server{broken: "http-event-stream"}).http(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		if rep.Failed != 0 {
			t.Errorf("%+v", rep)
		}
	})
}

func TestSkipsSayWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, err := Run(t.Context(), (&server{}).lines(t),
			&Options{Echo: "nosuch", Only: regexp.MustCompile("^echo/|^framing/")})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Failed != 0 || rep.Skipped == 0 {
			t.Errorf("%+v", rep)
		}
		for _, r := range rep.Cases {
			if r.Verdict == Skip && r.Finding == "" {
				t.Errorf("%s is skipped without a reason", r.Name)
			}
		}
	})
}

func TestMustOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rep, err := Run(t.Context(), (&server{broken: "accepts-duplicates"}).lines(t),
			&Options{MustOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Failed != 0 {
			t.Errorf("what is only recommended was reported: %+v", rep.Cases)
		}
	})
}

func TestCannotConnect(t *testing.T) {
	d := NewLines(func(context.Context) (io.ReadWriteCloser, error) { return nil, net.ErrClosed })
	if _, err := Run(t.Context(), d, nil); !errors.Is(err, ErrConnect) ||
		!errors.Is(err, net.ErrClosed) {
		t.Errorf("err = %v", err)
	}
}

// A server that takes everything and says nothing costs one timeout, not one
// for each case.
func TestMuteServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		dial := s.listen(t, func(c net.Conn) { io.Copy(io.Discard, c) })
		rep, err := Run(t.Context(), NewLines(dial), &Options{Timeout: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		if rep.Failed != 1 || rep.Skipped != len(Cases()) ||
			!strings.Contains(rep.Cases[0].Finding, "no answer to a plain request") {
			t.Errorf("%d failed, %d skipped: %s", rep.Failed, rep.Skipped, rep.Cases[0].Finding)
		}
	})
}

func TestCaseNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Cases() {
		if seen[c.Name] || c.Title == "" || c.Ref == "" || c.Level == "" || len(c.sends) == 0 {
			t.Errorf("case %q is given twice or incomplete", c.Name)
		}
		seen[c.Name] = true
	}
}

func TestSameValue(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"1", "1.0", true},
		{"1e2", "100", true},
		{"-0", "0", true},
		{"0.10", "1e-1", true},
		{"1e400", "10e399", true},
		{"9007199254740992", "9007199254740993", false},
		{"1", `"1"`, false},
		{"1", "-1", false},
		{"1e400", "1e401", false},
		{`"a\u0041"`, `"aA"`, true},
		{`{"a":1,"b":2}`, `{"b":2.0,"a":1}`, true},
		{"[1]", "[1,1]", false},
		{"null", "0", false},
		{"", "null", false},
	} {
		if got := sameValue(c.a, c.b); got != c.same {
			t.Errorf("sameValue(%s, %s) = %v", c.a, c.b, got)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		`{"a":"\u0041"}`:           `{"a":"\u0041"}`,
		"a\x01\xff\n":              `a\x01\xff\x0a`,
		"\ufeff{}":                 `\xef\xbb\xbf{}`,
		"žluť 😀":                   "žluť 😀",
		strings.Repeat("é", 1_000): strings.Repeat("é", shown/2) + "… (2000 bytes)",
	} {
		if got := printable(in); got != want {
			t.Errorf("printable(%q) = %q, want %q", in, got, want)
		}
	}
}

// What a server sends may be anything.
func FuzzParseAnswers(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","result":1,"id":1}`,
		`[{"jsonrpc":"2.0","error":{"code":-32700,"message":"x"},"id":null}]`, `[]`, `[[]]`,
		`{"result":null,"error":{"code":1e3,"message":null},"id":{}}`, `{"method":"x"}`,
		`{"id":1,"id":1}`, "", "{", `{"jsonrpc":"2.0","result":1,"id":1e400}{`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, frame string) {
		answers, _, err := parseAnswers(frame)
		for _, a := range answers {
			if err == nil && (!sameValue(a.id, a.id) || !sameValue(a.id, " "+a.id)) {
				t.Errorf("%s has an id that is not itself: %s", frame, a.id)
			}
		}
		judge(&Case{want: []want{none("1")}}, &evidence{frames: []string{frame}}, true)
		printable(frame)
	})
}
