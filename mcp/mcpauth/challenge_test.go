package mcpauth

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestParseChallenges(t *testing.T) {
	for header, want := range map[string]string{
		`Bearer`:                              `bearer map[]`,
		`Bearer realm="x"`:                    `bearer map[realm:x]`,
		`bearer   realm = "x" , scope="a b"`:  `bearer map[realm:x scope:a b]`,
		`Bearer realm=x, error=invalid_token`: `bearer map[error:invalid_token realm:x]`,
		`Basic realm="a, Bearer x=\"y\"", Bearer scope="s"`: `basic map[realm:a, Bearer x="y"] bearer ` +
			`map[scope:s]`,
		`Negotiate YWJj==, Bearer scope="s"`: `negotiate map[] bearer map[scope:s]`,
		`Negotiate a/b, Bearer`:              `negotiate map[] bearer map[]`,
		`Negotiate, Bearer, DPoP algs="ES256"`: `negotiate map[] bearer map[] dpop ` +
			`map[algs:ES256]`,
		`,, Bearer a=b,,c=d ,`: `bearer map[a:b c:d]`,
		`Bearer A=1, a=2`:      `bearer map[a:1]`,
		`Bearer resource_metadata=https://x/y?z=1, scope=a`: `bearer map[resource_metadata:https://x/y?` +
			`z=1 scope:a]`,
		`Bearer scope="unfinished`:   `bearer map[]`,
		`Bearer scope="x\`:           `bearer map[]`,
		`Bearer scope=`:              `bearer map[]`,
		`Bearer error="a" scope="b"`: `bearer map[error:a scope:b]`,
		`="x"`:                       ``,
		``:                           ``,
		`Bearer@x`:                   ``,
		"Bearer scope=\"a\tb\"":      "bearer map[scope:a\tb]",
	} {
		var got []string
		for _, c := range parseChallenges([]string{header}) {
			got = append(got, fmt.Sprint(c.scheme, " ", c.params))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", header, strings.Join(got, " "), want)
		}
	}
}

func TestChallengeLimits(t *testing.T) {
	if all := parseChallenges(
		[]string{"Bearer a=1", strings.Repeat("x", maxChallengeText), "Basic"}); len(all) != 1 {
		t.Errorf("%d challenges of long headers", len(all))
	}
	if all := parseChallenges([]string{strings.Repeat("a,", 1000)}); len(all) != maxChallengeList {
		t.Errorf("%d challenges", len(all))
	}
	var params strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&params, ",p%d=1", i)
	}
	if all := parseChallenges([]string{"Bearer " + params.String()}); len(all[0].params) !=
		maxChallengeList {
		t.Errorf("%d parameters", len(all[0].params))
	}
	var scopes strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&scopes, "s%d ", i)
	}
	if got := scopesOf(scopes.String() + strings.Repeat("x", 999)); len(got) != maxScopes {
		t.Errorf("%d scopes", len(got))
	}
	if got := scopesOf(strings.Repeat("x", maxScope+1) + " a a"); len(got) != 1 {
		t.Errorf("scopes %q", got)
	}
}

func TestChallengeOf(t *testing.T) {
	h := http.Header{
		"Www-Authenticate": {
			`Basic realm="x"`, `Bearer error="e1", scope="s"`,
			`DPoP error="e2", resource_metadata="/m"`,
		},
	}
	for bound, want := range map[bool]string{false: "e1", true: "e2"} {
		if c := challengeOf(h, bound); c.failure() != want || c.metadata() != "/m" {
			t.Errorf("%v: %v", bound, c)
		}
	}
	if c := challengeOf(http.Header{}, false); c.failure()+c.metadata() != "" || c.scopes() != nil {
		t.Errorf("%v", c)
	}
}

func FuzzChallenge(f *testing.F) {
	for _, seed := range []string{
		`Bearer resource_metadata="https://x/y", scope="a b"`,
		`Basic realm="\"", DPoP algs="ES256", error="use_dpop_nonce"`, `Negotiate abc==`, `,=,"`,
		"Bearer a=b=c", "A B=C D E=\"F\"",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		all := parseChallenges([]string{header, header})
		for _, c := range all {
			if c.scheme == "" || c.params == nil || c.scheme != strings.ToLower(c.scheme) ||
				len(c.params) > maxChallengeList {
				t.Errorf("%q: %v", header, c)
			}
		}
		c := challengeOf(http.Header{"Www-Authenticate": {header}}, true)
		for _, scope := range c.scopes() {
			if !validScope(scope) {
				t.Errorf("%q has the scope %q", header, scope)
			}
		}
	})
}
