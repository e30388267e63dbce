package openapi

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

var (
	markdownLink = regexp.MustCompile(`!?\[([^\]\n]*)\]\([^)\n]*\)`)
	htmlTag      = regexp.MustCompile(`</?[a-zA-Z][^<>]*>`)
)

// clean returns a text of a document for models and people: in one line, without control,
// bidirectional and invisible characters, which could hide what it says.
func clean(s string) string {
	var b strings.Builder
	space := false
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case unicode.IsSpace(r):
			space = true
			continue
		case hidden(r):
			continue
		}
		if space && b.Len() > 0 {
			b.WriteByte(' ')
		}
		space = false
		b.WriteRune(r)
	}
	return b.String()
}

// hidden reports whether a character is not seen, or changes how others are seen.
func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) && r != '\u200d' || unicode.Is(unicode.Co, r) || unicode.Is(unicode.Noncharacter_Code_Point, r)
}

// unclean reports whether a name holds characters that clean leaves out.
func unclean(name string) bool { return !utf8.ValidString(name) || strings.ContainsFunc(name, hidden) }

// paragraph returns the first paragraph of a description in Markdown, without links and tags.
func paragraph(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n"))
	s, _, _ = strings.Cut(s, "\n\n")
	s = clean(htmlTag.ReplaceAllString(markdownLink.ReplaceAllString(s, "$1"), " "))
	return strings.NewReplacer(" .", ".", " ,", ",").Replace(s)
}

// shorten cuts a text at the end of a word.
func shorten(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	cut := 0
	for i, n := 0, 0; n < limit-1; n++ {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
		cut = i
	}
	if at := strings.LastIndexByte(s[:cut], ' '); at > cut/2 {
		cut = at
	}
	return strings.TrimRight(s[:cut], " ,;:") + "…"
}

// sentence returns the first sentence.
func sentence(s string) string {
	if i := strings.Index(s, ". "); i > 0 {
		return s[:i+1]
	}
	return s
}
