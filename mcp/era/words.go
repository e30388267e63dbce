package era

import (
	"bytes"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Most messages need no change. One look at the strings of a message tells
// which of the edits could have something to do; without any it is not taken
// apart at all.

// words is a set of the lexicon's words.
type words [2]uint64

var (
	nothing    = words{1: 1 << 63} // what every text has, so that all sets meet everything
	everything = words{^uint64(0), ^uint64(0)}
)

func (w words) meet(other words) bool { return w[0]&other[0]|w[1]&other[1] != 0 }

func (w *words) add(i int) { w[i/64] |= 1 << (i % 64) }

// A lexicon numbers the words of the edits.
type lexicon struct {
	numbers  []string
	byLength [][]numbered
}

type numbered struct {
	word   string
	number int
}

// set returns the words as a set, and takes new ones up. No words at all are
// everything, and so is a word for which there is no number left: looking for it
// saves time and edits do not need it.
func (l *lexicon) set(list []string) words {
	var w words
	for _, word := range list {
		i := slices.Index(l.numbers, word)
		if i < 0 {
			if i = len(l.numbers); i == 64*len(w)-1 {
				return everything
			}
			l.numbers = append(l.numbers, word)
			for len(l.byLength) <= len(word) {
				l.byLength = append(l.byLength, nil)
			}
			l.byLength[len(word)] = append(l.byLength[len(word)], numbered{word, i})
		}
		w.add(i)
	}
	if len(list) == 0 {
		return everything
	}
	return w
}

// in returns the words that are strings in v, with or without a path after a
// slash.
func (l *lexicon) in(v jsonrpc.Raw) words {
	w := nothing
	for i := 0; ; {
		n := bytes.IndexByte(v[i:], '"')
		if n < 0 {
			return w
		}
		start := i + n + 1
		end, escaped, fault := scan.String(v, start-1)
		if fault != scan.OK {
			return everything
		}
		i = end
		s := v[start : end-1]
		if escaped && hides(s) {
			return everything
		}
		if len(s) > len(metaWord) && s[len(metaWord)] == '/' {
			s = s[:len(metaWord)]
		}
		if len(s) >= len(l.byLength) {
			continue
		}
		for _, known := range l.byLength[len(s)] {
			if known.word == string(s) {
				w.add(known.number)
			}
		}
	}
}

// hides reports whether a string with escapes may be one of the words: they
// consist of letters, $, _ and /, and each may be escaped.
func hides(s []byte) bool {
	const longest = 64 * len(`\u0000`)
	return len(s) < longest && (bytes.Contains(s, []byte(`\u`)) || bytes.Contains(s, []byte(`\/`)))
}
