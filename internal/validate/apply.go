package validate

import (
	"errors"
	"fmt"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
)

func (s *subject) reference(m member) error {
	to, err := s.word(m)
	if err != nil {
		return err
	}
	s.c.pending = append(s.c.pending, reference{s.node, s.place.below(m, "", m.at), to})
	return nil
}

func (s *subject) definitions(m member) error {
	entries, err := s.entries(m)
	for _, e := range entries {
		if _, err := s.sub(m, e.at, e.name); err != nil {
			return err
		}
	}
	return err
}

func (s *subject) types(m member) error {
	var names []string
	if name, err := s.word(m); err == nil {
		names = []string{name}
	} else if names, err = s.strings(m); err != nil || len(names) == 0 {
		return errors.New("must be the name of a type, or an array of names")
	}
	var types kinds
	for _, name := range names {
		i := slices.Index(kindNames[:], name)
		if i < 0 {
			return fmt.Errorf("there is no type %s", quoted(name))
		}
		types |= 1 << i
		if name == "number" {
			types |= integer
		}
	}
	s.node.types = types
	return nil
}

func (s *subject) enum(m member) error {
	if s.c.doc[m.at] != '[' {
		return errors.New("must be an array of values")
	}
	var values [][]byte
	for raw := range scan.Elements(s.raw(m)) {
		values = append(values, raw)
	}
	s.choose(m.name, values...)
	return nil
}

func (s *subject) constant(m member) error {
	s.choose(m.name, s.raw(m))
	return nil
}

// choose lets only some values through.
func (s *subject) choose(keyword string, values ...[]byte) {
	e := &enumRules{values: make(map[string]struct{}, len(values)), order: values, keyword: keyword}
	for _, raw := range values {
		if e.accepted |= kindOf[raw[0]]; e.accepted&number != 0 {
			e.accepted |= integer
		}
		e.values[string(AppendCanonical(nil, raw))] = struct{}{}
	}
	n := s.node
	if n.enum != nil { // enum and const together
		n = &node{types: anything, resource: s.place.resource}
		s.node.combines().refs = append(s.node.combines().refs, n)
	}
	n.enum = e
}

func (s *subject) multipleOf(m member) error {
	raw, err := s.number(m)
	if err != nil {
		return err
	}
	d, ok := newDivisor(raw)
	if !ok {
		return fmt.Errorf("must be greater than 0 and have at most %d significant digits", maxDivisor)
	}
	s.node.numbers().multiple = d
	return nil
}

func (s *subject) bound(m member) (*bound, error) {
	raw, err := s.number(m)
	if err != nil {
		return nil, err
	}
	return &bound{raw, parseDecimal(raw)}, nil
}

func (s *subject) limit(m member) error {
	b, err := s.bound(m)
	if err != nil {
		return err
	}
	n := s.node.numbers()
	strict := s.place.resource.draft == draft4
	switch {
	case m.name == "minimum" && strict && s.says("exclusiveMinimum"):
		n.lowOpen = b
	case m.name == "minimum":
		n.low = b
	case strict && s.says("exclusiveMaximum"):
		n.highOpen = b
	default:
		n.high = b
	}
	return nil
}

// says reports whether a keyword is true.
func (s *subject) says(name string) bool {
	m := find(s.members, name)
	return m != nil && s.c.doc[m.at] == 't'
}

func (s *subject) exclusive(m member) error {
	if s.place.resource.draft == draft4 {
		_, err := s.bool(m)
		return err
	}
	b, err := s.bound(m)
	switch {
	case err != nil:
		return err
	case m.name == "exclusiveMinimum":
		s.node.numbers().lowOpen = b
	default:
		s.node.numbers().highOpen = b
	}
	return nil
}

func (s *subject) compilePattern(source string) (*pattern, error) {
	if len(source) > s.c.limits.Pattern {
		return nil, fmt.Errorf("the pattern has %d bytes, %d are allowed", len(source),
			s.c.limits.Pattern)
	}
	tooLarge := errors.New("the patterns of the schema are too large")
	if s.c.weight > maxWeights { // a foreign schema goes on without them, and costs no more
		return nil, tooLarge
	}
	p, err := compilePattern(source)
	if err != nil {
		return nil, unsupported{err}
	}
	if s.c.weight += p.weight; s.c.weight > maxWeights {
		return nil, tooLarge
	}
	return p, nil
}

func (s *subject) pattern(m member) error {
	source, err := s.word(m)
	if err != nil {
		return err
	}
	s.node.texts().pattern, err = s.compilePattern(source)
	return err
}

func (s *subject) properties(m member) error {
	entries, err := s.entries(m)
	for _, e := range entries {
		n, err := s.sub(m, e.at, e.name)
		if err != nil {
			return err
		}
		o := s.node.objects()
		k := o.mention(e.name)
		o.props[k].node = n
	}
	return err
}

func (s *subject) patternProperties(m member) error {
	entries, err := s.entries(m)
	for _, e := range entries {
		p, err := s.compilePattern(e.name)
		if err != nil {
			if err := s.c.leave(s.node, m.name, s.place.below(m, e.name, e.at), err); err != nil {
				return err
			}
			continue
		}
		n, err := s.sub(m, e.at, e.name)
		if err != nil {
			return err
		}
		o := s.node.objects()
		o.patterns = append(o.patterns, patternProperty{p, n})
	}
	return err
}

func (s *subject) required(m member) error {
	names, err := s.strings(m)
	o := s.node.objects()
	for _, name := range names {
		o.required = append(o.required, o.mention(name))
	}
	return err
}

func (s *subject) dependencies(m member) error {
	entries, err := s.entries(m)
	o := s.node.objects()
	for _, e := range entries {
		d := dependency{property: o.mention(e.name), keyword: m.name}
		if m.name == "dependentRequired" || m.name == "dependencies" && s.c.doc[e.at] == '[' {
			names, err := s.strings(e)
			if err != nil {
				return err
			}
			for _, name := range names {
				d.required = append(d.required, o.mention(name))
			}
		} else if d.node, err = s.sub(m, e.at, e.name); err != nil {
			return err
		}
		o.needs = append(o.needs, d)
	}
	return err
}

func (s *subject) items(m member) (err error) {
	if s.c.doc[m.at] == '[' && s.place.resource.draft < draft2020 {
		return many(func(n *node) *[]*node { return &n.arrays().prefix })(s, m)
	}
	return one(func(n *node) **node { return &n.arrays().items })(s, m)
}

// additionalItems counts only beside a list of items.
func (s *subject) additionalItems(m member) error {
	n, err := s.sub(m, m.at, "")
	if err != nil {
		return err
	}
	if list := find(s.members, "items"); list != nil && s.c.doc[list.at] == '[' {
		s.node.arrays().items = n
	}
	return nil
}

func (s *subject) unique(m member) (err error) {
	s.node.arrays().unique, err = s.bool(m)
	return err
}

func (s *subject) contains(m member) error {
	n, err := s.sub(m, m.at, "")
	if err != nil {
		return err
	}
	d := s.place.resource.draft
	c := &contains{node: n, min: 1, max: -1, evaluates: d >= draft2020}
	if low := find(s.members, "minContains"); low != nil && d >= draft2019 {
		if c.min, err = s.count(*low); err != nil {
			return err
		}
	}
	if high := find(s.members, "maxContains"); high != nil && d >= draft2019 {
		if c.max, err = s.count(*high); err != nil {
			return err
		}
	}
	s.node.arrays().contains = c
	return nil
}
