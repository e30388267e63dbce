package refs

import (
	"net/url"
	"strings"
	"testing"
)

func server(name string) *Server { return &Server{Name: name, Label: Label(name)} }

func TestLabel(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"a": "a", "GitHub": "github", "my_srv": "my.srv", "2fa": "n.2fa", "-x": "n.-x", "_x": "n..x",
		"a-b.c": "a-b.c",
	} {
		got := Label(name)
		if got != want || !ValidLabel(got) {
			t.Errorf("the label of %q is %q (valid: %v), want %q", name, got, ValidLabel(got), want)
		}
		u, err := url.Parse(got + "+file:///x")
		if err != nil || u.String() != got+"+file:///x" {
			t.Errorf("%q does not begin a URI: %v, %v", got, u, err)
		}
	}
	for _, bad := range []string{"", "A", "1", "a_b", "a+b", "a b", ".a", "ä"} {
		if ValidLabel(bad) {
			t.Errorf("%q is a label", bad)
		}
	}
}

func TestClash(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b          string
		names, labels bool
	}{
		{"a", "b", false, false},
		{"a", "a_", true, false},
		{"a__b", "a", true, false},
		{"ab", "a", false, false},
		{"a_b", "A.b", false, true},
		{"a", "a", true, true},
	} {
		if names, labels := Clash(*server(test.a), *server(test.b)); names != test.names ||
			labels != test.labels {
			t.Errorf("%s and %s clash: %v, %v", test.a, test.b, names, labels)
		}
	}
}

// TestURIs has the form in which each kind of URI is shown.
func TestURIs(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"file:///etc/x":              "a+file:///etc/x",
		"ui://app/view.html":         "ui://a+/app/view.html",
		"ui:///x":                    "ui://a+//x",
		"ui://a+/x":                  "ui://a+/a+/x", // a gateway behind the gateway
		"ui://b+/x":                  "ui://a+/b+/x", // or a server that lies
		"UI://x":                     "UI://a+/x",
		"skill://git/SKILL.md":       "skill://a+/git/SKILL.md",
		"ui:x":                       "a+ui:x",
		"urn:uuid:1":                 "a+urn:uuid:1",
		"memo:insights":              "a+memo:insights",
		"git+ssh://h/x":              "a+git+ssh://h/x",
		"b+file:///x":                "a+b+file:///x",
		"https://example.com/x":      "https://example.com/x",
		"HTTP://example.com":         "HTTP://example.com",
		"data:,x":                    "data:,x",
		"httpx://h":                  "a+httpx://h",
		"https+x://h":                "a+https+x://h",
		"x":                          "a+x",
		"":                           "a+",
		"repo://{owner}/{name}{?q}":  "a+repo://{owner}/{name}{?q}",
		"ui://{x}/v":                 "ui://a+/{x}/v",
		"{+uri}":                     "a+{+uri}",
		"{scheme}://x{/y*}":          "a+{scheme}://x{/y*}",
		"https://{host}/x{;a,b:3}":   "https://{host}/x{;a,b:3}",
		"http{+rest}":                "a+http{+rest}",
		"file:///ü/%C3%BC{#frag}":    "a+file:///ü/%C3%BC{#frag}",
		"videos://{id}{&more}{.ext}": "a+videos://{id}{&more}{.ext}",
	} {
		got := server("a").QualifyURI(uri)
		if got != want {
			t.Errorf("%q is shown as %q, want %q", uri, got, want)
		}
		if back, ok := server("a").StripURI(got); uri != "" && (back != uri || ok == IsWeb(uri)) {
			t.Errorf("%q leads back to %q, %v", got, back, ok)
		}
		if _, ok := server("b").StripURI(got); ok {
			t.Errorf("%q is taken for one of b", got)
		}
	}
	web := &Server{Name: "a", Label: "a", Web: true}
	if got := web.QualifyURI("https://x"); got != "a+https://x" {
		t.Errorf("https is shown as %q", got)
	}
}

func TestStripURI(t *testing.T) {
	t.Parallel()
	for shown, want := range map[string]string{
		"a+ui://x":        "ui://x",
		"ui://a+/x":       "ui://x",
		"UI://a+/x":       "UI://x",
		"ui://a%2B/x":     "ui://x",
		"skill://a%2b/x":  "skill://x",
		"a+https://x":     "https://x",
		"a+a+file:///x":   "a+file:///x",
		"ui://a+/../b":    "ui://../b",
		"ui://a /x":       "",
		"ui://a/x":        "",
		"ui://a+":         "",
		"ui://ab+/x":      "",
		"A+file:///x":     "", // a label has no capitals
		"a+":              "",
		"a":               "",
		"b+a+file:///x":   "",
		"file:///a+/x":    "",
		"other://a+/file": "",
	} {
		got, ok := server("a").StripURI(shown)
		if ok != (want != "") || ok && got != want || !ok && got != shown {
			t.Errorf("%q is of a as %q, %v; want %q", shown, got, ok, want)
		}
	}
	for text, want := range map[string]string{
		"a+file:///x": "file:///x", "ui://a+/x": "ui://x", "a+b": "", "a+b c:d": "",
		"see a+file:///x": "", "a+1:2": "", "b+file:///x": "",
	} {
		if got, ok := server("a").StripArgument(text); ok != (want != "") || ok && got != want {
			t.Errorf("the argument %q is given as %q, %v; want %q", text, got, ok, want)
		}
	}
}

func FuzzNames(f *testing.F) {
	for _, uri := range []string{
		"file:///x", "ui://a/x", "skill://x/{y}", "a+b:c", "https://x",
		"ui://b+/{+x}", "{?q*}", "git+ssh://h", "", "\xff", "ui://a%2B/x",
	} {
		f.Add("a", uri)
		f.Add("2_F", uri)
	}
	f.Fuzz(func(t *testing.T, name, uri string) {
		s, other := server(name), &Server{Name: name + "x", Label: "other"}
		if name == "" || !ValidLabel(s.Label) || s.Label == other.Label {
			t.Skip()
		}
		shown := s.QualifyURI(uri)
		back, ok := s.StripURI(shown)
		switch {
		case IsWeb(uri):
			if shown != uri || ok {
				t.Errorf("the web URI %q is shown as %q", uri, shown)
			}
			if back, ok := s.StripURI(s.Label + "+" + uri); !ok || back != uri {
				t.Errorf("the long form of %q leads to %q", uri, back)
			}
		case uri != "" && (!ok || back != uri):
			t.Errorf("%q is shown as %q, which leads to %q", uri, shown, back)
		}
		if _, ok := other.StripURI(shown); ok && !IsWeb(uri) {
			t.Errorf("%q of %s is taken for one of %s", shown, s.Label, other.Label)
		}
		if !IsWeb(uri) { // gateways behind gateways
			twice := other.QualifyURI(shown)
			once, _ := other.StripURI(twice)
			if again, _ := s.StripURI(once); uri != "" && again != uri {
				t.Errorf("%q is shown as %q, which leads to %q", uri, twice, again)
			}
		}
		if strings.HasPrefix(strings.ToLower(uri), "ui://") &&
			!strings.HasPrefix(strings.ToLower(shown), "ui://") {
			t.Errorf("%q lost its scheme: %q", uri, shown)
		}
		if back, ok := s.StripName(s.QualifyName(uri)); uri != "" && (!ok || back != uri) {
			t.Errorf("the name %q leads back to %q", uri, back)
		}
	})
}
