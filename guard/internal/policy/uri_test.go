package policy

import (
	"strings"
	"testing"
)

func TestURIs(t *testing.T) {
	s, problems := Compile(&Source{Rules: []Rule{
		{Calls: []string{
			"resources/read file:///pub/*", "resources/read https://example.com/pub/*",
			"resources/read note:*", "resources/subscribe *",
		}},
		{Deny: true, Calls: []string{"resources/* file:///pub/secret*", "resources/* file:///etc/*"}},
	}})
	if hasErrors(problems) {
		t.Fatal(problems)
	}
	for uri, want := range map[string]string{
		"file:///pub/a.txt":                         "",
		"file:///pub/.hidden":                       "",
		"file:///pub/a..b":                          "",
		"file:///pub/...":                           "",
		"file:///pub/a%20b":                         "",
		"file:///pub/%C3%A9":                        "",
		"file:///pub/{name}":                        "",
		"https://example.com/pub/a?b=c#d":           "",
		"note:a":                                    "",
		"file:///pub/../etc/passwd":                 "dot segment",
		"file:///pub/..":                            "dot segment",
		"file:///pub/./a":                           "dot segment",
		"file:///pub/.%2e/etc/passwd":               "encoded dot",
		"file:///pub/%2e%2e/etc/passwd":             "encoded dot",
		"file:///pub/%2E%2E/etc/passwd":             "encoded dot",
		"file:///pub/..%2fetc":                      "encoded dot",
		"file:///pub/%252e%252e/etc":                "encoded dot",
		"file:///pub/%25252e%25252e/etc":            "encoded",
		"file:///pub/%2525252525252e":               "again and again",
		"file:///pub/a%5c..%5cb":                    "encoded dot",
		`file:///pub/..\etc`:                        "backslash",
		"file:///pub/..%20/etc":                     "dot segment",
		"file:///pub/%c0%ae%c0%ae/etc":              "small letters",
		"file:///pub/%C0%AE%C0%AE/etc":              "not UTF-8",
		"file:///pub/%E9":                           "not UTF-8",
		"file:///pub/%00":                           "control",
		"file:///pub/a\x00b":                        "not printed",
		"file:///pub/a\nb":                          "not printed",
		"file:///pub/%73ecret":                      "needs no encoding",
		"file:///pub//secret":                       "empty segment",
		"file:////etc/passwd":                       "empty segment",
		"file://localhost/etc/passwd":               "file:///PATH",
		"file:/etc/passwd":                          "file:///PATH",
		"file:///pub/a?x":                           "query",
		"FILE:///pub/a":                             "capital",
		"https://EXAMPLE.com/pub/a":                 "capital",
		"https://example.com:443/pub/a":             "shortest",
		"https://example.com./pub/a":                "shortest",
		"https://u@example.com/pub/a":               "user",
		"https://example.com/pub/?f=../../x":        "dot segment",
		"https:example.com/pub/a":                   "no host",
		"file:///pub/é":                             "percent-encoded",
		"file:///pub/a b":                           "percent-encoded",
		"file:///pub/%zz":                           "encodes nothing",
		"file:///pub/%":                             "encodes nothing",
		"note:a\xff":                                "not printed",
		"file:///pub/" + strings.Repeat("a/", 9999): "",
	} {
		for _, method := range []string{"resources/read", "resources/subscribe"} {
			d := s.Decide(&Query{Method: method, Name: uri})
			if d.Allowed != (want == "") || !strings.Contains(d.Reason, want) {
				t.Errorf("%s %.60s: %+v, want %q", method, uri, d, want)
			}
			if strings.ContainsAny(d.Reason, "\n\x00") || len(d.Reason) > 1000 {
				t.Errorf("%.60s: a reason that does not fit in a line: %q", uri, d.Reason)
			}
		}
	}
	if d := s.Decide(&Query{Method: "resources/subscribe", Name: "file:///pub/secret"}); d.Allowed {
		t.Error("denied by name, and allowed")
	}
	if d := s.Decide(
		&Query{Method: "completion/complete", Name: "file:///pub/../x"}); !strings.Contains(d.Reason,
		"dot") {
		t.Error(d)
	}
}

// A URI that passes has no other form that passes and names the same file.
func FuzzURI(f *testing.F) {
	for _, s := range []string{
		"file:///a/b", "file:///a%2Fb", "https://x/%2e", "a%25252e",
		"note:%C3%A9", "{+path}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		if URIFault(uri) != "" {
			return
		}
		once, _ := unescape(uri, false)
		for _, bad := range []string{"/../", "/./", "\\", "\x00", "\n"} {
			if strings.Contains(uri+"/", bad) || strings.Contains(once+"/", bad) {
				t.Errorf("%q passes", uri)
			}
		}
	})
}
