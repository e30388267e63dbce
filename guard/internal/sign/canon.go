package sign

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
)

const (
	maxDepth = 512     // of containers inside each other, in what is signed
	maxNodes = 1 << 20 // of values that are not written canonically; 28 bytes each
)

// canon makes the canonical form (RFC 8785) of a JSON text. It reads the text once, checking it,
// into nodes, and writes what is already canonical as it stands. It is used again and again, and
// holds on to nothing.
type canon struct {
	raw   []byte
	nodes []node
	order []int32 // the children of containers, in the order of the canonical form
	stack []int32 // the children of those that are still open
	names []byte  // those that were written with escapes
	// meta and signature are nodes, or -1: params' _meta, and the member of it that is not signed.
	meta, signature int32
}

type node struct {
	name, nameEnd int32 // in raw; in names when it is escaped
	start, end    int32 // of the value
	first, count  int32 // of its children in order
	kind          nodeKind
	escaped       bool // the name was
}

type nodeKind uint8

const (
	plain nodeKind = iota // canonical as it stands: copied
	text
	number
	array
	object
)

// where says what an object is.
type where uint8

const (
	elsewhere where = iota
	inParams
	inMeta
	inVariant // in a member that some would take for _meta
)

// read reads a text that has nothing but white space around it.
func (c *canon) read(raw []byte, w where) *Error {
	c.raw = raw
	c.nodes, c.order, c.stack, c.names = c.nodes[:0], c.order[:0], c.stack[:0], c.names[:0]
	c.meta, c.signature = -1, -1
	if len(raw) > math.MaxInt32 {
		return failed(Malformed, "%d bytes are too many to be signed", len(raw))
	}
	end, err := c.value(scan.Space(raw, 0), maxDepth, w)
	if err != nil {
		return err
	}
	if end = scan.Space(raw, end); end < len(raw) {
		return c.fault(end, scan.Trailing)
	}
	return nil
}

// release forgets the text.
func (c *canon) release() {
	c.raw = nil
	if cap(c.nodes) > 1<<12 || cap(c.names) > 1<<16 {
		c.nodes, c.order, c.stack, c.names = nil, nil, nil, nil
	}
}

func (c *canon) fault(at int, f scan.Fault) *Error {
	return failed(Malformed, "%v at offset %d", f, at)
}

// value reads the value at i into a new node, and returns its end.
func (c *canon) value(i, depth int, w where) (int, *Error) {
	if i >= len(c.raw) {
		return i, c.fault(i, scan.End)
	}
	if len(c.nodes) >= maxNodes {
		return i, failed(Malformed,
			"more than %d values that are not in canonical form: write them as RFC 8785 says", maxNodes)
	}
	self := int32(len(c.nodes))
	c.nodes = append(c.nodes, node{start: int32(i)})
	var (
		end  int
		kind nodeKind
		err  *Error
	)
	switch b := c.raw[i]; b {
	case '{':
		end, kind, err = c.object(self, i, depth, w)
	case '[':
		end, kind, err = c.array(self, i, depth)
	case '"':
		end, kind, err = c.text(i)
	default:
		var f scan.Fault
		if end, f = scan.Value(c.raw, i, 0); f != scan.OK {
			return i, c.fault(end, f)
		}
		if b == '-' || b-'0' <= 9 {
			kind, err = numberKind(c.raw[i:end])
		}
	}
	if err != nil {
		return i, err
	}
	n := &c.nodes[self]
	n.end, n.kind = int32(end), kind
	if kind == plain {
		c.nodes = c.nodes[:self+1] // its children are copied with it
	}
	return end, nil
}

func (c *canon) text(i int) (int, nodeKind, *Error) {
	end, escaped, f := scan.String(c.raw, i)
	switch {
	case f != scan.OK:
		return i, 0, c.fault(end, f)
	case !escaped:
		return end, plain, nil
	case loneSurrogate(c.raw[i:end]):
		return i, 0, failed(Malformed,
			"half a surrogate pair in the string at offset %d cannot be signed", i)
	}
	return end, text, nil
}

func (c *canon) array(self int32, i, depth int) (int, nodeKind, *Error) {
	if depth == 0 {
		return i, 0, c.fault(i, scan.TooDeep)
	}
	kind, base, last := plain, len(c.stack), int32(-1)
	for i = i + 1; ; i++ {
		at := scan.Space(c.raw, i)
		if at != i {
			kind = array
		}
		if last < 0 && at < len(c.raw) && c.raw[at] == ']' {
			return at + 1, kind, nil
		}
		child := int32(len(c.nodes))
		end, err := c.value(at, depth-1, elsewhere)
		if err != nil {
			return i, 0, err
		}
		if c.nodes[child].kind != plain {
			kind = array
		}
		if last >= 0 && at == i && c.nodes[child].kind == plain && c.nodes[last].kind == plain &&
			int(c.nodes[last].end) == i-1 {
			c.nodes[last].end = int32(end) // one node does for both, and the comma
			c.nodes = c.nodes[:child]
		} else {
			last = child
			c.stack = append(c.stack, child)
		}
		if i = scan.Space(c.raw, end); i != end {
			kind = array
		}
		if i >= len(c.raw) {
			return i, 0, c.fault(i, scan.End)
		}
		if c.raw[i] == ']' {
			c.close(self, base, kind)
			return i + 1, kind, nil
		}
		if c.raw[i] != ',' {
			return i, 0, c.fault(i, scan.NoComma)
		}
	}
}

func (c *canon) object(self int32, i, depth int, w where) (int, nodeKind, *Error) {
	if depth == 0 {
		return i, 0, c.fault(i, scan.TooDeep)
	}
	kind, base, sorted := plain, len(c.stack), true
	for i = i + 1; ; i++ {
		at := scan.Space(c.raw, i)
		if at != i {
			kind = object
		}
		if len(c.stack) == base && at < len(c.raw) && c.raw[at] == '}' {
			return at + 1, kind, nil
		}
		child := int32(len(c.nodes))
		end, tight, err := c.member(at, depth-1, w)
		if err != nil {
			return i, 0, err
		}
		if len(c.stack) > base && sorted {
			sorted = compareUTF16(c.name(c.stack[len(c.stack)-1]), c.name(child)) < 0
		}
		c.stack = append(c.stack, child)
		i = scan.Space(c.raw, end)
		if !tight || i != end || !sorted {
			kind = object
		}
		if i >= len(c.raw) {
			return i, 0, c.fault(i, scan.End)
		}
		if c.raw[i] == '}' {
			if !sorted {
				if at := c.sort(c.stack[base:]); at >= 0 {
					return i, 0, duplicate(at)
				}
			}
			c.close(self, base, kind)
			return i + 1, kind, nil
		}
		if c.raw[i] != ',' {
			return i, 0, c.fault(i, scan.NoComma)
		}
	}
}

func duplicate(at int) *Error {
	return failed(Malformed,
		"the member at offset %d is there twice: what is signed must mean one thing", at)
}

// member reads a member into a new node. tight means that it is canonical.
func (c *canon) member(i, depth int, w where) (end int, tight bool, err *Error) {
	if i >= len(c.raw) {
		return i, false, c.fault(i, scan.End)
	}
	if c.raw[i] != '"' {
		return i, false, c.fault(i, scan.NoKey)
	}
	end, escaped, f := scan.String(c.raw, i)
	if f != scan.OK {
		return i, false, c.fault(end, f)
	}
	key := c.raw[i+1 : end-1]
	name, nameEnd := int32(i+1), int32(end-1)
	if escaped {
		if loneSurrogate(c.raw[i:end]) {
			return i, false, failed(Malformed,
				"half a surrogate pair in the name at offset %d cannot be signed", i)
		}
		name = int32(len(c.names))
		c.names = scan.AppendUnquoted(c.names, c.raw[i:end])
		nameEnd = int32(len(c.names))
		key = c.names[name:nameEnd]
	}
	at, f := scan.Colon(c.raw, end)
	if f != scan.OK {
		return i, false, c.fault(at, f)
	}
	tight = !escaped && at == end+1
	child := int32(len(c.nodes))
	inside := elsewhere
	switch {
	case w == elsewhere:
	case w == inParams:
		if string(key) == metaName {
			inside, c.meta = inMeta, child
			tight = false // so that its node stays
		} else if isName(key, metaName) {
			inside = inVariant
		}
	case isName(key, memberName):
		if w == inVariant || string(key) != memberName {
			return i, false, failed(Malformed, "a signature must be the member %q of %q, written like that",
				memberName, metaName)
		}
		if c.signature >= 0 {
			return i, false, duplicate(i)
		}
		c.signature = child
		tight = false // so that it is not copied with the rest
	}
	if end, err = c.value(at, depth, inside); err != nil {
		return i, false, err
	}
	n := &c.nodes[child]
	n.name, n.nameEnd, n.escaped = name, nameEnd, escaped
	return end, tight && n.kind == plain, nil
}

// name is the name of a member, unescaped.
func (c *canon) name(i int32) []byte {
	n := &c.nodes[i]
	if n.escaped {
		return c.names[n.name:n.nameEnd]
	}
	return c.raw[n.name:n.nameEnd]
}

// close gives a container its children, unless it is copied as it stands.
func (c *canon) close(self int32, base int, kind nodeKind) {
	if kind != plain {
		n := &c.nodes[self]
		n.first, n.count = int32(len(c.order)), int32(len(c.stack)-base)
		c.order = append(c.order, c.stack[base:]...)
	}
	c.stack = c.stack[:base]
}

// sort puts members in order, and returns the offset of one that is there twice, or -1.
func (c *canon) sort(members []int32) int {
	slices.SortFunc(members, func(a, b int32) int { return compareUTF16(c.name(a), c.name(b)) })
	for i := 1; i < len(members); i++ {
		if bytes.Equal(c.name(members[i-1]), c.name(members[i])) {
			return int(max(c.nodes[members[i-1]].start, c.nodes[members[i]].start))
		}
	}
	return -1
}

// canonical appends the canonical form of what was read, without the signature.
func (c *canon) canonical(dst []byte, self int32) []byte {
	n := &c.nodes[self]
	raw := c.raw[n.start:n.end]
	switch n.kind {
	case text:
		return scan.AppendQuoted(dst, scan.Unquote(raw))
	case number:
		dst, _ = appendNumber(dst, raw)
		return dst
	case array:
		dst = append(dst, '[')
		for i, child := range c.order[n.first : n.first+n.count] {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = c.canonical(dst, child)
		}
		return append(dst, ']')
	case object:
		dst = append(dst, '{')
		empty := true
		for _, child := range c.order[n.first : n.first+n.count] {
			if child == c.signature {
				continue
			}
			if !empty {
				dst = append(dst, ',')
			}
			empty = false
			if m := &c.nodes[child]; m.escaped {
				dst = scan.AppendQuoted(dst, c.name(child))
			} else {
				dst = append(dst, c.raw[m.name-1:m.nameEnd+1]...)
			}
			dst = c.canonical(append(dst, ':'), child)
		}
		return append(dst, '}')
	default:
		return append(dst, raw...)
	}
}

// compareUTF16 compares UTF-8 texts by their UTF-16 code units (RFC 8785 §3.2.3). The order of
// bytes is the same but for characters beyond U+FFFF, because their surrogates come before U+E000
// to U+FFFF.
func compareUTF16(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}

// loneSurrogate reports whether a valid string has an escaped surrogate without its partner, which
// no UTF-8 can say.
func loneSurrogate(raw []byte) bool {
	for i := 0; i+5 < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' || raw[i+1]|0x20 != 'd' || raw[i+2] < '8' {
			continue
		}
		// DC00 and above come second only.
		if raw[i+2]|0x20 >= 'c' || i+10 >= len(raw) || string(raw[i+5:i+7]) != `\u` ||
			raw[i+7]|0x20 != 'd' || raw[i+8]|0x20 < 'c' {
			return true
		}
		i += 10
	}
	return false
}

// numberKind says whether a number is canonical. One that changes its value by becoming a double is
// refused: anyone who reads it with more precision would read something else than what was signed.
func numberKind(raw []byte) (nodeKind, *Error) {
	if len(raw) <= 15 && raw[0] != '-' && !bytes.ContainsAny(raw, ".eE") {
		return plain, nil
	}
	var buf [32]byte
	canonical, ok := appendNumber(buf[:0], raw)
	switch {
	case !ok:
		return 0, tooPrecise(raw)
	case bytes.Equal(canonical, raw):
		return plain, nil
	case !bytes.Equal(validate.AppendCanonical(nil, raw), validate.AppendCanonical(nil, canonical)):
		return 0, tooPrecise(raw)
	}
	return number, nil
}

func tooPrecise(raw []byte) *Error {
	if len(raw) > 40 {
		raw = append(raw[:40:40], "..."...)
	}
	return failed(Malformed,
		"the number %s is not what a double of its value is written as (RFC 8785 §3.2.2.3): send it "+
			"as a string", raw)
}

// appendNumber appends a number as ECMAScript writes the double nearest to it. It is not ok when
// that is infinite.
func appendNumber(dst, raw []byte) ([]byte, bool) {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return dst, false
	}
	if f == 0 {
		return append(dst, '0'), true // also -0
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64), true
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	if n := len(dst); dst[n-2] == '0' && dst[n-3] == '-' { // e-09 is e-9
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst, true
}

// isName reports whether key is name, or what some who read JSON without regard to case take for
// it.
func isName(key []byte, name string) bool {
	// ſ (U+017F) folds to s and is a byte longer.
	return len(key) >= len(name) && len(key) <= len(name)+2 && strings.EqualFold(string(key), name)
}
