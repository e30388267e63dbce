package validate

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// maxWeight bounds the size of a compiled pattern, in instructions: counted
// repetitions can make a short one large.
const maxWeight = 20_000

// compilePattern compiles a regular expression of ECMA-262 as far as package
// regexp, which takes linear time, can do what it says.
func compilePattern(source string) (*pattern, error) {
	translated, ok := translate(source)
	if !ok {
		return nil, fmt.Errorf("%q is not supported: a class without characters", clip(source))
	}
	tree, err := syntax.Parse(translated, syntax.Perl)
	if err != nil {
		if e, ok := errors.AsType[*syntax.Error](err); ok {
			return nil, fmt.Errorf("%q is not supported: %s: %q", clip(source), e.Code, clip(e.Expr))
		}
		return nil, err
	}
	w := weigh(tree)
	if w > maxWeight {
		return nil, fmt.Errorf("%q is too large", clip(source))
	}
	re, err := regexp.Compile(translated)
	if err != nil {
		return nil, err
	}
	return &pattern{re: re, source: source, weight: w}, nil
}

// weigh estimates the instructions of a compiled expression.
func weigh(re *syntax.Regexp) int {
	w := 1
	for _, sub := range re.Sub {
		w = min(w+weigh(sub), maxWeight+1)
	}
	switch re.Op {
	case syntax.OpLiteral:
		w += len(re.Rune)
	case syntax.OpCharClass:
		w += len(re.Rune) / 8
	case syntax.OpRepeat:
		w *= max(re.Min, re.Max, 1)
	}
	return w
}

// space is what \s means in ECMA-262, as the inside of a character class.
const space = `\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`

// translate rewrites what ECMA-262 writes otherwise than package regexp. It cannot do that for []
// and [^], which package regexp takes for the beginning of a class.
func translate(s string) (translated string, ok bool) {
	if !strings.ContainsAny(s, `\[`) {
		return s, true
	}
	var out strings.Builder
	class := false
	for i := 0; i < len(s); {
		if s[i] != '\\' || i+1 == len(s) {
			if !class && (strings.HasPrefix(s[i:], "[]") || strings.HasPrefix(s[i:], "[^]")) {
				return "", false
			}
			class = s[i] == '[' || class && s[i] != ']'
			out.WriteByte(s[i])
			i++
			continue
		}
		n := translateEscape(&out, s[i:], class)
		i += n
	}
	return out.String(), true
}

// translateEscape rewrites the escape sequence at the start of s and returns
// its length.
func translateEscape(out *strings.Builder, s string, class bool) int {
	switch c := s[1]; {
	case c == 'u' && len(s) >= 6:
		r, err := strconv.ParseUint(s[2:6], 16, 16)
		if err != nil {
			break
		}
		n := 6
		if len(s) >= 12 && s[6:8] == `\u` {
			if low, err := strconv.ParseUint(s[8:12], 16, 16); err == nil {
				if pair := utf16.DecodeRune(rune(r), rune(low)); pair != utf8.RuneError {
					r, n = uint64(pair), 12
				}
			}
		}
		fmt.Fprintf(out, `\x{%x}`, r)
		return n
	case c == 'c' && len(s) >= 3 && 'A' <= s[2]&^0x20 && s[2]&^0x20 <= 'Z':
		fmt.Fprintf(out, `\x%02x`, s[2]&0x1f)
		return 3
	case c == 's' && class:
		out.WriteString(space)
		return 2
	case c == 's':
		out.WriteString("[" + space + "]")
		return 2
	case c == 'S' && !class:
		out.WriteString("[^" + space + "]")
		return 2
	}
	out.WriteString(s[:2])
	return 2
}
