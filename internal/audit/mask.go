package audit

import (
	"bytes"
	"encoding/base64"
	"strings"
)

const mark = "[redacted]"

// isSecret tells by the normalized name of a member, a header or a parameter.
func isSecret(name []byte) bool {
	n := string(name)
	switch n {
	case "progresstoken", "maxtokens": // of MCP; they tell nothing
		return false
	case "key", "pwd", "pass", "auth", "otp", "totp", "pin", "cvv", "cvc", "dpop", "codeverifier":
		return true
	}
	for _, part := range [...]string{
		"password", "passwd", "passphrase", "passcode", "secret", "token", "authorization", "cookie",
		"apikey",
		"privatekey", "accesskey", "signingkey", "encryptionkey", "credential", "assertion", "sessionid",
		"jwt", "bearer",
	} {
		if strings.Contains(n, part) {
			return true
		}
	}
	return false
}

// normalize appends a name as names are compared: without what tells camelCase, snake_case and
// header-case apart, and without the escapes of a URL.
func normalize[S string | []byte](dst []byte, name S) []byte {
	for i := 0; i < len(name); i++ {
		c := name[i]
		if c == '%' && i+2 < len(name) {
			if hi, lo := hex(name[i+1]), hex(name[i+2]); hi < 16 && lo < 16 {
				c = hi<<4 | lo
				i += 2
			}
		}
		switch {
		case c == '-' || c == '_' || c == ' ':
		case c >= 'A' && c <= 'Z':
			dst = append(dst, c|0x20)
		case c == 0xc5 && i+1 < len(name) && name[i+1] == 0xbf: // ſ, which some decoders take for an s
			dst = append(dst, 's')
			i++
		case c == 0xe2 && i+2 < len(name) && name[i+1] == 0x84 && name[i+2] == 0xaa: // the Kelvin sign
			dst = append(dst, 'k')
			i += 2
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func hex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 255
}

// suspicious reports whether mask may find something.
func suspicious[S string | []byte](s S) bool {
	for i := range len(s) {
		switch s[i] {
		case '=', ':':
			return true
		case 'b', 'B', 'd', 'D', 'e', '-', 'f', 's', 'g', 'x', 'A', 'n', 'S', 'r', 'w', 'y', 'h', 'p':
			if i+1 == len(s) || s[i] != 'b' && s[i]|0x20 != 'd' && s[i] != 'B' && s[i] != 'e' &&
				s[i] != '-' &&
				!keyBegins(s[i], s[i+1]) {
				continue
			}
			rest := []byte(s[i:min(i+12, len(s))])
			if _, prefix := keyFormOf(rest); prefix != "" || scheme(rest) != "" ||
				bytes.HasPrefix(rest, []byte("eyJ")) || bytes.HasPrefix(rest, []byte("--")) {
				return true
			}
		}
	}
	return false
}

// scheme is the scheme of HTTP authentication at the start of s, in lower case.
func scheme(s []byte) string {
	for _, name := range [...]string{"bearer", "basic", "dpop"} {
		if len(s) > len(name) && (s[len(name)] == ' ' || s[len(name)] == '\t') &&
			bytes.EqualFold(s[:len(name)], []byte(name)) {
			return name
		}
	}
	return ""
}

// A keyForm is how keys of some kinds begin, and how many bytes follow at least. Those are few
// where no word begins so.
type keyForm struct {
	least    int
	more     string // the bytes that they may have beyond those of words
	prefixes []string
}

// keyForms are those of farcall, OpenAI and its like, Stripe, GitHub, GitLab, Slack, AWS, Google,
// npm, SendGrid, Hugging Face, PyPI, DigitalOcean, Shopify, Grafana and Databricks.
var keyForms = [...]keyForm{
	{8, "", []string{
		"fk_", "sk-", "sk_", "rk_live_", "rk_test_", "ghp_", "gho_", "ghs_", "ghu_", "ghr_",
		"github_pat_", "xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "AKIA",
	}},
	{8, ".", []string{"glpat-", "glrt-", "gldt-"}},
	{16, "", []string{"glsa_", "xapp-", "ASIA"}},
	{16, ".", []string{"ya29."}},
	{16, "+/", []string{"whsec_"}},
	{24, "", []string{"AIza", "npm_", "hf_", "dop_v1_", "shpat_"}},
	{24, ".", []string{"SG."}},
	{32, "", []string{"pypi-", "dapi"}},
}

// keyBegins reports whether one of keyForms begins with two bytes. It is asked at most bytes of a
// text.
func keyBegins(a, b byte) bool {
	switch uint16(a)<<8 | uint16(b) {
	case 'f'<<8 | 'k', 's'<<8 | 'k', 'r'<<8 | 'k', 'w'<<8 | 'h', 'g'<<8 | 'h', 'g'<<8 | 'i',
		'g'<<8 | 'l', 'x'<<8 | 'o',
		'x'<<8 | 'a', 'A'<<8 | 'K', 'A'<<8 | 'S', 'A'<<8 | 'I', 'y'<<8 | 'a', 'n'<<8 | 'p', 'S'<<8 | 'G',
		'h'<<8 | 'f',
		'p'<<8 | 'y', 'd'<<8 | 'o', 's'<<8 | 'h', 'd'<<8 | 'a':
		return true
	}
	return false
}

// keyFormOf returns the form of the key that s may begin with, and its prefix; "": there is none.
func keyFormOf(s []byte) (form keyForm, prefix string) {
	if len(s) < 2 || !keyBegins(s[0], s[1]) {
		return form, ""
	}
	for _, form = range keyForms {
		for _, prefix = range form.prefixes {
			if len(s) >= len(prefix) && string(s[:len(prefix)]) == prefix {
				return form, prefix
			}
		}
	}
	return form, ""
}

// mask is s with secrets masked. It looks at each byte a few times at most. In prose, which is ours
// and may quote a caller, "the token: ..." and "Bearer token" are words.
func (r *rules) mask(s []byte, prose bool) []byte {
	return r.replace(s, prose, func(dst, _ []byte) []byte { return append(dst, mark...) })
}

// replace is mask with what put appends in place of a secret.
func (r *rules) replace(s []byte, prose bool, put func(dst, secret []byte) []byte) []byte {
	dst := make([]byte, 0, len(s)+len(mark))
	named, tokens := 0, 0 // names, and JWTs, were looked for up to here
	for i := 0; i < len(s); {
		from, to := i, i // what is masked
		begins := i == 0 || !isWord(s[i-1])
		switch {
		case s[i] == 'e' && i >= tokens:
			to, tokens = jwt(s, i)
		case s[i] == ':':
			from, to = userInfo(s, i)
		case s[i] == '-' && bytes.HasPrefix(s[i:], []byte("-----BEGIN ")) &&
			bytes.Contains(s[i:min(i+80, len(s))], []byte("PRIVATE KEY")):
			to = len(s)
		}
		if to == from && begins {
			from, to = credential(s, i, prose)
			if to == from && i >= named {
				from, to, named = r.named(s, i, prose)
			}
		}
		if to <= from {
			dst = append(dst, s[i])
			i++
			continue
		}
		dst = put(append(dst, s[i:from]...), s[from:to])
		i = to
	}
	return dst
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == '-'
}

// run returns the end of the bytes from i on that are words or one of others.
func run(s []byte, i int, others string) int {
	for i < len(s) && (isWord(s[i]) || strings.IndexByte(others, s[i]) >= 0) {
		i++
	}
	return i
}

// until returns the first byte from i on that is one of ends.
func until(s []byte, i int, ends string) int {
	for i < len(s) && strings.IndexByte(ends, s[i]) < 0 {
		i++
	}
	return i
}

func blank(s []byte, i int) int {
	for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
		i++
	}
	return i
}

// jwt returns the end of the JWT at i, or i. One that is cut off counts. No other begins before
// next.
func jwt(s []byte, i int) (to, next int) {
	if !bytes.HasPrefix(s[i:], []byte("eyJ")) {
		return i, i
	}
	const least = 12 // {"alg":"x"}, nearly
	end := run(s, i, "")
	switch {
	case end-i < least:
		return i, end
	case end == len(s):
		return end, end
	case s[end] != '.':
		return i, end
	}
	second := run(s, end+1, "")
	if second == len(s) || s[second] == '.' {
		end = run(s, second, ".")
		return end, end
	}
	return i, end
}

// userInfo is what is between :// and @.
func userInfo(s []byte, i int) (from, to int) {
	if !bytes.HasPrefix(s[i:], []byte("://")) {
		return i, i
	}
	end := until(s, i+3, "/?#\"'<>\\ \t\r\n")
	if at := bytes.LastIndexByte(s[i+3:end], '@'); at > 0 {
		return i + 3, i + 3 + at
	}
	return i, i
}

// credential is that of HTTP authentication, or a key of a known form.
func credential(s []byte, i int, prose bool) (from, to int) {
	if form, prefix := keyFormOf(s[i:]); prefix != "" {
		start := i + len(prefix)
		if end := run(s, start, form.more); end-start >= form.least {
			return i, start + len(bytes.TrimRight(s[start:end], form.more))
		}
	}
	name := scheme(s[i:])
	if name == "" {
		return i, i
	}
	from = blank(s, i+len(name))
	to = until(s, from, ",;\"'<>\\ \t\r\n")
	if prose && to-from < 16 && !bytes.ContainsAny(s[from:to], "0123456789") {
		return i, i
	}
	if name == "basic" { // also an English word
		text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(string(s[from:to]), "="))
		if err != nil || !bytes.Contains(text, []byte(":")) {
			return i, i
		}
	}
	return from, to
}

// named is what follows the name of a secret: name=value, "name": "value", --name value. next is
// where other names may begin.
func (r *rules) named(s []byte, i int, prose bool) (from, to, next int) {
	end := run(s, i, ".%[]$")
	if end == i {
		return i, i, i + 1
	}
	name := s[i:end]
	if k := bytes.LastIndexAny(bytes.TrimRight(name, "]"), ".["); k >= 0 {
		name = name[k+1:]
	}
	k, separator := separated(s, end, bytes.HasPrefix(s[i:], []byte("--")))
	var array [64]byte
	if separator == 0 || !r.secret(normalize(array[:0], bytes.TrimRight(name, "]"))) {
		return i, i, end
	}
	from = blank(s, k)
	if prose && separator == ':' && s[k-2] != '"' && (from == len(s) || s[from] != '"') {
		return i, i, end
	}
	from, to = value(s, from, separator)
	return from, to, end
}

// separated passes what is between a name and its value. No separator: it is no name.
func separated(s []byte, i int, option bool) (end int, separator byte) {
	end = i
	for end < len(s) && (s[end] == '\\' || s[end] == '"' || s[end] == '\'') {
		end++
	}
	end = blank(s, end)
	switch {
	case end == len(s):
	case (s[end] == '=' || s[end] == ':') && !bytes.HasPrefix(s[end:], []byte("://")):
		return end + 1, s[end]
	case option && end > i:
		return end, '='
	}
	return i, 0
}

// value is the value at i, without its quotes.
func value(s []byte, i int, separator byte) (from, to int) {
	k := i
	for k < len(s) && s[k] == '\\' {
		k++
	}
	switch {
	case k < len(s) && (s[k] == '"' || s[k] == '\''):
		quote, escapes := s[k], k-i
		from = k + 1
		for k++; k < len(s); k++ {
			n := 0
			for k+n < len(s) && s[k+n] == '\\' {
				n++
			}
			if k += n; k < len(s) && s[k] == quote && n <= escapes {
				return from, k - n
			}
		}
		return from, len(s)
	case i < len(s) && (s[i] == '{' || s[i] == '['):
		return i, len(s) // where it ends is not worth finding
	case separator == ':':
		return i, until(s, i, "\r\n")
	}
	return i, until(s, i, "&;,\"'<>) \t\r\n")
}

// Secrets finds secrets in foreign text by the rules of [Redact], for callers that put something
// else in their place. It is not safe for concurrent use.
type Secrets struct {
	rules *rules
	name  []byte
}

// NewSecrets returns a Secrets with patterns of names and paths, as Redact takes them.
func NewSecrets(patterns []string) *Secrets { return &Secrets{rules: compile(patterns)} }

// Named reports whether the value of a member with the name is a secret.
func (s *Secrets) Named(name []byte) bool {
	s.name = normalize(s.name[:0], name)
	return s.rules.secret(s.name)
}

// Placed reports whether a pattern with dots stands for the path. Without such patterns it is
// false.
func (s *Secrets) Placed(path [][]byte) bool {
	if s.rules.paths == nil {
		return false
	}
	names := make([]string, len(path))
	for i, name := range path {
		names[i] = string(normalize(nil, name))
	}
	return s.rules.secretPath(names)
}

// Mask returns text in which put has appended something else in place of each secret: text itself
// when it has none.
func (s *Secrets) Mask(text []byte, put func(dst, secret []byte) []byte) []byte {
	if !suspicious(text) {
		return text
	}
	return s.rules.replace(text, false, put)
}
