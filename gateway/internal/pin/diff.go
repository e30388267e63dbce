package pin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
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
	a, b := slices.Collect(scan.Elements(was)), slices.Collect(scan.Elements(now))
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		d.values(path+"["+strconv.Itoa(i)+"]", a[i], b[i])
	}
	return true
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
		for key, v := range scan.Members(object) {
			both := values[string(key)]
			both[i] = v
			values[string(key)] = both
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
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
	return r != ' ' && !unicode.IsGraphic(r) || unicode.Is(unicode.Zs, r) && r != ' ' ||
		unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) ||
		unicode.Is(unicode.Variation_Selector, r)
}

const maxDepth = 256

// volatile are the members of a resource that its content changes, and that are not pinned: its
// size, and when it was modified.
const (
	volatileSize = "size"
	volatileTime = "lastModified"
)

// Hash returns the SHA-256, in hexadecimal, of the canonical JSON of an item of a list: of all
// its members, also _meta, icons and those that no revision knows, as a client gets all of
// them. Only the size of a resource and the time of its last change are left out.
//
// Canonical is: members in the order of their names (of their bytes in UTF-8), no
// white space, the shortest escapes, and one form for each value of a number,
// exactly. A member that is there twice is an error.
func Hash(list string, item jsonrpc.Raw) (string, error) {
	def, err := definition(list, item)
	if err != nil {
		return "", err
	}
	return sum(def), nil
}

func sum(def []byte) string {
	s := sha256.Sum256(def)
	return hex.EncodeToString(s[:])
}

// definition returns the canonical JSON of what is pinned of an item.
func definition(list string, item jsonrpc.Raw) ([]byte, error) {
	if end, f := scan.Text(item, maxDepth); f != scan.OK {
		return nil, fmt.Errorf("it is no JSON: %v at offset %d", f, end)
	}
	start := scan.Space(item, 0)
	if item[start] != '{' {
		return nil, errors.New("it is no object")
	}
	if list != Resources {
		return AppendCanonical(nil, item[start:])
	}
	return appendObject(nil, item[start:], func(name string, value []byte) ([]byte, bool) {
		switch {
		case name == volatileSize:
			return nil, false
		case name == "annotations" && value[0] == '{':
			kept, err := appendObject(nil, value, func(name string, value []byte) ([]byte, bool) {
				return value, name != volatileTime
			})
			if err != nil {
				return value, true // which fails as well
			}
			return kept, string(kept) != "{}"
		}
		return value, true
	})
}

type member struct {
	name  string
	value []byte
}

// members returns those of a valid object, in the order of their names.
func members(object []byte) ([]member, error) {
	var all []member
	for key, value := range scan.Members(object) {
		all = append(all, member{string(key), value})
	}
	slices.SortStableFunc(all, func(a, b member) int { return strings.Compare(a.name, b.name) })
	for i := 1; i < len(all); i++ {
		if all[i].name == all[i-1].name {
			return nil, fmt.Errorf("the member %.100q is there twice", all[i].name)
		}
	}
	return all, nil
}

// AppendCanonical appends a form of a valid value that is the same for equal values: without white
// space, members in one order, numbers in one form. Its error says which member is there twice. It
// recurses; the depth was checked.
func AppendCanonical(dst, value []byte) (out []byte, err error) {
	switch value[0] {
	case '{':
		return appendObject(dst, value, nil)
	case '[':
		dst = append(dst, '[')
		first := true
		for element := range scan.Elements(value) {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			if dst, err = AppendCanonical(dst, element); err != nil {
				return nil, err
			}
		}
		return append(dst, ']'), nil
	case '"':
		return scan.AppendQuoted(dst, scan.Unquote(value)), nil
	case 't', 'f', 'n':
		return append(dst, value...), nil
	}
	return appendNumber(dst, value), nil
}

// appendObject appends the canonical form of a valid object. keep, unless it is nil, says which
// members stay, and with which value.
func appendObject(
	dst, object []byte, keep func(name string, value []byte) ([]byte, bool),
) ([]byte, error) {
	all, err := members(object)
	if err != nil {
		return nil, err
	}
	dst = append(dst, '{')
	first := true
	for _, m := range all {
		value := m.value
		if keep != nil {
			var stays bool
			if value, stays = keep(m.name, value); !stays {
				continue
			}
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(jsonrpc.AppendString(dst, m.name), ':')
		if dst, err = AppendCanonical(dst, value); err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

// appendNumber appends the one form of a number's value. Nothing is rounded.
func appendNumber(dst, number []byte) []byte {
	text, negative := bytes.CutPrefix(number, []byte{'-'})
	exp := 0
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		var err error
		if exp, err = strconv.Atoi(string(text[i+1:])); err != nil || exp > 1e6 || exp < -1e6 {
			return append(dst, number...)
		}
		text = text[:i]
	}
	whole, fraction, _ := bytes.Cut(text, []byte{'.'})
	digits := append(slices.Clone(whole), fraction...)
	exp -= len(fraction)
	digits = bytes.TrimLeft(digits, "0")
	n := len(digits)
	digits = bytes.TrimRight(digits, "0")
	exp += n - len(digits)
	if len(digits) == 0 {
		return append(dst, '0')
	}
	if negative {
		dst = append(dst, '-')
	}
	point := len(digits) + exp // where the point is, from the first digit on
	switch {
	case exp >= 0 && point <= 21:
		dst = append(dst, digits...)
		return append(dst, bytes.Repeat([]byte{'0'}, exp)...)
	case exp < 0 && point > 0:
		dst = append(append(dst, digits[:point]...), '.')
		return append(dst, digits[point:]...)
	case exp < 0 && point > -6:
		dst = append(append(dst, "0."...), bytes.Repeat([]byte{'0'}, -point)...)
		return append(dst, digits...)
	}
	dst = append(append(dst, digits...), 'e')
	return strconv.AppendInt(dst, int64(exp), 10)
}
