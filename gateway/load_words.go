package gateway

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const noShell = `farcall runs commands without a shell; if it needs one, write command: ` +
	`[sh, -c, '...']`

var (
	reference  = regexp.MustCompile(`^\$?\$\{[^}]*\}?`)
	shellStart = regexp.MustCompile("^([|&;<>`]|\\$[(A-Za-z0-9_])")
)

// splitWords splits a command line as a shell does: at white space that is not
// within quotes. ${NAME} is kept as it is. What a shell would also do is an error.
func splitWords(line string) ([]string, error) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "-- ")
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(line); {
		switch c := line[i]; {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			if inWord {
				words = append(words, word.String())
				word.Reset()
			}
			inWord = false
			i++
			continue
		case c == '\'' || c == '"':
			n, err := quoted(&word, line[i:])
			if err != nil {
				return nil, err
			}
			i += n
		case c == '\\' && i+1 < len(line):
			word.WriteByte(line[i+1])
			i += 2
		case reference.MatchString(line[i:]):
			n := len(reference.FindString(line[i:]))
			word.WriteString(line[i : i+n])
			i += n
		case shellStart.MatchString(line[i:]):
			return nil, shellOnly(line[i:])
		default:
			word.WriteByte(c)
			i++
		}
		inWord = true
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) > 0 {
		if name, _, ok := strings.Cut(words[0], "="); ok && isName(name) {
			return nil, fmt.Errorf("%s=... stands before the command; put it into env", name)
		}
	}
	return words, nil
}

func shellOnly(rest string) error {
	if rest[0] == '$' && rest[1] != '(' {
		name := rest[1:]
		if end := strings.IndexFunc(name, func(r rune) bool {
			return r > 127 || !isNameByte(byte(r))
		}); end >= 0 {
			name = name[:end]
		}
		return fmt.Errorf("$%s has no meaning without a shell; write ${%s}", name, name)
	}
	return fmt.Errorf("%q has no meaning without a shell; quote it if it is an argument; %s",
		rest[:1], noShell)
}

// quoted appends what is within the quotes that line starts with, and returns
// their length.
func quoted(word *strings.Builder, line string) (int, error) {
	quote := line[0]
	for i := 1; i < len(line); i++ {
		switch c := line[i]; {
		case c == quote:
			return i + 1, nil
		case c == '\\' && quote == '"' && i+1 < len(line) && strings.IndexByte(`"\$`+"`", line[i+1]) >= 0:
			i++
			word.WriteByte(line[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, errors.New("unterminated quote; close it, or write the command as a list")
}

// isName reports whether s can name a variable of the environment.
func isName(s string) bool {
	if s == "" || s[0] >= '0' && s[0] <= '9' {
		return false
	}
	for i := range len(s) {
		if !isNameByte(s[i]) {
			return false
		}
	}
	return true
}

func isNameByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z'
}

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
		r.advise(path, fmt.Sprintf("$%s stays as it is written: no shell reads it", shell[1]),
			fmt.Sprintf("write ${%s}", shell[1]))
	case windows != nil:
		r.advise(path, fmt.Sprintf("%%%s%% stays as it is written: no shell reads it", windows[1]),
			fmt.Sprintf("write ${%s}", windows[1]))
	case rest == "~" || strings.HasPrefix(rest, "~/"):
		r.advise(path, "~ stays as it is written: no shell reads it", "write ${HOME}")
	case start == "Bearer " && rest != "", looksSecret(rest):
		r.advise(path, "it looks like a secret and stands in the file itself",
			"write ${NAME} for a variable of the environment, or ${file:PATH}")
	}
}

// looksSecret reports whether a value begins as the tokens of well-known services do,
// and is more than a word: such tokens have digits.
func looksSecret(value string) bool {
	return secretStart.MatchString(value) && strings.ContainsAny(value, "0123456789") &&
		!strings.ContainsAny(value, " \t\n")
}
