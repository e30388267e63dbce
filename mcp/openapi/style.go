package openapi

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// An escaper writes a text so that it is no delimiter of where it goes.
type escaper func(string) string

func asIs(s string) string { return s }

// escapeSegment percent-encodes all but unreserved characters (RFC 3986, section 2.3).
func escapeSegment(s string) string {
	return strings.ReplaceAll(url.QueryEscape(s), "+", "%20")
}

// escapeReserved is escapeSegment, but keeps reserved characters that do not end a value.
func escapeReserved(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; strings.IndexByte(":/?@!$'()*,;", c) >= 0 {
			b.WriteByte(c)
		} else {
			b.WriteString(escapeSegment(s[i : i+1]))
		}
	}
	return b.String()
}

// scalar returns the text of a value: of a string its characters, of a number what is written, and
// of an array or object its JSON.
func scalar(raw []byte) string {
	if raw[0] == '"' {
		return string(scan.Unquote(raw))
	}
	return string(compact(raw))
}

// A pair is a name and a value, escaped.
type pair struct{ name, value string }

// parts returns the elements of an array, or the members of an object as pairs.
func parts(raw []byte, escape escaper) (list []pair, object bool) {
	switch raw[0] {
	case '[':
		scan.Array(raw, func(v []byte) bool {
			if string(v) != "null" {
				list = append(list, pair{value: escape(scalar(v))})
			}
			return true
		})
		return list, false
	case '{':
		scan.Object(raw, func(name, v []byte) bool {
			if string(v) != "null" {
				list = append(list, pair{escape(string(name)), escape(scalar(v))})
			}
			return true
		})
		return list, true
	default:
		return []pair{{value: escape(scalar(raw))}}, false
	}
}

// join writes pairs with a separator, and names before their values with another.
func join(list []pair, object bool, between, assign string) string {
	var b strings.Builder
	for i, p := range list {
		if i > 0 {
			b.WriteString(between)
		}
		if object {
			b.WriteString(p.name)
			b.WriteString(assign)
		}
		b.WriteString(p.value)
	}
	return b.String()
}

// template writes a value of a path or a header: RFC 6570, as OpenAPI 3.1, 4.8.12.4, uses it.
func (a *argument) template(raw []byte, escape escaper) string {
	list, object := parts(raw, escape)
	assign := ","
	if a.explode {
		assign = "="
	}
	switch a.style {
	case styleLabel:
		between := ","
		if a.explode {
			between = "."
		}
		return "." + join(list, object, between, assign)
	case styleMatrix:
		name := escape(a.wire)
		switch {
		case !a.explode:
			return ";" + name + "=" + join(list, object, ",", ",")
		case object:
			return ";" + join(list, true, ";", "=")
		default:
			for i := range list {
				list[i].name = name
			}
			return ";" + join(list, true, ";", "=")
		}
	default:
		return join(list, object, ",", assign)
	}
}

// pairs writes a value of a query, a form or a cookie.
func (a *argument) pairs(raw []byte, escape escaper, indexed bool) []pair {
	name := escapeSegment(a.wire)
	if raw[0] == 'n' {
		return nil
	}
	if a.json {
		return []pair{{name, escape(string(compact(raw)))}}
	}
	if a.style == styleDeep {
		return deep(nil, name, raw, escape, indexed)
	}
	list, object := parts(raw, escape)
	if raw[0] != '[' && raw[0] != '{' {
		return []pair{{name, list[0].value}}
	}
	if len(list) == 0 {
		return nil
	}
	if a.explode {
		if !object {
			for i := range list {
				list[i].name = name
			}
		}
		return list
	}
	between := map[style]string{styleForm: ",", styleSpace: "%20", stylePipe: "%7C", styleTab: "%09"}[a.style]
	return []pair{{name, join(list, object, between, between)}}
}

// deep writes a[b][c]=, and arrays as a[]= or a[0]=. OpenAPI leaves it open how values nest; this
// is what the APIs that use it read.
func deep(list []pair, name string, raw []byte, escape escaper, indexed bool) []pair {
	switch raw[0] {
	case 'n':
	case '{':
		scan.Object(raw, func(member, v []byte) bool {
			list = deep(list, name+"["+escapeSegment(string(member))+"]", v, escape, indexed)
			return true
		})
	case '[':
		i := 0
		scan.Array(raw, func(v []byte) bool {
			index := "[]"
			if indexed {
				index = fmt.Sprintf("[%d]", i)
			}
			list = deep(list, name+index, v, escape, indexed)
			i++
			return true
		})
	default:
		list = append(list, pair{name, escape(scalar(raw))})
	}
	return list
}

// checkSegment refuses a value of a path that would lead to another path, also when a server in
// between decodes it once more.
func checkSegment(value string) error {
	decoded, err := url.PathUnescape(value)
	if err != nil {
		decoded = value
	}
	for _, v := range []string{value, decoded} {
		if v == "" {
			return errors.New("it must not be empty")
		}
		for segment := range strings.FieldsFuncSeq(v, func(r rune) bool { return r == '/' || r == '\\' }) {
			if segment == "." || segment == ".." {
				return errors.New("it must not have a segment of dots only")
			}
		}
		if strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return errors.New("it must have no control characters")
		}
	}
	return nil
}
