package mcpauth

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode"
)

const (
	maxTame   = 200 // runes of foreign text in an error
	minSecret = 8   // bytes of a secret that is looked for in foreign text
)

// tame makes foreign text fit for an error: bounded, on one line, without what
// moves a terminal's cursor or turns text around.
func tame(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > maxTame {
			b.WriteString("…")
			break
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}

// hide takes the secrets of a form out of a text: an authorization server may
// repeat what it was notified.
func hide(s string, form url.Values, header string) string {
	for name, values := range form {
		switch name {
		case "code", "code_verifier", "refresh_token", "client_secret", "client_assertion", "assertion",
			"subject_token", "actor_token", "token":
			for _, v := range values {
				if len(v) >= minSecret {
					s = strings.ReplaceAll(s, v, "(secret)")
				}
			}
		}
	}
	if len(header) >= minSecret {
		s = strings.ReplaceAll(s, header, "(secret)")
	}
	r := http.Request{Header: http.Header{"Authorization": {header}}}
	if _, secret, ok := r.BasicAuth(); ok {
		plain, _ := url.QueryUnescape(secret) // as in basic
		for _, v := range []string{secret, plain} {
			if len(v) >= minSecret {
				s = strings.ReplaceAll(s, v, "(secret)")
			}
		}
	}
	return s
}

// plainHost refuses a host that is not written in ASCII, as no protocol has it, but a terminal
// may act on it.
func plainHost(u *url.URL) error {
	for i := range len(u.Host) {
		if c := u.Host[i]; c < 0x21 || c > 0x7e {
			return fmt.Errorf("mcpauth: the host %q is not written in ASCII", tame(u.Host))
		}
	}
	return nil
}

// An oauthError is the refusal of an authorization server, RFC 6749 §4.1.2.1 and §5.2. Its
// text is tame.
type oauthError struct {
	who, code, description string
	status                 int
}

func (e *oauthError) Error() string {
	s := "mcpauth: the authorization server " + e.who + " refuses"
	switch {
	case e.code != "":
		s += ": " + e.code
	case e.status != 0:
		s += fmt.Sprintf(" with the status %d", e.status)
	}
	if e.description != "" {
		s += ": " + e.description
	}
	return s
}

// sameOrigin reports whether two addresses have scheme, host and port in common.
func sameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) &&
		port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	return map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
}

// originOf is the origin as text.
func originOf(u *url.URL) string {
	return strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port(u))
}

// local reports whether a host is this machine by its name.
func local(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// secure reports whether an address is https, or http on this machine.
func secure(u *url.URL) bool {
	return u.Host != "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && local(u.Hostname()))
}
