package refs

import "strings"

// separator is between the name of a server and that of its tool, prompt or group.
const separator = "__"

// A Server qualifies what one upstream calls its own, and reads what is qualified. The zero Server
// is of no use. Its methods may be called from several goroutines at once.
type Server struct {
	Name  string // qualifies the names of tools and prompts: NAME__tool
	Label string // qualifies URIs: LABEL+file:///x, ui://LABEL+/x; see Label
	// Web: https:, http: and data: URIs are qualified, too. Without it they stay as they are, because
	// a client may fetch them itself.
	Web bool
	// Opaque: Up leaves the arguments of tools and prompts as they are. Without it, an argument that
	// is a URI with the qualifier of this server is given to it in its own form.
	Opaque bool
}

// Label returns the label of a server's name: the name in lower case, with a dot for each
// underscore, and with "n." before it if it does not begin with a letter. A label and a plus sign
// are the beginning of a URI scheme (RFC 3986, section 3.1), which has no underscores, begins with
// a letter, and is made lower case by parsers.
func Label(name string) string {
	label := strings.ReplaceAll(strings.ToLower(name), "_", ".")
	if label == "" || label[0] < 'a' || label[0] > 'z' {
		label = "n." + label
	}
	return label
}

// ValidLabel reports whether a text can be a label: a small letter, and then small letters, digits,
// dots and hyphens.
func ValidLabel(label string) bool {
	for i := range len(label) {
		c := label[i]
		if letter := 'a' <= c && c <= 'z'; !letter && (i == 0 || !isDigit(c) && c != '.' && c != '-') {
			return false
		}
	}
	return label != ""
}

// Clash reports whether some tool or prompt can have the same qualified name at both servers,
// whatever it is called, or some URI the same qualified form: a check of a configuration refuses
// such a pair.
func Clash(a, b Server) (names, labels bool) {
	one, other := a.QualifyName(""), b.QualifyName("")
	return strings.HasPrefix(one, other) || strings.HasPrefix(other, one), a.Label == b.Label
}

// QualifyName returns the name of a tool, a prompt or a group as clients see it.
func (s *Server) QualifyName(name string) string { return s.Name + separator + name }

// StripName returns the server's own name of what clients know by a qualified one, false when the
// name does not have the qualifier of this server.
func (s *Server) StripName(shown string) (name string, ok bool) {
	name, ok = strings.CutPrefix(shown, s.Name)
	if !ok {
		return shown, false
	}
	if name, ok = strings.CutPrefix(name, separator); !ok || name == "" {
		return shown, false
	}
	return name, true
}

// QualifyURI returns a URI as clients see it. A ui:// or skill:// URI keeps its scheme, because
// hosts look for it, and gets LABEL+ as its authority: ui://LABEL+/x. A web URI is unchanged unless
// s.Web. Every other URI is LABEL+uri. A URI template is qualified by its text in the same way: the
// qualifier is a literal for RFC 6570. What looks as if it were qualified already is qualified
// again.
func (s *Server) QualifyURI(uri string) string {
	at, mark := qualifierOf(s, uri)
	if mark == "" {
		return uri
	}
	return uri[:at] + s.Label + mark + uri[at:]
}

// qualifierOf returns where the label of a server is inserted in a URI, and what follows the label;
// "" for a URI that is not qualified.
func qualifierOf[S text](s *Server, uri S) (at int, mark string) {
	if n := ownScheme(uri); n > 0 {
		return n, "+/"
	}
	if !s.Web && IsWeb(uri) {
		return 0, ""
	}
	return 0, "+"
}

// StripURI returns the server's own form of a qualified URI, false when the URI does not have the
// qualifier of this server. It takes both forms, LABEL+ui://x and ui://LABEL+/x, and %2B for the
// plus sign of the second one.
func (s *Server) StripURI(shown string) (uri string, ok bool) {
	from, to := qualified(s, shown)
	return shown[:from] + shown[to:], to > 0
}

// qualified returns where the qualifier of a server is in a URI; 0 and 0 when it is not there.
func qualified[S text](s *Server, shown S) (from, to int) {
	n := len(s.Label)
	if begins(shown, s.Label) && len(shown) > n+1 && shown[n] == '+' {
		return 0, n + 1
	}
	if from = ownScheme(shown); from > 0 && begins(shown[from:], s.Label) {
		for _, plus := range [...]string{"+/", "%2B/", "%2b/"} {
			if begins(shown[from+n:], plus) {
				return from, from + n + len(plus)
			}
		}
	}
	return 0, 0
}

// StripArgument is StripURI for a text that may be anything: it changes only what is a URI as a
// whole, before and after. A text such as "a+b" is not.
func (s *Server) StripArgument(shown string) (uri string, ok bool) {
	from, to := qualifiedArgument(s, shown)
	return shown[:from] + shown[to:], to > 0
}

func qualifiedArgument[S text](s *Server, shown S) (from, to int) {
	if from, to = qualified(s, shown); to == 0 || from == 0 && schemeOf(shown[to:]) == 0 {
		return 0, 0
	}
	for i := range len(shown) {
		if shown[i] <= ' ' {
			return 0, 0
		}
	}
	return from, to
}

// text is what a URI is in: both forms are used, so that reading bytes costs no copy.
type text interface{ string | []byte }

func begins[S text](s S, prefix string) bool {
	return len(s) >= len(prefix) && string(s[:len(prefix)]) == prefix
}

// beginsFold is begins for a prefix of small letters and punctuation, whatever the case of s.
func beginsFold[S text](s S, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
}

// ownScheme returns the length of ui:// or skill:// at the beginning of a URI, or 0.
func ownScheme[S text](uri S) int {
	for _, scheme := range [...]string{"ui://", "skill://"} {
		if beginsFold(uri, scheme) {
			return len(scheme)
		}
	}
	return 0
}

// IsWeb reports whether a URI, or a template as far as it is literal, is one of https:, http: and
// data:.
func IsWeb[S text](uri S) bool {
	return beginsFold(uri, "https:") || beginsFold(uri, "http:") || beginsFold(uri, "data:")
}

// schemeOf returns the length of the scheme that a URI begins with, 0 for what has none (RFC 3986,
// section 3.1).
func schemeOf[S text](uri S) int {
	for i := range len(uri) {
		c := uri[i]
		switch {
		case 'a' <= c|0x20 && c|0x20 <= 'z':
		case i > 0 && c == ':':
			return i
		case i > 0 && (isDigit(c) || c == '+' || c == '-' || c == '.'):
		default:
			return 0
		}
	}
	return 0
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
