package era

import (
	"bytes"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An edit changes JSON values. It keeps every byte that it need not change, and
// returns the value itself when there is nothing to change. A value that is not
// what it expects is none of its business and stays as it is.
//
// Edits are nested as deep as the protocol's types are, and never recurse.
type edit struct {
	// words are member names, or strings, and without any of them there is nothing
	// to change. An edit without words may change every text.
	words []string
	// do returns the new value, nil to remove it from its object or array, or
	// several values with commas between them to put them in its place.
	do func(v jsonrpc.Raw) (jsonrpc.Raw, error)
}

// cannot is the error for what the other revision has no words for.
type cannot string

func (c cannot) Error() string { return string(c) }

// when is an edit that has nothing to do in texts without the word.
func when(word string, do func(v jsonrpc.Raw) (jsonrpc.Raw, error)) edit {
	return edit{words: []string{word}, do: do}
}

// within is the edit do, which applies e to parts of a value.
func (e edit) within(do func(v jsonrpc.Raw) (jsonrpc.Raw, error)) edit {
	return edit{words: e.words, do: do}
}

// all makes one edit of several, to be done in order.
func all(edits ...edit) edit {
	if len(edits) == 1 {
		return edits[0]
	}
	var words []string
	always := false
	for _, e := range edits {
		always = always || e.words == nil
		words = append(words, e.words...)
	}
	if always {
		words = nil
	}
	return edit{words: words, do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		for _, e := range edits {
			var err error
			if v, err = e.do(v); err != nil || v == nil {
				return v, err
			}
		}
		return v, nil
	}}
}

// member applies e to the member of that name.
func member(name string, e edit) edit {
	if e.words == nil {
		e.words = []string{name}
	}
	return e.within(func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		return rewrite(v, '{', func(key []byte, value jsonrpc.Raw) (jsonrpc.Raw, error) {
			if string(key) != name {
				return value, nil
			}
			return e.do(value)
		})
	})
}

// path applies e to the member that the names lead to, one object in another.
func path(e edit, names ...string) edit {
	for _, name := range slices.Backward(names) {
		e = member(name, e)
	}
	return e
}

// drop removes members.
func drop(names ...string) edit {
	return edit{words: names, do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		return rewrite(v, '{', func(key []byte, value jsonrpc.Raw) (jsonrpc.Raw, error) {
			if slices.Contains(names, string(key)) {
				return nil, nil
			}
			return value, nil
		})
	}}
}

// values applies e to the value of each member of an object.
func values(e edit) edit {
	return e.within(func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		return rewrite(v, '{', func(_ []byte, value jsonrpc.Raw) (jsonrpc.Raw, error) {
			return e.do(value)
		})
	})
}

// each applies e to each element of an array, or to a value that is no array.
func each(e edit) edit {
	return e.within(func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		if !begins(v, '[') {
			return e.do(v)
		}
		return rewrite(v, '[', func(_ []byte, value jsonrpc.Raw) (jsonrpc.Raw, error) {
			return e.do(value)
		})
	})
}

// ofType applies e to an object with name as its member "type".
func ofType(name string, e edit) edit {
	return when(name, func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		if !is(scan.Member(v, "type"), name) {
			return v, nil
		}
		return e.do(v)
	})
}

// metaWord begins all keys of _meta that the protocol has for itself. A slash
// follows it.
const metaWord = "io.modelcontextprotocol"

// dropMeta removes the protocol's own keys from _meta, and _meta when nothing
// is left in it.
func dropMeta(names ...string) edit {
	return when(metaWord, member("_meta", edit{do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		left := false
		out, err := rewrite(v, '{', func(key []byte, value jsonrpc.Raw) (jsonrpc.Raw, error) {
			if name, ok := bytes.CutPrefix(key, []byte(metaWord+"/")); ok &&
				slices.Contains(names, string(name)) {
				return nil, nil
			}
			left = true
			return value, nil
		})
		if err != nil || !left && !same(out, v) {
			return nil, err
		}
		return out, nil
	}}).do)
}

// rename gives members other names: of each pair the first becomes the second.
func rename(pairs ...[2]string) edit {
	var words []string
	for _, pair := range pairs {
		words = append(words, pair[0])
	}
	return edit{words: words, do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		for _, pair := range pairs {
			value := scan.Member(v, pair[0])
			if value == nil {
				continue
			}
			v, _ = drop(pair[0]).do(v)
			if scan.Member(v, pair[1]) == nil {
				v = with(v, pair[1], value)
			}
		}
		return v, nil
	}}
}

// rewrite calls f for each member of an object, or with a nil key for each
// element of an array, and puts what it returns in the place of the value. Open
// is the bracket that v must begin with. Of a text that is not valid nothing is
// changed.
func rewrite(
	v jsonrpc.Raw, open byte, f func(key []byte, value jsonrpc.Raw) (jsonrpc.Raw, error),
) (jsonrpc.Raw, error) {
	if !begins(v, open) {
		return v, nil
	}
	var out []byte
	i := scan.Space(v, 0) + 1
	first, changed, kept := i, false, false
	for done := i; ; i++ { // v[:done] is dealt with
		p, ok := part(v, scan.Space(v, i), open)
		if !ok {
			return v, nil
		}
		if p.end == p.start { // the closing bracket of {} or []
			break
		}
		value, err := f(p.key, v[p.value:p.end:p.end])
		if err != nil {
			return nil, err
		}
		if !changed && !same(value, v[p.value:p.end]) {
			changed = true
			out = append(make([]byte, 0, len(v)+len(value)), v[:done]...)
		}
		if changed && value != nil {
			if kept || done == first {
				out = append(out, v[done:p.start]...)
			}
			out = append(append(out, v[p.start:p.value]...), value...)
		}
		kept = kept || value != nil
		done = p.end
		if i = scan.Space(v, p.end); i >= len(v) || v[i] != ',' {
			if changed {
				return append(out, v[done:]...), nil
			}
			break
		}
	}
	return v, nil
}

// extent is the place of a member or an element in a text.
type extent struct {
	key               []byte
	start, value, end int // of the name (or value), of the value, and the end
}

// part returns the extent of the member or the element that starts at v[i].
// It is empty at the closing bracket.
func part(v jsonrpc.Raw, i int, open byte) (p extent, ok bool) {
	p = extent{start: i, value: i, end: i}
	if i < len(v) && v[i] == open+2 {
		return p, true
	}
	var f scan.Fault
	if open == '{' {
		if i >= len(v) || v[i] != '"' {
			return p, false
		}
		end, escaped, f := scan.String(v, i)
		if f != scan.OK {
			return p, false
		}
		if p.key = v[i+1 : end-1]; escaped {
			p.key = scan.Unquote(v[i:end])
		}
		if p.value, f = scan.Colon(v, end); f != scan.OK {
			return p, false
		}
	}
	p.end, f = scan.Value(v, p.value, -1)
	return p, f == scan.OK
}

// with adds a member at the end of an object. Of anything else it makes one.
func with(v jsonrpc.Raw, name string, value jsonrpc.Raw) jsonrpc.Raw {
	end := bytes.LastIndexByte(v, '}')
	if !begins(v, '{') || end < 0 {
		v, end = jsonrpc.Raw("{}"), 1
	}
	body := bytes.TrimRight(v[:end], " \t\r\n")
	out := append(make([]byte, 0, len(v)+len(name)+len(value)+4), body...)
	if body[len(body)-1] != '{' {
		out = append(out, ',')
	}
	out = append(append(out, quoted(name)...), ':')
	return append(append(out, value...), v[end:]...)
}

// add adds a member to an object that does not have it.
func add(name, value string) edit {
	return edit{do: func(v jsonrpc.Raw) (jsonrpc.Raw, error) {
		if !begins(v, '{') || scan.Member(v, name) != nil ||
			!bytes.HasSuffix(bytes.TrimRight(v, " \t\r\n"), []byte{'}'}) {
			return v, nil
		}
		return with(v, name, jsonrpc.Raw(value)), nil
	}}
}

// begins reports whether the value v begins with that byte.
func begins(v jsonrpc.Raw, c byte) bool {
	i := scan.Space(v, 0)
	return i < len(v) && v[i] == c
}

// same reports whether a is b itself.
func same(a, b jsonrpc.Raw) bool {
	return a != nil && len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// text returns the characters of a valid string, and "" for any other value.
func text(v jsonrpc.Raw) string {
	if !begins(v, '"') {
		return ""
	}
	return string(scan.Unquote(v))
}

// is reports whether v, a valid value or nil, is the string s.
func is(v jsonrpc.Raw, s string) bool {
	return begins(v, '"') && string(scan.Unquote(v)) == s
}

func quoted[S string | []byte](s S) []byte { return scan.AppendQuoted(nil, s) }

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
