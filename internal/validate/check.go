package validate

import (
	"bytes"
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/scan"
)

// A run is the judging of one value.
type run struct {
	value   []byte
	steps   int // that may still be taken
	depth   int
	brief   bool // after the first problem nothing else matters
	quiet   bool // problems are not noted
	shallow bool // alternatives are not compared
	unsure  bool // what fits may not: something that was left out of the schema is about it
	more    bool // there were more problems than there is room for
	room    int
	nulls   bool // Limits.OptionalNulls

	problems []problem
	err      error // ends it

	dynamic bool
	scope   []*resource // which the run is in, outermost first; only when dynamic
}

// maxDepth bounds how far the functions below recurse.
const maxDepth = 10_000

// check judges the value at an offset and returns its end. After a failure that
// ends the run, or any in brief mode, the end means nothing.
func (r *run) check(n *node, i int) (end int, ok bool) {
	if n.alias != nil {
		n = n.alias
	}
	r.depth++
	if r.steps--; r.steps < 0 || r.depth > maxDepth {
		return r.abort(ErrTooComplex)
	}
	if r.dynamic && n.resource != r.scope[len(r.scope)-1] {
		r.scope = append(r.scope, n.resource)
		end, ok = r.judge(n, i)
		r.scope = r.scope[:len(r.scope)-1]
	} else {
		end, ok = r.judge(n, i)
	}
	r.depth--
	return end, ok
}

func (r *run) judge(n *node, i int) (end int, ok bool) {
	if uint(i) >= uint(len(r.value)) {
		return r.invalid(i, scan.End)
	}
	kind := kindOf[r.value[i]]
	r.unsure = r.unsure || n.unjudged&kind != 0
	if n.never || n.types&kind == 0 && (kind != number || n.types&integer == 0) {
		r.failType(n, i)
		return r.skipFailed(i)
	}
	end, ok = r.byType(n, kind, i)
	if n.enum == nil && n.combined == nil {
		return end, ok
	}
	if n.enum != nil && r.goesOn(ok) {
		ok = r.enum(n.enum, kind, r.value[i:end]) && ok
	}
	if n.combined != nil && r.goesOn(ok) {
		ok = r.combined(n, i) && ok
	}
	return end, ok
}

// byType judges a value by the rules for its type.
func (r *run) byType(n *node, kind kinds, i int) (end int, ok bool) {
	switch {
	case kind == object && n.object != nil:
		return r.object(n.object, i)
	case kind == array && n.array != nil:
		return r.array(n.array, i)
	case kind == text && n.text != nil:
		return r.text(n.text, i)
	}
	end, ok = r.skip(i)
	if ok && kind == number && (n.number != nil || n.types&number == 0) {
		ok = r.number(n, r.value[i:end])
	}
	return end, ok
}

// goesOn reports whether there is more to judge.
func (r *run) goesOn(ok bool) bool { return ok || !r.brief }

// A fit is whether a value fits a node, as far as that can be known.
type fit uint8

const (
	no fit = iota
	maybe
	yes
)

// try returns whether the value at an offset fits, and notes no problems.
func (r *run) try(n *node, i int) (f fit) {
	brief, quiet, unsure := r.brief, r.quiet, r.unsure
	r.brief, r.quiet, r.unsure = true, true, false
	if _, ok := r.check(n, i); ok {
		f = yes
		if r.unsure {
			f = maybe
		}
	}
	r.brief, r.quiet, r.unsure = brief || r.err != nil, quiet, unsure
	return f
}

// may reports whether the value at an offset may fit.
func (r *run) may(n *node, i int) bool {
	f := r.try(n, i)
	r.unsure = r.unsure || f == maybe
	return f != no
}

func (r *run) abort(err error) (int, bool) {
	r.err = cmp.Or(r.err, err)
	r.brief = true
	return 0, false
}

func (r *run) invalid(i int, f scan.Fault) (int, bool) {
	return r.abort(fmt.Errorf("the value is no JSON: %s at byte %d", f, i))
}

// skip passes a value.
func (r *run) skip(i int) (int, bool) {
	end, f := scan.Value(r.value, i, -1)
	if f != scan.OK {
		return r.invalid(end, f)
	}
	return r.spend(end, end-i)
}

// spend takes the steps for looking at some bytes. It returns end.
func (r *run) spend(end, n int) (int, bool) {
	if r.steps -= n >> 5; r.steps < 0 {
		return r.abort(ErrTooComplex)
	}
	return end, true
}

// skipFailed passes a value that does not fit.
func (r *run) skipFailed(i int) (int, bool) {
	if r.brief {
		return i, false
	}
	end, _ := r.skip(i)
	return end, false
}

func (r *run) failType(n *node, i int) {
	if n.never {
		r.fail("false", func() string { return "is not allowed" })
		return
	}
	r.fail("type", func() string {
		got := cmp.Or(kindOf[r.value[i]].names(), "something that is no JSON")
		return "got " + got + ", want " + n.types.names()
	})
}

func (r *run) number(n *node, raw []byte) bool {
	d := parseDecimal(raw)
	if n.types&number == 0 && !d.integer() {
		return r.fail("type", func() string {
			return "got number " + clip(raw) + ", want " + n.types.names()
		})
	}
	rules := n.number
	if rules == nil {
		return true
	}
	ok := true
	is := func(keyword, relation string, limit *bound) {
		ok = r.fail(keyword, func() string {
			return fmt.Sprintf("%s %s %s", clip(raw), relation, limit.raw)
		})
	}
	if l := rules.low; l != nil && d.compare(&l.value) < 0 {
		is("minimum", "is less than the minimum", l)
	}
	if l := rules.high; l != nil && d.compare(&l.value) > 0 {
		is("maximum", "is greater than the maximum", l)
	}
	if l := rules.lowOpen; l != nil && d.compare(&l.value) <= 0 {
		is("exclusiveMinimum", "must be greater than", l)
	}
	if l := rules.highOpen; l != nil && d.compare(&l.value) >= 0 {
		is("exclusiveMaximum", "must be less than", l)
	}
	if m := rules.multiple; m != nil && !m.divides(&d) {
		return r.fail("multipleOf", func() string {
			return fmt.Sprintf("%s is not a multiple of %s", clip(raw), m.raw)
		})
	}
	return ok
}

func (r *run) text(t *textRules, i int) (int, bool) {
	end, escaped, f := scan.String(r.value, i)
	if f != scan.OK {
		return r.invalid(end, f)
	}
	if _, ok := r.spend(end, end-i); !ok {
		return 0, false
	}
	s := r.value[i+1 : end-1]
	if escaped {
		s = scan.Unquote(r.value[i:end])
	}
	ok := true
	if t.min > 0 || t.max >= 0 {
		n := utf8.RuneCount(s)
		if n < t.min {
			ok = r.fail("minLength", func() string {
				return fmt.Sprintf("has %s, the minimum is %d", count(n, "character"), t.min)
			})
		}
		if t.max >= 0 && n > t.max {
			ok = r.fail("maxLength", func() string {
				return fmt.Sprintf("has %s, the maximum is %d", count(n, "character"), t.max)
			})
		}
	}
	if t.pattern != nil && (ok || !r.brief) && !r.match(t.pattern, s) {
		ok = r.fail("pattern", func() string {
			return fmt.Sprintf("%s does not match the pattern %s", quoted(string(s)), clip(t.pattern.source))
		})
	}
	return end, ok
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func (r *run) match(p *pattern, s []byte) bool {
	// Matching takes, at worst, all instructions for each byte.
	if r.steps -= (len(s) + 1) * p.weight / 4; r.steps < 0 {
		r.abort(ErrTooComplex)
		return false
	}
	return p.re.Match(s)
}

func (r *run) enum(e *enumRules, kind kinds, raw []byte) bool {
	if e.accepted&kind != 0 {
		if _, ok := r.spend(0, 4*len(raw)); !ok {
			return false
		}
		if kind == text && bytes.IndexByte(raw, '\\') < 0 || kind&(null|boolean) != 0 {
			if _, ok := e.values[string(raw)]; ok {
				return true
			}
		} else {
			var small [64]byte
			if _, ok := e.values[string(AppendCanonical(small[:0], raw))]; ok {
				return true
			}
		}
	}
	return r.fail(e.keyword, func() string {
		if len(e.order) == 1 {
			return clip(raw) + " is not " + clip(e.order[0])
		}
		return clip(raw) + " is not one of " + list(e.order)
	})
}
