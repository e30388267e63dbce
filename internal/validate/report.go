package validate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

// An Error says why a value does not fit its schema.
type Error struct {
	Problems []Problem // in the order of the value, at least one
	More     bool      // there are more than these
}

// A Problem is one reason, worded for the author of the value, who may be a
// language model.
type Problem struct {
	Pointer string // where in the value (RFC 6901)
	Member  string // the member that is wrong, missing or too much; "" when no member is
	Keyword string // of the schema
	Message string // a sentence that names the member
}

func (e *Error) Error() string {
	var s strings.Builder
	for i := range e.Problems {
		if i > 0 {
			s.WriteString("; ")
		}
		s.WriteString(e.Problems[i].Message)
	}
	if e.More {
		s.WriteString("; and more")
	}
	return s.String()
}

// A problem is a Problem in the making. Its path grows while the functions that
// went down to it return.
type problem struct {
	path    []token // innermost first
	keyword string
	detail  string
	member  string // of the value at path, which the detail names; "" is none
	inside  bool   // the member is in the value
}

// A token is one step from a container to a value in it.
type token struct {
	name  string
	index int // in an array; < 0 in an object
}

// fail notes a problem of the value that is being judged. It returns false.
func (r *run) fail(keyword string, detail func() string) bool {
	return r.failMember(keyword, "", false, detail)
}

// failMember is fail for a member that is missing or, when inside, too much.
func (r *run) failMember(keyword, member string, inside bool, detail func() string) bool {
	if r.quiet || r.err != nil {
		return false
	}
	if len(r.problems) == r.room {
		r.more, r.brief = true, true
		return false
	}
	r.problems = append(r.problems,
		problem{keyword: keyword, detail: detail(), member: member, inside: inside})
	return false
}

// within tells the problems since the given one that they are inside t.
func (r *run) within(since int, t token) {
	for i := since; i < len(r.problems); i++ {
		r.problems[i].path = append(r.problems[i].path, t)
	}
}

// report makes the error of the problems.
func (r *run) report() error {
	e := &Error{Problems: make([]Problem, len(r.problems)), More: r.more}
	for i := range r.problems {
		e.Problems[i] = r.problems[i].finish()
	}
	return e
}

func (p *problem) finish() Problem {
	slices.Reverse(p.path)
	out := Problem{Member: p.member, Keyword: p.keyword}
	pointer, name := "", ""
	for _, t := range p.path {
		if t.index >= 0 {
			pointer += "/" + strconv.Itoa(t.index)
			name += "[" + strconv.Itoa(t.index) + "]"
			continue
		}
		pointer += "/" + escapePointer(t.name)
		if name != "" {
			name += "."
		}
		name += t.name
		if p.member == "" {
			out.Member = t.name
		}
	}
	out.Message = p.detail
	if name != "" {
		out.Message = "property " + quoted(name) + ": " + p.detail
		if strings.HasPrefix(name, "[") {
			out.Message = "item " + name + ": " + p.detail
		}
	}
	if p.inside {
		pointer += "/" + escapePointer(p.member)
	}
	out.Pointer = pointer
	return out
}

func escapePointer(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// What a message repeats of a value or a schema is cut off here.
const (
	clipBytes = 100
	listBytes = 500
)

func clip[S string | []byte](s S) string {
	if len(s) <= clipBytes {
		return string(s)
	}
	n := clipBytes
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return string(s[:n]) + "…"
}

func quoted(name string) string { return string(scan.AppendQuoted(nil, clip(name))) }

// list joins what there is to choose from.
func list[S string | []byte](all []S) string {
	var s strings.Builder
	for i, one := range all {
		if i > 0 {
			s.WriteString(", ")
		}
		if s.Len() > listBytes {
			fmt.Fprintf(&s, "… (%d in all)", len(all))
			break
		}
		s.WriteString(clip(one))
	}
	return s.String()
}

// names joins the names of a set of types.
func (k kinds) names() string {
	var out []string
	for i, name := range kindNames {
		if k>>i&1 == 1 && (name != "integer" || k&number == 0) {
			out = append(out, name)
		}
	}
	return strings.Join(out, " or ")
}
