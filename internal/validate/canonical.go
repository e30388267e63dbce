package validate

import (
	"bytes"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
)

// appendCanonical appends the one form that the valid value raw shares with
// everything that equals it in the sense of JSON Schema.
func appendCanonical(dst, raw []byte) []byte {
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
			dst = append(appendCanonical(dst, value), ',')
		}
		return append(dst, ']')
	case object:
		var members [][]byte
		scan.Object(raw, func(key, value []byte) bool {
			m := append(scan.AppendQuoted(nil, key), ':')
			members = append(members, appendCanonical(m, value))
			return true
		})
		slices.SortFunc(members, bytes.Compare)
		dst = append(dst, '{')
		for _, m := range members {
			dst = append(append(dst, m...), ',')
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
