package traffic

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/scan"
)

// A Filter chooses rows. Nil chooses all.
type Filter struct{ terms []term }

type term struct {
	not   bool
	match func(r *Row, raw []byte) bool
}

const (
	maxFilter = 4096 // bytes
	maxTerms  = 64
)

// Match reports whether a row is chosen.
func (f *Filter) Match(r *Row, raw []byte) bool {
	if f == nil {
		return true
	}
	for i := range f.terms {
		if f.terms[i].match(r, raw) == f.terms[i].not {
			return false
		}
	}
	return true
}

// Parse reads a filter: terms with spaces between them. A frame must match all terms. A term is
//
//	word              the frame contains it, in upper or lower case; "two words" too
//	method:tools/*    also name:, with * and ?; so are kind:, dir: and conn:
//	code:-32602       also code:error for every error, and code:failed for failed tools
//	dur>500ms size>10k
//	params.path:/etc  a member of the frame; with =~ a regular expression
//
// and - before a term negates it.
func Parse(text string) (*Filter, error) {
	if len(text) > maxFilter {
		return nil, fmt.Errorf("the filter has more than %d bytes", maxFilter)
	}
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	if len(words) == 0 {
		return nil, nil
	}
	if len(words) > maxTerms {
		return nil, fmt.Errorf("the filter has more than %d terms", maxTerms)
	}
	f := &Filter{}
	for _, w := range words {
		t, err := newTerm(w)
		if err != nil {
			return nil, err
		}
		f.terms = append(f.terms, t)
	}
	return f, nil
}

// split splits at spaces outside of quotation marks, which it removes.
func split(text string) (words []string, err error) {
	var word strings.Builder
	quoted, begun := false, false
	for _, r := range text {
		switch {
		case r == '"':
			quoted, begun = !quoted, true
		case !quoted && (r == ' ' || r == '\t' || r == '\n'):
			if begun {
				words = append(words, word.String())
				word.Reset()
			}
			begun = false
		default:
			word.WriteRune(r)
			begun = true
		}
	}
	if quoted {
		return nil, fmt.Errorf("unterminated quote: add a %q", `"`)
	}
	if begun {
		words = append(words, word.String())
	}
	return words, nil
}

var termForm = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_.$-]*)(=~|[:=<>])(.*)$`)

func newTerm(word string) (t term, err error) {
	if len(word) > 1 && word[0] == '-' {
		t.not, word = true, word[1:]
	}
	parts := termForm.FindStringSubmatch(word)
	if parts == nil {
		t.match = contains(word)
		return t, nil
	}
	key, op, value := parts[1], parts[2], parts[3]
	switch op {
	case "=~":
		t.match, err = pattern(key, value)
	case "<", ">":
		t.match, err = compare(key, op, value)
	default:
		t.match, err = equal(key, value)
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w", word, err)
	}
	return t, nil
}

func contains(word string) func(*Row, []byte) bool {
	lower := []byte(strings.ToLower(word))
	return func(r *Row, raw []byte) bool {
		return bytes.Contains(bytes.ToLower(raw), lower) ||
			r.Kind == Response &&
				strings.Contains(strings.ToLower(r.Method+" "+r.Name), string(lower))
	}
}

var kindNames = map[string]byte{
	"request":      Request,
	"notification": Notification,
	"response":     Response,
	"batch":        Batch,
	"invalid":      Invalid,
	"note":         Note,
}

func equal(key, value string) (func(*Row, []byte) bool, error) {
	switch key {
	case "kind":
		kind, ok := kindNames[value]
		if !ok {
			return nil, fmt.Errorf(
				"there is no kind %q; there are request, response, notification, batch, invalid and note",
				value,
			)
		}
		return func(r *Row, _ []byte) bool { return r.Kind == kind }, nil
	case "dir":
		dir, ok := map[string]byte{"up": '>', "sent": '>', "down": '<', "received": '<'}[value]
		if !ok {
			return nil, fmt.Errorf("there is no direction %q; use up or down", value)
		}
		return func(r *Row, _ []byte) bool { return r.Dir == dir }, nil
	case "conn", "code", "seq":
		return number(key, value)
	case "id":
		return func(_ *Row, raw []byte) bool {
			id := scan.Member(raw, "id")
			return string(id) == value ||
				len(id) > 0 && id[0] == '"' && string(scan.Unquote(id)) == value
		}, nil
	}
	return texts(key, func(text string) bool { return glob.Match(value, text) })
}

// texts chooses the frames with a text that matches: the method, the name or a member.
func texts(key string, match func(string) bool) (func(*Row, []byte) bool, error) {
	switch path, ok := memberPath(key); {
	case key == "method":
		return func(r *Row, _ []byte) bool { return match(r.Method) }, nil
	case key == "name":
		return func(r *Row, _ []byte) bool { return match(r.Name) }, nil
	case ok:
		return func(_ *Row, raw []byte) bool {
			text, found := at(raw, path)
			return found && match(text)
		}, nil
	}
	return nil, fmt.Errorf(
		"there is no %q; use method, name, kind, dir, conn, code, id, dur, size, or a member "+
			"such as params.path",
		key,
	)
}

func number(key, value string) (func(*Row, []byte) bool, error) {
	switch {
	case key == "code" && value == "error":
		return func(r *Row, _ []byte) bool { return r.Code != 0 }, nil
	case key == "code" && value == "failed":
		return func(r *Row, _ []byte) bool { return r.Failed }, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return nil, fmt.Errorf("%q is not a whole number", value)
	}
	return func(r *Row, _ []byte) bool {
		switch key {
		case "conn":
			return r.Conn == n
		case "code":
			return r.Code == n && r.Kind == Response
		default:
			return r.Seq == uint64(max(n, 0))
		}
	}, nil
}

// memberPath reads params.path, result.content and their like.
func memberPath(key string) (path []string, ok bool) {
	path = strings.Split(key, ".")
	return path, slices.Contains([]string{"params", "result", "error", "jsonrpc"}, path[0]) &&
		!slices.Contains(path, "")
}

// at returns the text of a member of a frame: that of a string, and JSON otherwise.
func at(raw []byte, path []string) (value string, found bool) {
	v := raw
	for _, name := range path {
		if len(v) == 0 || v[0] != '{' {
			return "", false
		}
		if v = scan.Member(v, name); v == nil {
			return "", false
		}
	}
	if len(v) > 0 && v[0] == '"' {
		return string(scan.Unquote(v)), true
	}
	return string(v), true
}

func pattern(key, value string) (func(*Row, []byte) bool, error) {
	re, err := regexp.Compile(value)
	if err != nil {
		return nil, err
	}
	return texts(key, re.MatchString)
}

// compare reads dur>500ms and size<10k.
func compare(key, op, value string) (func(*Row, []byte) bool, error) {
	above := op == ">"
	switch key {
	case "dur":
		d, err := time.ParseDuration(value)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration; write 500ms or 2s", value)
		}
		return func(r *Row, _ []byte) bool {
			return r.Kind == Response && r.Ref > 0 && (r.Took > d.Microseconds()) == above
		}, nil
	case "size":
		unit := int64(1)
		switch digits := strings.ToLower(value); {
		case strings.HasSuffix(digits, "k"):
			unit, value = 1<<10, value[:len(value)-1]
		case strings.HasSuffix(digits, "m"):
			unit, value = 1<<20, value[:len(value)-1]
		}
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q is not a size; write 500, 10k or 2m", value)
		}
		size := int64(n) * unit
		return func(r *Row, _ []byte) bool { return (int64(r.Size) > size) == above }, nil
	}
	return nil, fmt.Errorf("%q cannot be compared; dur and size can", key)
}
