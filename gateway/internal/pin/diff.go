package pin

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	maxDiff    = 64 << 10 // bytes of all of it
	maxLine    = 4000     // and of one line, about
	nearby     = 6        // words that are shown around those that differ
	maxCompare = 1 << 20  // pairs of words that are compared
)

// A differ writes what differs between two definitions. Each line says where,
// after a mark: "-" is gone, "+" is new.
type differ struct {
	out  strings.Builder
	left int // lines that there is no room for
}

// diff compares two canonical definitions; nil is none.
func diff(was, now []byte) string {
	d := &differ{}
	d.objects("", was, now)
	if d.left > 0 {
		fmt.Fprintf(&d.out, "… and %d more lines\n", d.left)
	}
	return d.out.String()
}

func (d *differ) line(mark byte, path, text string) {
	if d.out.Len() > maxDiff {
		d.left++
		return
	}
	if n := len(text); n > maxLine {
		end := maxLine
		for !utf8.RuneStart(text[end]) {
			end--
		}
		text = fmt.Sprintf("%s… (and %d bytes more)", text[:end], n-end)
	}
	fmt.Fprintf(&d.out, "%c %s: %s\n", mark, path, line(text))
}

func (d *differ) values(path string, was, now []byte) {
	if bytes.Equal(was, now) || was != nil && now != nil && d.parts(path, was, now) {
		return
	}
	if was != nil {
		d.line('-', path, value(was))
	}
	if now != nil {
		d.line('+', path, value(now))
	}
}

// parts writes what differs inside of two values, if that can be described.
func (d *differ) parts(path string, was, now []byte) bool {
	switch first := was[0]; {
	case first != now[0]:
		return false
	case first == '{':
		d.objects(path, was, now)
		return true
	case first == '"':
		d.texts(path, string(scan.Unquote(was)), string(scan.Unquote(now)))
		return true
	case first != '[' || flat(was) && flat(now):
		return false
	}
	a, b := elements(was), elements(now)
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		d.values(path+"["+strconv.Itoa(i)+"]", a[i], b[i])
	}
	return true
}

func elements(array []byte) (all [][]byte) {
	scan.Array(array, func(v []byte) bool {
		all = append(all, v)
		return true
	})
	return all
}

// value returns a text as it is, and anything else as JSON.
func value(v []byte) string {
	if v[0] == '"' {
		return string(scan.Unquote(v))
	}
	return string(v)
}

func (d *differ) objects(path string, was, now []byte) {
	values := map[string][2][]byte{}
	for i, object := range [2][]byte{was, now} {
		scan.Object(object, func(key, v []byte) bool {
			both := values[string(key)]
			both[i] = v
			values[string(key)] = both
			return true
		})
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		d.values(join(path, name), values[name][0], values[name][1])
	}
}

// join appends a name to a path. A name that does not read as one is quoted.
func join(path, name string) string {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-$", r)
	}) {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// texts writes the words that differ, with some around them.
func (d *differ) texts(path, was, now string) {
	a, b := words(was), words(now)
	for _, h := range hunks(a, b) {
		if h.fromA < h.toA {
			d.line('-', path, around(a, h.fromA, h.toA))
		}
		if h.fromB < h.toB {
			d.line('+', path, around(b, h.fromB, h.toB))
		}
	}
}

// words cuts a text into words, each with the white space that follows it.
func words(text string) (all []string) {
	start, space := 0, false
	for i, r := range text {
		if is := unicode.IsSpace(r); is != space {
			if !is {
				all = append(all, text[start:i])
				start = i
			}
			space = is
		}
	}
	if start < len(text) {
		all = append(all, text[start:])
	}
	return all
}

func around(words []string, from, to int) string {
	start, end := max(0, from-nearby), min(len(words), to+nearby)
	text := strings.Join(words[start:end], "")
	if start > 0 {
		text = "… " + text
	}
	if end < len(words) {
		text += "…"
	}
	return text
}

// A hunk is a part of a that has become a part of b.
type hunk struct{ fromA, toA, fromB, toB int }

// hunks compares two texts by their longest common subsequence of words. Where
// that would take too long, they differ as a whole between their common ends.
// Hunks that are close are one.
func hunks(a, b []string) []hunk {
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	endA, endB := len(a), len(b)
	for endA > start && endB > start && a[endA-1] == b[endB-1] {
		endA, endB = endA-1, endB-1
	}
	n, m := endA-start, endB-start
	if n == 0 || m == 0 || n > maxCompare/m {
		return []hunk{{start, endA, start, endB}}
	}
	return pair(a[start:endA], b[start:endB], start)
}

// pair returns the hunks of two texts that begin at a place.
func pair(a, b []string, start int) (all []hunk) {
	length := common(a, b)
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		fromA, fromB := i, j
		for i < len(a) && j < len(b) && a[i] != b[j] {
			if length[i+1][j] >= length[i][j+1] {
				i++
			} else {
				j++
			}
		}
		if i == len(a) || j == len(b) {
			i, j = len(a), len(b)
		}
		if i+j > fromA+fromB {
			last := len(all) - 1
			if last >= 0 && start+fromA-all[last].toA <= nearby {
				all[last].toA, all[last].toB = start+i, start+j
			} else {
				all = append(all, hunk{start + fromA, start + i, start + fromB, start + j})
			}
			continue
		}
		i, j = i+1, j+1
	}
	return all
}

// common returns a table: [i][j] is how many words the longest common subsequence
// of a[i:] and b[j:] has.
func common(a, b []string) [][]int32 {
	table := make([][]int32, len(a)+1)
	for i := range table {
		table[i] = make([]int32, len(b)+1)
	}
	for i, one := range slices.Backward(a) {
		for j, other := range slices.Backward(b) {
			if one == other {
				table[i][j] = table[i+1][j+1] + 1
			} else {
				table[i][j] = max(table[i+1][j], table[i][j+1])
			}
		}
	}
	return table
}

// line makes a text one line in which all can be seen.
func line(text string) string {
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case hidden(r) && r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	return r != ' ' && !unicode.IsGraphic(r) || unicode.Is(unicode.Zs, r) && r != ' ' || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r)
}
