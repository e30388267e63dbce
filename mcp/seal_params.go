package mcp

import (
	"bytes"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// paramsDigest says what a call asks for. It is the same in each round, also
// when something on the way writes the JSON in another way.
type paramsDigest [sha256.Size]byte

// digestParams digests params without the members that differ from round to
// round.
func digestParams(params jsonrpc.Raw) paramsDigest {
	return sha256.Sum256(appendCanonical(nil, params, "_meta", "inputResponses", "requestState"))
}

type pair struct{ name, value []byte }

// appendCanonical appends the valid value v in one spelling: members sorted,
// without space, and strings and numbers as they are written shortest. The
// members of v that are called as one of without are left out.
func appendCanonical(dst, v []byte, without ...string) []byte {
	i := scan.Space(v, 0)
	if i == len(v) {
		return append(dst, "null"...)
	}
	switch v[i] {
	case '{':
		return appendObject(dst, v[i:], without)
	case '[':
		dst = append(dst, '[')
		scan.Array(v, func(value []byte) bool {
			dst = append(appendCanonical(dst, value), ',')
			return true
		})
		return append(dst, ']')
	case '"':
		return scan.AppendQuoted(dst, scan.Unquote(bytes.TrimSpace(v)))
	case 't', 'f', 'n':
		return append(dst, bytes.TrimSpace(v)...)
	}
	return appendNumber(dst, bytes.TrimSpace(v))
}

func appendObject(dst, v []byte, without []string) []byte {
	var members []pair
	scan.Object(v, func(name, value []byte) bool {
		if !slices.Contains(without, string(name)) {
			members = append(members, pair{name, value})
		}
		return true
	})
	slices.SortStableFunc(members, func(a, b pair) int { return bytes.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for _, m := range members {
		dst = append(scan.AppendQuoted(dst, m.name), ':')
		dst = append(appendCanonical(dst, m.value), ',')
	}
	return append(dst, '}')
}

// appendNumber appends the number as an integer without zeros at its end and an
// exponent. It is exact: two numbers are never taken for one, as they would be
// as float64.
func appendNumber(dst, number []byte) []byte {
	mantissa, exponent := number, int64(0)
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		e, err := strconv.ParseInt(string(number[i+1:]), 10, 32)
		if err != nil {
			return append(dst, number...) // absurd; as it is written
		}
		mantissa, exponent = number[:i], e
	}
	mantissa, negative := bytes.CutPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := slices.Concat(whole, fraction)
	exponent -= int64(len(fraction))
	short := bytes.TrimRight(digits, "0")
	exponent += int64(len(digits) - len(short))
	short = bytes.TrimLeft(short, "0")
	if len(short) == 0 {
		return append(dst, '0')
	}
	if negative {
		dst = append(dst, '-')
	}
	dst = append(append(dst, short...), 'e')
	return strconv.AppendInt(dst, exponent, 10)
}
