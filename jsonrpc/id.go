package jsonrpc

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/farcall-dev/farcall/internal/scan"
)

// ID identifies a request. It is kept as the bytes it was written with, so that
// the answer carries exactly those: 1.0 stays 1.0, and 1e400 is no problem. The
// zero value is the absent id.
type ID struct{ raw Raw }

// IntID returns the id n.
func IntID(n int64) ID { return ID{strconv.AppendInt(nil, n, 10)} }

// StringID returns the id s, a string.
func StringID(s string) ID { return ID{AppendString(nil, s)} }

// NullID returns the id null, which answers a message with an unreadable id.
func NullID() ID { return ID{Raw("null")} }

// ParseID returns the id that is written as raw: a string, a number or null
// (specification, section 4), without white space around it. The id borrows
// raw.
func ParseID(raw Raw) (ID, error) {
	if err := Valid(raw); err != nil {
		return ID{}, err
	}
	if !isID(raw) || raw[len(raw)-1] <= ' ' {
		return ID{}, errors.New(located(0, "an id must be a string, a number or null"))
	}
	return ID{raw}, nil
}

// isID tells by its first byte whether a valid value can be an id.
func isID(raw Raw) bool {
	c := raw[0]
	return c == '"' || c == '-' || c-'0' <= 9 || c == 'n'
}

// IsAbsent reports whether there is no id at all.
func (id ID) IsAbsent() bool { return id.raw == nil }

// IsNull reports whether the id is null.
func (id ID) IsNull() bool { return string(id.raw) == "null" }

// Raw returns the id as it is written, nil when absent.
func (id ID) Raw() Raw { return id.raw }

// String returns the id as it is written, "" when absent.
func (id ID) String() string { return string(id.raw) }

// Equal reports whether both are written with the same bytes.
func (id ID) Equal(other ID) bool {
	return bytes.Equal(id.raw, other.raw) && id.IsAbsent() == other.IsAbsent()
}

// Clone returns a copy that outlives the frame.
func (id ID) Clone() ID { return ID{slices.Clone(id.raw)} }

// Uint returns the number of an id that is written as a plain decimal number:
// digits only and no leading zero.
func (id ID) Uint() (n uint64, ok bool) {
	if len(id.raw) == 0 || len(id.raw) > 1 && id.raw[0] == '0' {
		return 0, false
	}
	for _, c := range id.raw {
		d := uint64(c - '0')
		if d > 9 || n > (1<<64-1-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// MarshalJSON returns the id as it is written, null when absent.
func (id ID) MarshalJSON() ([]byte, error) { return id.raw.MarshalJSON() }

// UnmarshalJSON keeps a copy of b, which must be an id.
func (id *ID) UnmarshalJSON(b []byte) error {
	parsed, err := ParseID(b)
	if err == nil {
		*id = parsed.Clone()
	}
	return err
}

// Valid reports why raw is not one JSON value, and at which offset. White space
// around the value is allowed, and any depth.
func Valid(raw []byte) error {
	if i, f := scan.Text(raw, -1); f != scan.OK {
		return errors.New(located(i, f.String()))
	}
	return nil
}
