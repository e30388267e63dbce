package pin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

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
			kept, err := appendObject(nil, value, func(name string, value []byte) ([]byte, bool) { return value, name != volatileTime })
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
	scan.Object(object, func(key, value []byte) bool {
		all = append(all, member{string(key), value})
		return true
	})
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
		scan.Array(value, func(element []byte) bool {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst, err = AppendCanonical(dst, element)
			return err == nil
		})
		return append(dst, ']'), err
	case '"':
		return scan.AppendQuoted(dst, scan.Unquote(value)), nil
	case 't', 'f', 'n':
		return append(dst, value...), nil
	}
	return appendNumber(dst, value), nil
}

// appendObject appends the canonical form of a valid object. keep, unless it is nil, says which
// members stay, and with which value.
func appendObject(dst, object []byte, keep func(name string, value []byte) ([]byte, bool)) ([]byte, error) {
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
