package policy

import (
	"bytes"
	"encoding"
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"

	"github.com/farcall-dev/farcall/internal/scan"
)

// What is converted for a decision is bounded. An array is so on its own, because Cedar's sets
// take time with the square of their size when an attacker chooses the elements.
const (
	maxArguments = 1 << 20
	maxDepth     = 32
	maxValues    = 10_000
	maxArray     = 1000
)

var (
	errLarge     = errors.New("too large to decide upon")
	errDeep      = errors.New("nested too deeply to decide upon")
	errDuplicate = errors.New("a member is given twice")
	errInvalid   = errors.New("not valid JSON")
)

// converter makes Cedar's values, and counts them.
type converter struct{ values int }

func (c *converter) count(depth int) error {
	c.values++
	switch {
	case depth > maxDepth:
		return errDeep
	case c.values > maxValues:
		return errLarge
	}
	return nil
}

// arguments converts the arguments of a call to a record, which has those members that are looked
// at, all if looked is nil.
func arguments(b []byte, looked func(name []byte) bool) (types.Record, error) {
	if len(b) > maxArguments {
		return types.Record{}, errLarge
	}
	at := scan.Space(b, 0)
	if at == len(b) {
		return types.Record{}, nil
	}
	switch _, fault := scan.Text(b, maxDepth); fault {
	case scan.OK:
	case scan.TooDeep:
		return types.Record{}, errDeep
	default:
		return types.Record{}, errInvalid
	}
	var c converter
	switch b[at] {
	case '{':
		return c.object(b, 0, looked)
	case '[':
		list, err := c.array(b, 0)
		m := make(types.RecordMap, len(list))
		for i, v := range list {
			m[types.String(strconv.Itoa(i))] = v
		}
		return types.NewRecord(m), err
	}
	return types.Record{}, nil
}

// json converts a valid value.
func (c *converter) json(b []byte, depth int) (types.Value, error) {
	if err := c.count(depth); err != nil {
		return nil, err
	}
	switch b[0] {
	case '{':
		return c.object(b, depth, nil)
	case '[':
		list, err := c.array(b, depth)
		return types.NewSet(list...), err
	case '"':
		return types.String(scan.Unquote(b)), nil
	case 't':
		return types.True, nil
	case 'f':
		return types.False, nil
	case 'n':
		return null(), nil
	}
	return number(string(b)), nil
}

// object converts an object: those of its members that looked reports, all if it is nil. No member
// may be given twice. What the others have in them is not looked at here; a guard refuses members
// that are given twice at any depth.
func (c *converter) object(
	b []byte, depth int, looked func(name []byte) bool,
) (types.Record, error) {
	var (
		m     types.RecordMap
		first [8][]byte
		rest  map[string]bool
	)
	others := first[:0] // that are not converted
	for key, value := range scan.Members(b) {
		_, found := m[types.String(key)]
		switch {
		case found || rest[string(key)] || slices.ContainsFunc(others, func(o []byte) bool {
			return bytes.Equal(o, key)
		}):
			return types.Record{}, errDuplicate
		case looked == nil || looked(key):
			v, err := c.json(value, depth+1)
			if err != nil {
				return types.Record{}, err
			}
			if m == nil {
				m = types.RecordMap{}
			}
			m[types.String(key)] = v
		case len(others) < cap(others):
			others = append(others, key)
		default:
			if rest == nil {
				rest = map[string]bool{}
			}
			rest[string(key)] = true
		}
	}
	return types.NewRecord(m), nil
}

func (c *converter) array(b []byte, depth int) (list []types.Value, err error) {
	for value := range scan.Elements(b) {
		v, err := c.json(value, depth+1)
		if err != nil {
			return nil, err
		}
		if len(list) == maxArray {
			return nil, errLarge
		}
		list = append(list, v)
	}
	return list, nil
}

// null is what Cedar does not have.
func null() types.Value { return types.NewEntityUID(typeJSON, "null") }

// number converts a number of JSON, exactly or to a string.
func number(raw string) types.Value {
	digits, exp, ok := decimal(raw)
	sign := ""
	if strings.HasPrefix(raw, "-") {
		sign = "-"
	}
	switch {
	case !ok:
	case digits == "":
		return types.Long(0)
	case exp >= 0 && len(digits)+exp <= 19:
		if n, err := strconv.ParseInt(sign+digits+strings.Repeat("0", exp), 10, 64); err == nil {
			return types.Long(n)
		}
	case exp < 0 && exp >= -4 && len(digits) <= 19:
		if n, err := strconv.ParseInt(sign+digits, 10, 64); err == nil {
			if d, err := types.NewDecimal(n, exp); err == nil {
				return d
			}
		}
	}
	return types.String(raw)
}

// decimal splits the absolute value of a number into its digits, without zeros at either end, and
// the power of ten. It fails when that power is absurd.
func decimal(raw string) (digits string, exp int, ok bool) {
	mantissa, power := strings.TrimPrefix(raw, "-"), ""
	if e := strings.IndexAny(mantissa, "eE"); e >= 0 {
		mantissa, power = mantissa[:e], mantissa[e+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits = strings.TrimLeft(whole+fraction, "0")
	kept := strings.TrimRight(digits, "0")
	if kept == "" {
		return "", 0, true
	}
	exp = len(digits) - len(kept) - len(fraction)
	if power != "" {
		n, err := strconv.Atoi(power)
		if err != nil || n > 1<<20 || n < -1<<20 {
			return "", 0, false
		}
		exp += n
	}
	return kept, exp, true
}

// claims converts the claims of a token. What is of no known type is left out.
func claims(m map[string]any) (types.Record, error) {
	var c converter
	return c.members(m, 0)
}

func (c *converter) members(m map[string]any, depth int) (types.Record, error) {
	out := make(types.RecordMap, len(m))
	for key, value := range m {
		v, err := c.claim(value, depth+1)
		if err != nil {
			return types.Record{}, err
		}
		if v != nil {
			out[types.String(key)] = v
		}
	}
	return types.NewRecord(out), nil
}

func (c *converter) claim(value any, depth int) (types.Value, error) {
	if err := c.count(depth); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case nil:
		return null(), nil
	case string:
		return types.String(v), nil
	case bool:
		return types.Boolean(v), nil
	case int:
		return types.Long(v), nil
	case int64:
		return types.Long(v), nil
	case float64:
		return number(strconv.FormatFloat(v, 'f', -1, 64)), nil
	case time.Time: // iat, exp, nbf are numbers in the token
		return types.Long(v.Unix()), nil
	case map[string]any:
		return c.members(v, depth)
	case []any:
		return c.list(len(v), depth, slices.All(v))
	case []string:
		return c.list(len(v), depth, func(yield func(int, any) bool) {
			for i, s := range v {
				if !yield(i, s) {
					return
				}
			}
		})
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		return types.String(text), err
	}
	if v := reflect.ValueOf(value); v.Kind() == reflect.String { // json.Number
		return number(v.String()), nil
	}
	return nil, nil
}

func (c *converter) list(n, depth int, all func(yield func(int, any) bool)) (types.Value, error) {
	if n > maxArray {
		return nil, errLarge
	}
	list := make([]types.Value, 0, n)
	for _, value := range all {
		v, err := c.claim(value, depth+1)
		if err != nil {
			return nil, err
		}
		if v != nil {
			list = append(list, v)
		}
	}
	return types.NewSet(list...), nil
}

// wordSet converts words to a set.
func wordSet(words []string) types.Set {
	list := make([]types.Value, len(words))
	for i, w := range words {
		list[i] = types.String(w)
	}
	return types.NewSet(list...)
}

// annotations has the hints of a tool, with MCP's defaults. A hint that is given twice or is no
// bool is taken for the default, which is the worse.
func annotations(b []byte) types.Record {
	hints := [...]struct {
		name         types.String
		value, usual bool
		seen         int
	}{
		{name: "readOnlyHint"},
		{name: "destructiveHint", usual: true},
		{name: "idempotentHint"},
		{name: "openWorldHint", usual: true},
	}
	if _, fault := scan.Text(b, maxDepth); fault == scan.OK {
		for key, value := range scan.Members(b) {
			for i := range hints {
				if h := &hints[i]; string(key) == string(h.name) {
					h.seen++
					h.value = string(value) == "true" || string(value) != "false" && h.usual
				}
			}
		}
	}
	m := make(types.RecordMap, len(hints))
	for i := range hints {
		h := &hints[i]
		if h.seen != 1 {
			h.value = h.usual
		}
		m[h.name] = types.Boolean(h.value)
	}
	return types.NewRecord(m)
}
