package era

import (
	"slices"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A rule is one difference between neighbours. Together they are the
// documentation (docs/eras.md) and the program.
type rule struct {
	what  string // what happens, for the documentation
	edits edits
}

// edits says what happens to each thing.
type edits []struct {
	thing *thing
	edit  edit
}

// A step is what lies between a revision and the one before it.
type step struct {
	down, up *direction
}

// A direction is one way of a step.
type direction struct {
	gone  []string // methods that the other revision does not have
	rules []rule
	edits map[message][]watched // the rules, by what they edit
}

// A watched edit is done in texts that have one of its words.
type watched struct {
	words     words
	edit      edit
	completes bool // it adds a resultType "complete"
}

// revisions and steps are the table's columns; steps has at each revision's index
// the step to the one before it. known has the words of all edits.
var revisions, steps, known = columns(table)

func columns(table []row) (revisions []*Revision, steps []step, known lexicon) {
	for i, row := range table {
		revisions, steps = append(revisions, row.revision), append(steps, row.step)
		if i > 0 {
			row.step.down.place(&known)
			row.step.up.place(&known)
		}
	}
	return revisions, steps, known
}

// toward makes one way of a step.
func toward(gone []string, rules ...rule) *direction { return &direction{gone: gone, rules: rules} }

// place sorts the edits by the messages in which their things stand.
func (d *direction) place(known *lexicon) {
	var order []*thing
	things := map[*thing][]edit{}
	for _, r := range d.rules {
		for _, e := range r.edits {
			if things[e.thing] == nil {
				order = append(order, e.thing)
			}
			things[e.thing] = append(things[e.thing], e.edit)
		}
	}
	d.edits = map[message][]watched{}
	for _, t := range order {
		for _, p := range *t {
			e := p.in(all(things[t]...))
			d.edits[p.message] = append(d.edits[p.message], watched{known.set(e.words), e, t == answers})
		}
	}
}

// apply translates one step of the way.
func (d *direction) apply(what message, t *draft) error {
	if what.kind != Result && slices.Contains(d.gone, what.method) {
		return errGone
	}
	if err := t.apply(d.edits[what]); err != nil {
		return err
	}
	return t.apply(d.edits[message{kind: what.kind}])
}

// A draft is a message on its way.
type draft struct {
	jsonrpc.Raw
	words words // that are in it
	read  bool  // words is known
	bare  bool  // it gets no resultType "complete"
}

func (t *draft) apply(edits []watched) error {
	for i := range edits {
		if !t.read {
			t.words, t.read = known.in(t.Raw), true
		}
		if t.bare && edits[i].completes || !t.words.meet(edits[i].words) {
			continue
		}
		v, err := edits[i].edit.do(t.Raw)
		if err != nil {
			return err
		}
		t.read = same(v, t.Raw)
		t.Raw = v
	}
	return nil
}
