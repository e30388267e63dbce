package farcall

import "slices"

// Group returns a Mux that adds methods to m: their names begin with the prefix, as in
//
//	math := mux.Group("math/", logged)
//	farcall.Handle(math, "add", add) // it is called math/add
//
// and the interceptors, the first outermost, surround them, inside of those of
// Options. Groups can have groups. A Group serves nothing itself; m does.
func (m *Mux) Group(prefix string, around ...Interceptor) *Mux {
	g := &Mux{whole: m, prefix: prefix, around: slices.Clone(around)}
	g.methods.Store(&map[string]*entry{}) // a group serves nothing
	return g
}

// addTo adds a method of a group to the Mux that it is a group of.
func (m *Mux) addTo(whole *Mux, e *entry) {
	switch {
	case e.name == "":
		misuse("a method needs a name")
	case e.handler == nil:
		misuse("the method %q needs a handler", m.prefix+e.name)
	}
	e.name = m.prefix + e.name
	for _, wrap := range slices.Backward(m.around) {
		e.handler = wrap(e.handler)
	}
	whole.add(e)
}
