package validate

import (
	"cmp"
	"regexp"
)

// kinds is a set of JSON types.
type kinds uint8

const (
	null kinds = 1 << iota
	boolean
	object
	array
	number // with or without a fraction
	integer
	text

	anything = null | boolean | object | array | number | integer | text
)

// kindNames are in the order of the bits.
var kindNames = [...]string{"null", "boolean", "object", "array", "number", "integer", "string"}

// kindOf tells the type of a value from its first byte; 0 is no value.
var kindOf = func() (t [256]kinds) {
	for c, k := range map[byte]kinds{
		'n': null, 't': boolean, 'f': boolean, '{': object, '[': array,
		'"': text, '-': number,
	} {
		t[c] = k
	}
	for c := '0'; c <= '9'; c++ {
		t[c] = number
	}
	return t
}()

// A node is a compiled subschema. A part that is nil asks for nothing.
type node struct {
	alias    *node // all that it says: be that one
	never    bool  // false as a schema
	types    kinds // which are allowed
	number   *numberRules
	text     *textRules
	object   *objectRules
	array    *arrayRules
	enum     *enumRules
	combined *combination
	resource *resource

	unjudged kinds // the values about which it says something that is left out
	open     bool  // what is left out may have looked at any member or item
}

type numberRules struct {
	low, high         *bound
	lowOpen, highOpen *bound // the exclusive ones
	multiple          *divisor
}

type bound struct {
	raw   []byte
	value decimal
}

type textRules struct {
	min, max int // in characters; max < 0 is no maximum
	pattern  *pattern
}

type pattern struct {
	re     *regexp.Regexp
	source string
	weight int // of matching one byte
}

type enumRules struct {
	values   map[string]struct{} // in canonical form
	order    [][]byte            // as written
	keyword  string              // enum or const
	accepted kinds               // the types of the values
}

type objectRules struct {
	props    []property
	index    map[string]int // of props; nil when they are few
	required []int
	patterns []patternProperty
	extra    *node // additionalProperties
	names    *node // propertyNames
	min, max int   // max < 0 is no maximum
	needs    []dependency
	open     bool // properties or patterns are left out: any member may be one of theirs
}

// A property is a name that the schema mentions.
type property struct {
	name string
	node *node // nil: mentioned elsewhere than in properties
}

type patternProperty struct {
	pattern *pattern
	node    *node
}

// A dependency is what follows from the presence of a property.
type dependency struct {
	property int
	required []int
	node     *node
	keyword  string
}

type arrayRules struct {
	prefix   []*node
	items    *node // those after the prefix
	min, max int   // max < 0 is no maximum
	unique   bool
	contains *contains
	open     bool // prefix or items are left out
}

type contains struct {
	node      *node
	min, max  int  // max < 0 is no maximum
	evaluates bool // what matches counts as evaluated (2020-12)
}

// A combination is what a node asks of the value as a whole, by other nodes.
type combination struct {
	refs            []*node
	dynamic         []dynamicRef
	all, any, one   []*node
	not             *node
	cond, then, els *node
	otherProperties *node // unevaluatedProperties
	otherItems      *node // unevaluatedItems
}

// A dynamicRef leads to the anchor of that name in the outermost resource, of
// those that the validation passed through, that has one.
type dynamicRef struct {
	name  string
	start *node // where it leads when none has
}

// A resource is a schema with its own URI.
type resource struct {
	uri     string
	at      int // offset of its text
	draft   draft
	anchors map[string]*node
	dynamic map[string]*node // the dynamic ones of the anchors
}

func (n *node) numbers() *numberRules {
	n.number = cmp.Or(n.number, &numberRules{})
	return n.number
}

func (n *node) texts() *textRules {
	n.text = cmp.Or(n.text, &textRules{max: -1})
	return n.text
}

func (n *node) objects() *objectRules {
	n.object = cmp.Or(n.object, &objectRules{max: -1})
	return n.object
}

func (n *node) arrays() *arrayRules {
	n.array = cmp.Or(n.array, &arrayRules{max: -1})
	return n.array
}

func (n *node) combines() *combination {
	n.combined = cmp.Or(n.combined, &combination{})
	return n.combined
}

// few is how many names are compared one by one.
const few = 8

// mention returns the number of a property's name.
func (o *objectRules) mention(name string) int {
	if k := o.lookup([]byte(name), 0); k >= 0 {
		return k
	}
	k := len(o.props)
	o.props = append(o.props, property{name: name})
	switch {
	case o.index != nil:
		o.index[name] = k
	case k >= few:
		o.index = make(map[string]int, 2*few)
		for i := range o.props {
			o.index[o.props[i].name] = i
		}
	}
	return k
}

// lookup returns the number of a property, or -1. Members often come in the
// schema's order: guess is where to look first.
func (o *objectRules) lookup(name []byte, guess int) int {
	if guess < len(o.props) && o.props[guess].name == string(name) {
		return guess
	}
	if o.index != nil {
		if k, ok := o.index[string(name)]; ok {
			return k
		}
		return -1
	}
	for k := range o.props {
		if o.props[k].name == string(name) {
			return k
		}
	}
	return -1
}
