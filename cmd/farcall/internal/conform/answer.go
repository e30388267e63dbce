package conform

import (
	"bytes"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	codeParse          = -32700
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
)

// answer is one response as the server sent it.
type answer struct {
	id      string // raw; "" when there is none
	code    int    // 0 for a result
	message string
	result  string // raw
	v1      bool   // in the form of JSON-RPC 1.0
}

func (a answer) String() string {
	if a.code != 0 {
		return fmt.Sprintf("error %d with id %s", a.code, a.id)
	}
	return fmt.Sprintf("result %s with id %s", clip(a.result), a.id)
}

// parseAnswers reads one frame. Requests and notifications of the server's own
// are left out.
func parseAnswers(frame string) (answers []answer, array bool, err error) {
	var elements []json.RawMessage
	if strings.HasPrefix(strings.TrimLeft(frame, " \t\r\n"), "[") {
		array = true
		if err := json.Unmarshal([]byte(frame), &elements); err != nil {
			return nil, true, fmt.Errorf("the answer is not JSON: %w", err)
		}
		if len(elements) == 0 {
			return nil, true, errors.New("the answer is an empty array")
		}
	} else {
		elements = []json.RawMessage{json.RawMessage(frame)}
	}
	for _, e := range elements {
		a, ours, err := parseAnswer(e)
		if err != nil {
			return nil, array, err
		}
		if ours {
			answers = append(answers, a)
		}
	}
	return answers, array, nil
}

// parseAnswer checks that raw is a proper Response object (JSON-RPC 2.0 §5).
func parseAnswer(raw json.RawMessage) (a answer, ours bool, err error) {
	m, err := members(raw)
	if err != nil {
		return a, false, err
	}
	if _, ok := m["method"]; ok {
		return a, false, nil
	}
	result, hasResult := m["result"]
	failure, hasError := m["error"]
	id, hasID := m["id"]
	a.id, a.result = id, result
	version, hasVersion := m["jsonrpc"]
	a.v1 = !hasVersion && hasResult && hasError
	switch {
	case a.v1:
		hasError = failure != "null"
		hasResult = !hasError
	case version != `"2.0"`:
		return a, true, fmt.Errorf(`the answer does not say "jsonrpc":"2.0": %s`, clip(string(raw)))
	}
	switch {
	case hasResult == hasError:
		return a, true, fmt.Errorf("an answer has either a result or an error, exactly one: %s",
			clip(string(raw)))
	case !hasID:
		return a, true, fmt.Errorf("the answer has no id: %s", clip(string(raw)))
	case hasResult:
		return a, true, nil
	}
	a.code, a.message, err = parseFailure(failure)
	return a, true, err
}

// parseFailure checks an Error object (JSON-RPC 2.0 §5.1).
func parseFailure(raw string) (code int, message string, err error) {
	var e struct {
		Code    json.RawMessage `json:"code"`
		Message *string         `json:"message"`
	}
	if err := json.Unmarshal([]byte(raw), &e); err != nil || e.Message == nil {
		return 0, "", fmt.Errorf("the error is not an object with a code and a message: %s", clip(raw))
	}
	code, err = strconv.Atoi(string(e.Code))
	if err != nil || code == 0 {
		return 0, "", fmt.Errorf("the error's code is not an integer other than 0: %s",
			clip(string(e.Code)))
	}
	return code, *e.Message, nil
}

// members splits an object, keeping the bytes of its values. A member that is
// given twice is refused: the answers of a server are held to what it is held to.
func members(raw []byte) (map[string]string, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	t, err := dec.Token()
	if err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if t != json.Delim('{') {
		return nil, fmt.Errorf("the answer is not an object: %s", clip(string(raw)))
	}
	m := map[string]string{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("the answer is not JSON: %w", err)
		}
		name, ok := key.(string)
		if _, twice := m[name]; twice || !ok {
			return nil, fmt.Errorf("the answer has the member %q twice: %s", name, clip(string(raw)))
		}
		var v json.RawMessage
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("the answer is not JSON: %w", err)
		}
		m[name] = string(v)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("the answer is not JSON: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is more after the answer: %s", clip(string(raw)))
	}
	return m, nil
}

// sameValue reports whether two JSON texts mean the same: numbers by value,
// however they are written, strings after their escapes, members in any order.
func sameValue(a, b string) bool {
	if a == b {
		return true
	}
	x, err := decode(a)
	if err != nil {
		return false
	}
	y, err := decode(b)
	return err == nil && reflect.DeepEqual(x, y)
}

// decode is json.Unmarshal with numbers of any size and precision.
func decode(s string) (any, error) {
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	return normalise(v), nil
}

type number struct {
	digits   string
	exponent int
	negative bool
}

func normalise(v any) any {
	switch v := v.(type) {
	case json.Number:
		return parseNumber(v.String())
	case []any:
		for i := range v {
			v[i] = normalise(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = normalise(v[k])
		}
	}
	return v
}

// parseNumber brings a JSON number into one form for one value, so that 1.50,
// 15e-1 and 1.5 are equal and no precision is lost.
func parseNumber(s string) number {
	var n number
	s, n.negative = strings.CutPrefix(s, "-")
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		// out of range: saturates, which is enough to tell numbers apart
		n.exponent, _ = strconv.Atoi(s[i+1:])
		s = s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	n.exponent -= len(fraction)
	n.digits = strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(n.digits, "0")
	n.exponent += len(n.digits) - len(trimmed)
	n.digits = trimmed
	if n.digits == "" {
		return number{}
	}
	return n
}

const shown = 400 // bytes of a long text that are printed

// printable writes bytes that are not printable as \xNN. JSON has no such
// escape, so it cannot be mistaken for one that was sent.
func printable(s string) string {
	cut := ""
	if len(s) > shown {
		cut = fmt.Sprintf("… (%d bytes)", len(s))
		s = s[:runeStart(s, shown)]
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1, r == '\uFEFF', !unicode.IsPrint(r):
			for _, c := range []byte(s[i : i+n]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String() + cut
}

// clip shortens a text for the middle of a sentence.
func clip(s string) string {
	const most = 120
	s = printable(s)
	if len(s) <= most {
		return s
	}
	return s[:runeStart(s, most)] + "…"
}

// runeStart is where the rune that i lies in begins.
func runeStart(s string, i int) int {
	for least := i - utf8.UTFMax; i > least && !utf8.RuneStart(s[i]); {
		i--
	}
	return i
}
