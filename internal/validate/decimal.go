package validate

import (
	"math"
	"math/bits"
)

// A decimal is a number as it is written: 0.DIGITS times ten to the power exp.
// Nothing is rounded. Zero has no digits.
type decimal struct {
	digits []byte // from the first to the last that is not 0; may contain the point
	count  int    // of digits
	exp    int
	neg    bool
}

// expLimit is where exponents stop growing.
const expLimit = 1 << 27 // an int of 32 bits has room for ten times that

// parseDecimal reads a valid JSON number.
func parseDecimal(raw []byte) (d decimal) {
	i := 0
	if raw[0] == '-' {
		d.neg = true
		i = 1
	}
	first, last := -1, -1            // offsets of the digits that are not 0
	seen, firstAt, lastAt := 0, 0, 0 // counted without the point
	whole := -1                      // digits before the point
	for ; i < len(raw); i++ {
		c := raw[i]
		if c == '.' {
			whole = seen
			continue
		}
		if c|0x20 == 'e' {
			break
		}
		if c != '0' {
			if first < 0 {
				first, firstAt = i, seen
			}
			last, lastAt = i, seen
		}
		seen++
	}
	if first < 0 {
		return decimal{}
	}
	if whole < 0 {
		whole = seen
	}
	d.digits = raw[first : last+1]
	d.count = lastAt - firstAt + 1
	d.exp = whole - firstAt + exponent(raw[i:])
	return d
}

// exponent reads what is at the end of a number, if anything.
func exponent(s []byte) (e int) {
	neg := false
	for _, c := range s {
		switch {
		case c == '-':
			neg = true
		case c-'0' <= 9 && e < expLimit:
			e = e*10 + int(c-'0')
		}
	}
	if neg {
		return -e
	}
	return e
}

func (d *decimal) integer() bool { return d.count <= d.exp || d.count == 0 }

// compare returns -1, 0 or 1.
func (d *decimal) compare(x *decimal) int {
	sign := 1
	switch {
	case d.count == 0 && x.count == 0:
		return 0
	case d.count == 0:
		if x.neg {
			return 1
		}
		return -1
	case d.neg:
		if x.count == 0 || !x.neg {
			return -1
		}
		sign = -1
	case x.count == 0 || x.neg:
		return 1
	}
	if d.exp != x.exp {
		if d.exp < x.exp {
			return -sign
		}
		return sign
	}
	return sign * compareDigits(d.digits, x.digits)
}

func compareDigits(a, b []byte) int {
	for i, j := 0, 0; ; i, j = i+1, j+1 {
		if i < len(a) && a[i] == '.' {
			i++
		}
		if j < len(b) && b[j] == '.' {
			j++
		}
		switch {
		case i == len(a) && j == len(b):
			return 0
		case i == len(a):
			return -1
		case j == len(b):
			return 1
		case a[i] < b[j]:
			return -1
		case a[i] > b[j]:
			return 1
		}
	}
}

// int returns the value of an integer, at most math.MaxInt for a positive one.
func (d *decimal) int() int {
	if d.exp > 18 {
		return math.MaxInt
	}
	n := 0
	for _, c := range d.digits {
		if c != '.' {
			n = n*10 + int(c-'0')
		}
	}
	for range d.exp - d.count {
		n *= 10
	}
	if d.neg {
		return -n
	}
	return n
}

// append writes the number in the one form that it has among its equals.
func (d *decimal) append(dst []byte) []byte {
	if d.neg {
		dst = append(dst, '-')
	}
	for _, c := range d.digits {
		if c != '.' {
			dst = append(dst, c)
		}
	}
	dst = append(dst, 'e')
	for e := uint64(d.exp); ; e >>= 7 { // any injective writing will do
		dst = append(dst, byte(e)|0x80)
		if e < 0x80 {
			return dst
		}
	}
}

// A divisor is what a number may have to be a multiple of: value times ten to
// the power exp, and value does not end in 0.
type divisor struct {
	raw   []byte
	value uint64
	exp   int
}

// maxDivisor is how many significant digits a divisor may have: one more digit
// fits into a uint64.
const maxDivisor = 18

func newDivisor(raw []byte) (*divisor, bool) {
	d := parseDecimal(raw)
	if d.neg || d.count == 0 || d.count > maxDivisor {
		return nil, false
	}
	v := divisor{raw: raw, exp: d.exp - d.count}
	for _, c := range d.digits {
		if c != '.' {
			v.value = v.value*10 + uint64(c-'0')
		}
	}
	return &v, true
}

// divides reports whether d is a multiple of v, exactly.
func (v *divisor) divides(d *decimal) bool {
	shift := d.exp - d.count - v.exp
	if shift < 0 { // the digits of d would have to end in 0
		return d.count == 0
	}
	rest := uint64(0)
	for _, c := range d.digits {
		if c != '.' {
			rest = (rest*10 + uint64(c-'0')) % v.value
		}
	}
	ten := 10 % v.value
	for ; shift > 0 && rest > 0; shift >>= 1 {
		if shift&1 == 1 {
			rest = v.product(rest, ten)
		}
		ten = v.product(ten, ten)
	}
	return rest == 0
}

// product returns a × b modulo v; both are less than v.
func (v *divisor) product(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	_, rest := bits.Div64(high, low, v.value)
	return rest
}
