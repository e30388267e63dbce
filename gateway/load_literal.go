package gateway

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	// wordStart is what may stand before a value in an argument or a header.
	wordStart = regexp.MustCompile(`^(--?[A-Za-z][\w-]*=|Bearer )`)
	// shellName and windowsName are how shells write a variable. The names are such as
	// the environment has, so that neither $ref nor %20 is taken for one.
	shellName   = regexp.MustCompile(`^\$([A-Z_][A-Z0-9_]*)(?:[/\\:.]|$)`)
	windowsName = regexp.MustCompile(`%([A-Z_][A-Z0-9_]{2,})%`)
)

// literal gives notice of a value that looks as if a shell were to replace it, where
// no shell is, and of a token that stands in the file itself. It looks at what was
// written, and says nothing of it but the name of a variable.
func (r *reader) literal(n *node, path string) {
	if n.kind != scalarNode || strings.Contains(n.text, "${") {
		return
	}
	start := wordStart.FindString(n.text)
	rest := n.text[len(start):]
	shell, windows := shellName.FindStringSubmatch(rest), windowsName.FindStringSubmatch(rest)
	switch {
	case shell != nil:
		r.advise(path, fmt.Sprintf("$%s stays as it is written: no shell reads it", shell[1]), fmt.Sprintf("write ${%s}", shell[1]))
	case windows != nil:
		r.advise(path, fmt.Sprintf("%%%s%% stays as it is written: no shell reads it", windows[1]), fmt.Sprintf("write ${%s}", windows[1]))
	case rest == "~" || strings.HasPrefix(rest, "~/"):
		r.advise(path, "~ stays as it is written: no shell reads it", "write ${HOME}")
	case start == "Bearer " && rest != "", looksSecret(rest):
		r.advise(path, "it looks like a secret and stands in the file itself", "write ${NAME} for a variable of the environment, or ${file:PATH}")
	}
}

// looksSecret reports whether a value begins as the tokens of well-known services do,
// and is more than a word: such tokens have digits.
func looksSecret(value string) bool {
	return secretStart.MatchString(value) && strings.ContainsAny(value, "0123456789") && !strings.ContainsAny(value, " \t\n")
}
