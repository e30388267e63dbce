// Package markdown writes parts of generated documents. Only tests import it.
package markdown

import (
	"strings"
	"unicode/utf8"
)

// Item returns an item of a list with its mark, such as "- ", in lines of 100 columns.
func Item(mark, text string) string {
	var b strings.Builder
	b.WriteString(mark)
	column := len(mark)
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case column+1+n > 100:
			b.WriteString("\n" + strings.Repeat(" ", len(mark)))
			column = len(mark)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
	return b.String()
}
