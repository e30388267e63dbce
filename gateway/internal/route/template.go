package route

import "strings"

// A template matches the URIs that a URI template (RFC 6570) may expand to, and
// some more: it is for finding the source only, which then looks itself. It takes
// time in proportion to the product of the lengths, whatever the template is:
// libraries compile {x:9999} into ten thousand states.
type template struct {
	parts []part
}

// A part is a literal, or stands for an expression.
type part struct {
	literal string
	first   byte   // what an expression that is not empty begins with; 0: nothing
	not     string // characters that the expression has not
}

// newTemplate reports false for a text that is no template.
func newTemplate(text string) (*template, bool) {
	t := &template{}
	for text != "" {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			i = len(text)
		}
		if i > 0 {
			t.parts = append(t.parts, part{literal: text[:i]})
			text = text[i:]
			continue
		}
		end := strings.IndexByte(text, '}')
		if text[0] == '}' || end < 2 {
			return nil, false
		}
		p, ok := expression(text[1:end])
		if !ok {
			return nil, false
		}
		t.parts = append(t.parts, p)
		text = text[end+1:]
	}
	return t, true
}

// expression returns what stands for an expression, without its braces.
func expression(text string) (p part, ok bool) {
	p.not = "/?#"
	operator := true
	switch text[0] {
	case '+':
		p.not = ""
	case '#':
		p.first, p.not = '#', ""
	case '.', ';':
		p.first = text[0]
	case '/':
		p.first, p.not = '/', "?#"
	case '?', '&':
		p.first, p.not = text[0], "#"
	default:
		operator = false
	}
	if operator {
		text = text[1:]
	}
	for name := range strings.SplitSeq(text, ",") {
		name, length, prefix := strings.Cut(strings.TrimSuffix(name, "*"), ":")
		if name == "" || strings.Trim(name, letters+"._%") != "" {
			return p, false
		}
		if prefix && (length == "" || len(length) > 4 || strings.Trim(length, "0123456789") != "") {
			return p, false
		}
	}
	return p, true
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

func (t *template) match(uri string) bool {
	if len(t.parts) > 0 && !strings.HasPrefix(uri, t.parts[0].literal) {
		return false
	}
	// here has the places that the parts so far can end at.
	here, next := make([]bool, len(uri)+1), make([]bool, len(uri)+1)
	here[0] = true
	for _, p := range t.parts {
		clear(next)
		some := false
		if p.literal != "" {
			for i, ok := range here {
				if ok && strings.HasPrefix(uri[i:], p.literal) {
					next[i+len(p.literal)], some = true, true
				}
			}
		} else {
			some = p.expand(uri, here, next)
		}
		if !some {
			return false
		}
		here, next = next, here
	}
	return here[len(uri)]
}

// expand notes where an expression may end that begins at one of the places.
func (p *part) expand(uri string, here, next []bool) (some bool) {
	inside := false // the place is in an expression that began before
	for i := range here {
		if i > 0 {
			fits := strings.IndexByte(p.not, uri[i-1]) < 0
			begins := fits && p.first == 0 || p.first != 0 && uri[i-1] == p.first
			inside = inside && fits || here[i-1] && begins
		}
		if here[i] || inside {
			next[i], some = true, true
		}
	}
	return some
}
