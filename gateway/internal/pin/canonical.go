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

// pinned are the members of a tool that are hashed, in the order of their names.
var pinned = [...]string{"annotations", "description", "inputSchema", "name", "outputSchema", "title"}

const maxDepth = 256

// Hash returns the SHA-256, in hexadecimal, of what a tool says about itself: the
// canonical JSON of an object with those of the members name, title, description,
// inputSchema, outputSchema and annotations that it has.
//
// Canonical is: members in the order of their names (of their bytes in UTF-8), no
// white space, the shortest escapes, and one form for each value of a number,
// exactly. A member that is there twice is an error.
func Hash(tool jsonrpc.Raw) (string, error) {
	def, err := definition(tool)
	if err != nil {
		return "", err
	}
	return sum(def), nil
}

func sum(def []byte) string {
	s := sha256.Sum256(def)
	return hex.EncodeToString(s[:])
}

// definition returns the canonical JSON of what is pinned of a tool.
func definition(tool jsonrpc.Raw) ([]byte, error) {
	if end, f := scan.Text(tool, maxDepth); f != scan.OK {
		return nil, fmt.Errorf("the tool is no JSON: %v at offset %d", f, end)
	}
	if tool[scan.Space(tool, 0)] != '{' {
		return nil, errors.New("the tool is no object")
	}
	var values [len(pinned)][]byte
	var twice string
	scan.Object(tool, func(key, value []byte) bool {
		i, ok := slices.BinarySearchFunc(pinned[:], key, func(name string, key []byte) int { return strings.Compare(name, string(key)) })
		if ok && values[i] != nil {
			twice = pinned[i]
		} else if ok {
			values[i] = value
		}
		return twice == ""
	})
	if twice != "" {
		return nil, fmt.Errorf("the tool has the member %q twice", twice)
	}
	out := []byte{'{'}
	for i, value := range values {
		if value == nil {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(jsonrpc.AppendString(out, pinned[i]), ':')
		var err error
		if out, err = appendCanonical(out, value); err != nil {
			return nil, fmt.Errorf("%s: %w", pinned[i], err)
		}
	}
	return append(out, '}'), nil
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

// appendCanonical appends the canonical form of a valid value. It recurses; the
// depth was checked.
func appendCanonical(dst, value []byte) (out []byte, err error) {
	switch value[0] {
	case '{':
		all, err := members(value)
		if err != nil {
			return nil, err
		}
		dst = append(dst, '{')
		for i, m := range all {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsonrpc.AppendString(dst, m.name), ':')
			if dst, err = appendCanonical(dst, m.value); err != nil {
				return nil, err
			}
		}
		return append(dst, '}'), nil
	case '[':
		dst = append(dst, '[')
		first := true
		scan.Array(value, func(element []byte) bool {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst, err = appendCanonical(dst, element)
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
