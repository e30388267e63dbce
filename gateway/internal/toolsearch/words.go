package toolsearch

import (
	_ "embed"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a query.
const (
	maxQuery = 400 // bytes that are read
	maxTerms = 32
	maxWord  = 40 // bytes of a word; a longer one is cut
)

// stops are words that say nothing about a tool: articles, prepositions, pronouns, and those of a
// question. Verbs such as get and list do.
var stops = setOf(
	"the a an of to for in on with my me please is are was were be been do does did has have " +
		"what which who when where why how this that these those it its i we our us you your they " +
		"their there and or as at by into about can could should would will need want all any some " +
		"from not no if so than then just only also every each one")

func setOf(words string) map[string]bool {
	all := map[string]bool{}
	for w := range strings.FieldsSeq(words) {
		all[w] = true
	}
	return all
}

// A word is a run of letters and digits in its lower-case form, with the words that it is made of:
// "createIssue" is "create" and "issue". One that cannot be divided has no parts.
type word struct {
	whole string
	parts []string
}

// terms calls yield for the terms of a text, in their order, until it returns false. A divided word
// yields its parts, and then itself.
func terms(text string, yield func(term string) bool) {
	words(text, func(w word) bool {
		for _, part := range w.parts {
			if !yield(part) {
				return false
			}
		}
		return yield(w.whole)
	})
}

// words calls yield for the words of a text until it returns false.
func words(text string, yield func(w word) bool) {
	for len(text) > 0 {
		start := strings.IndexFunc(text, isWord)
		if start < 0 {
			return
		}
		text = text[start:]
		end := strings.IndexFunc(text, func(r rune) bool { return !isWord(r) })
		if end < 0 {
			end = len(text)
		}
		run := text[:end]
		text = text[end:]
		if r, _ := utf8.DecodeRuneInString(run); unspaced(r) {
			if !pairs(run, yield) {
				return
			}
			continue
		}
		if w := wordOf(run); w.whole != "" && !yield(w) {
			return
		}
	}
}

func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.Is(unicode.Mn, r)
}

// unspaced reports whether a letter is of a script that is written without spaces between words.
func unspaced(r rune) bool {
	return r >= 0x0e00 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana,
		unicode.Hangul, unicode.Thai, unicode.Lao, unicode.Khmer)
}

// pairs calls yield for each two letters that are next to each other.
func pairs(run string, yield func(w word) bool) bool {
	letters := []rune(strings.ToLower(run))
	if len(letters) == 1 {
		return yield(word{whole: string(letters)})
	}
	for i := range len(letters) - 1 {
		if !yield(word{whole: string(letters[i : i+2])}) {
			return false
		}
	}
	return true
}

// wordOf divides a run where a capital letter begins a word and where letters and digits meet. A
// word that says nothing is empty.
func wordOf(run string) (w word) {
	start := 0
	var last rune
	for i, r := range run {
		switch next, _ := utf8.DecodeRuneInString(run[i+utf8.RuneLen(r):]); {
		case i == 0:
		case unicode.IsLower(last) && unicode.IsUpper(r),
			unicode.IsDigit(last) != unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r),
			unicode.IsUpper(last) && unicode.IsUpper(r) && unicode.IsLower(next) && i > start+1:
			w.parts = append(w.parts, normal(run[start:i]))
			start = i
		}
		last = r
	}
	if w.whole = normal(run); start > 0 {
		w.parts = append(w.parts, normal(run[start:]))
		return w
	}
	if stops[strings.ToLower(run)] {
		return word{}
	}
	return w
}

// normal returns the form in which a word is compared: in lower case and without the ending of the
// plural.
func normal(run string) string {
	s := strings.ToLower(run)
	if len(s) > maxWord {
		end := maxWord
		for !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	switch n := len(s); {
	case n < 4 || s[n-1] != 's':
	case strings.HasSuffix(s, "ss"), strings.HasSuffix(s, "us"), strings.HasSuffix(s, "is"):
	case n > 4 && strings.HasSuffix(s, "ies"):
		return s[:n-3] + "y"
	case n > 4 && (strings.HasSuffix(s, "sses") || strings.HasSuffix(s, "xes") ||
		strings.HasSuffix(s, "ches") || strings.HasSuffix(s, "shes")):
		return s[:n-2]
	default:
		return s[:n-1]
	}
	return s
}

// fold returns a name as names are compared: without case and separators.
func fold(name string) string {
	return strings.Map(func(r rune) rune {
		if isWord(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

// groups has words that are used for each other, a group a line. One counts as another of its group
// with the weight of a synonym.
//
//go:embed synonyms.txt
var groups string

// synonyms are those of each word.
var synonyms = func() map[string][]string {
	all := map[string][]string{}
	for line := range strings.Lines(groups) {
		group := strings.Fields(line)
		for _, w := range group {
			for _, other := range group {
				if other != w {
					all[w] = append(all[w], other)
				}
			}
		}
	}
	return all
}()
