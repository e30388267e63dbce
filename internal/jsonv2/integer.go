package jsonv2

import (
	"bytes"
	"errors"
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/farcall-dev/farcall/internal/scan"
)

// maxDigits is how many digits an integer of 64 bits has at most.
const maxDigits = 20

// Integer appends the integer that a JSON number is, without fraction and exponent: 2.0 and 2e0 are
// integers by JSON Schema (draft 6 and later), but not for strconv. The value is exact. It reports
// false when it is not an integer; one of more than 20 digits is an integer, but nothing is
// appended.
func Integer(dst, number []byte) (out []byte, integer bool) {
	digits, exp := number, 0
	if i := bytes.IndexAny(number, "eE"); i >= 0 {
		digits, exp = number[:i], exponent(number[i+1:])
	}
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	at := func(i int) byte {
		if i < len(whole) {
			return whole[i]
		}
		return fraction[i-len(whole)]
	}
	first, last := 0, len(whole)+len(fraction) // without zeros before and after
	for first < last && at(first) == '0' {
		first++
	}
	for first < last && at(last-1) == '0' {
		last--
	}
	end := len(whole) + exp // where the point is
	switch {
	case first == last:
		return append(dst, '0'), true
	case last > end:
		return dst, false
	case end-first > maxDigits:
		return dst, true
	}
	if negative {
		dst = append(dst, '-')
	}
	for i := first; i < end; i++ {
		if i < last {
			dst = append(dst, at(i))
		} else {
			dst = append(dst, '0')
		}
	}
	return dst, true
}

// exponent reads an exponent, and stops where it is larger than any frame is long.
func exponent(p []byte) int {
	sign, n := 1, 0
	switch p[0] {
	case '-':
		sign, p = -1, p[1:]
	case '+':
		p = p[1:]
	}
	for _, d := range p {
		if n = n*10 + int(d-'0'); n > 1<<27 { // an int of 32 bits has room for ten times that
			break
		}
	}
	return sign * n
}

// wantsInteger reports whether an error is about a number that an integer type did not take.
func wantsInteger(err error) bool {
	var sem *json.SemanticError
	if !errors.As(err, &sem) || sem.GoType == nil || sem.JSONKind != jsontext.KindNumber {
		return false
	}
	k := sem.GoType.Kind()
	return k >= reflect.Int && k <= reflect.Uintptr
}

// unmarshal is json.Unmarshal, but takes 2.0 for an integer. Then all numbers of data that are
// integers are read in the form of integers, those that a raw value keeps too.
func unmarshal(data []byte, v any, o json.Options) error {
	err := json.Unmarshal(data, v, o)
	if err == nil || !wantsInteger(err) {
		return err
	}
	if _, f := scan.Text(data, -1); f != scan.OK {
		return err
	}
	if plain, changed := plainIntegers(data); changed {
		return json.Unmarshal(plain, v, o)
	}
	return err
}

// plainIntegers writes the integers of a JSON text without fraction and exponent.
func plainIntegers(data []byte) (out []byte, changed bool) {
	for i := 0; i < len(data); {
		end := i + 1
		switch c := data[i]; {
		case c == '"':
			end, _, _ = scan.String(data, i)
		case c == '-', '0' <= c && c <= '9':
			end, _ = scan.Value(data, i, -1)
			if number := data[i:end]; bytes.ContainsAny(number, ".eE") {
				before := len(out)
				if out, _ = Integer(out, number); len(out) > before {
					changed, i = true, end
					continue
				}
			}
		}
		out = append(out, data[i:end]...)
		i = end
	}
	return out, changed
}
