package mcpauth

import (
	"net/http"
	"slices"
	"strings"
)

const (
	maxChallengeText = 16 << 10 // of all WWW-Authenticate headers, in bytes
	maxChallengeList = 32       // challenges, and parameters of one
	maxScopes        = 64
	maxScope         = 256 // bytes
)

// A challenge is what one authentication scheme says in WWW-Authenticate.
type challenge struct {
	scheme string            // lower case
	params map[string]string // by lower case names; of one that is there twice, the first
}

// parseChallenges reads WWW-Authenticate headers (RFC 9110 §11.6.1). What cannot be
// read ends its header.
func parseChallenges(headers []string) []challenge {
	var all []challenge
	left := maxChallengeText
	for _, h := range headers {
		if left -= len(h); left < 0 {
			break
		}
		all = appendChallenges(all, h)
	}
	return all
}

func appendChallenges(all []challenge, s string) []challenge {
	begun := false // a challenge of this header is at the end of all
	for {
		s = strings.TrimLeft(s, " \t,")
		word, rest := cutToken(s)
		if word == "" {
			return all
		}
		after := strings.TrimLeft(rest, " \t")
		if begun && strings.HasPrefix(after, "=") {
			value, rest, ok := cutValue(strings.TrimLeft(after[1:], " \t"))
			if !ok {
				return all
			}
			name, params := strings.ToLower(word), all[len(all)-1].params
			if _, twice := params[name]; !twice && len(params) < maxChallengeList {
				params[name] = value
			}
			s = rest
			continue
		}
		if len(all) >= maxChallengeList ||
			rest != "" && rest[0] != ' ' && rest[0] != '\t' && rest[0] != ',' {
			return all
		}
		all, begun = append(all, challenge{strings.ToLower(word), map[string]string{}}), true
		s = skipToken68(after)
	}
}

// cutToken cuts a token off, RFC 9110 §5.6.2.
func cutToken(s string) (token, rest string) {
	i := 0
	for i < len(s) && tokenChar(s[i]) {
		i++
	}
	return s[:i], s[i:]
}

func tokenChar(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' ||
		strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// cutValue cuts a parameter's value off: a token, or a quoted string.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		// More than a token, as some servers quote no URL.
		if i := strings.IndexAny(s, " \t,"); i >= 0 {
			return s[:i], s[i:], i > 0
		}
		return s, "", s != ""
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '"':
			return b.String(), s[i+1:], true
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
		}
		b.WriteByte(s[i])
	}
	return "", "", false
}

// skipToken68 skips credentials in the place of parameters, as in "Negotiate abc==".
func skipToken68(s string) string {
	i := 0
	for i < len(s) && (tokenChar(s[i]) || s[i] == '/') {
		i++
	}
	end := i
	for end < len(s) && s[end] == '=' {
		end++
	}
	if rest := strings.TrimLeft(s[end:], " \t"); i > 0 && (rest == "" || rest[0] == ',') &&
		(end > i || strings.Contains(s[:i], "/")) {
		return rest
	}
	return s
}

// challengeOf returns what an answer says about tokens: what it says to the scheme
// that is in use, or else to any that is known; nothing when it says nothing.
func challengeOf(h http.Header, bound bool) challenge {
	all := parseChallenges(h.Values("WWW-Authenticate"))
	schemes := []string{"bearer", "dpop"}
	if bound {
		slices.Reverse(schemes)
	}
	found := challenge{params: map[string]string{}}
	for _, scheme := range schemes {
		for _, c := range all {
			if c.scheme != scheme {
				continue
			}
			if found.scheme == "" {
				found = c
			}
			// That is the same for all schemes, and some servers say it once.
			if address := c.params["resource_metadata"]; address != "" && found.metadata() == "" {
				found.params["resource_metadata"] = address
			}
		}
	}
	return found
}

func (c challenge) failure() string  { return c.params["error"] }
func (c challenge) metadata() string { return c.params["resource_metadata"] }
func (c challenge) scopes() []string { return scopesOf(c.params["scope"]) }

// scopesOf splits a scope (RFC 6749 §3.3). What cannot be one is left out.
func scopesOf(s string) []string {
	return union(strings.Fields(s))
}

// union joins scopes in their order, each once.
func union(lists ...[]string) (all []string) {
	for _, list := range lists {
		for _, s := range list {
			if validScope(s) && !slices.Contains(all, s) && len(all) < maxScopes {
				all = append(all, s)
			}
		}
	}
	return all
}

func validScope(s string) bool {
	return s != "" && len(s) <= maxScope && !strings.ContainsFunc(s, func(r rune) bool {
		return r < 0x21 || r > 0x7e || r == '"' || r == '\\'
	})
}

// covers reports whether all of wanted is in scopes.
func covers(scopes, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(s string) bool { return !slices.Contains(scopes, s) })
}
