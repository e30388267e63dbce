package validate

import (
	"bytes"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
)

// AppendCanonical appends the one form that the valid value raw shares with
// everything that equals it in the sense of JSON Schema: members sorted, no
// space, strings and numbers written in one way. Numbers are exact: two are never
// taken for one, as they would be as float64.
func AppendCanonical(dst, raw []byte) []byte {
	switch kindOf[raw[0]] {
	case number:
		d := parseDecimal(raw)
		return d.append(dst)
	case text:
		if bytes.IndexByte(raw, '\\') < 0 {
			return append(dst, raw...)
		}
		return scan.AppendQuoted(dst, scan.Unquote(raw))
	case array:
		dst = append(dst, '[')
		for value := range elements(raw) {
			dst = append(AppendCanonical(dst, value), ',')
		}
		return append(dst, ']')
	case object:
		type member struct{ name, value []byte }
		var members []member
		scan.Object(raw, func(name, value []byte) bool {
			members = append(members, member{name, value})
			return true
		})
		slices.SortStableFunc(members, func(a, b member) int { return bytes.Compare(a.name, b.name) })
		dst = append(dst, '{')
		for _, m := range members {
			dst = append(scan.AppendQuoted(dst, m.name), ':')
			dst = append(AppendCanonical(dst, m.value), ',')
		}
		return append(dst, '}')
	default:
		return append(dst, raw...)
	}
}

// elements is scan.Array to range over.
func elements(raw []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) { scan.Array(raw, yield) }
}
