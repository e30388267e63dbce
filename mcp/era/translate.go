package era

import (
	"errors"
	"slices"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Kind says which part of a call is translated.
type Kind uint8

// The kinds. The error of a failed call has [Code].
const (
	Params       Kind = iota // the params of a request
	Result                   // its result
	Notification             // the params of a notification
	// BareResult is a Result that gets no resultType "complete": who adds that, with other members,
	// copies it once.
	BareResult
)

// Translate returns raw, a part of a call of method in the revision from, as it
// is in the revision to. Only what differs is changed: all other bytes are kept,
// and raw itself is returned when nothing differs. What the other revision lacks
// is left out or said in its words; what it demands is added, except the _meta
// of a modern request, which only its sender knows. What neither defines passes
// untouched, and so does what is not valid.
//
// The error is a [jsonrpc.Error], for a message that cannot be expressed in the other
// revision at all: a request that it does not have, input_required, a form field
// for which it has no type. A notification with that error is not to be sent. A
// request that only the older revision has passes untouched.
func Translate(kind Kind, method string, raw jsonrpc.Raw, from, to *Revision) (jsonrpc.Raw, error) {
	if from == to {
		return raw, nil
	}
	source, target := slices.Index(revisions, from), slices.Index(revisions, to)
	t := draft{Raw: raw, bare: kind == BareResult}
	if t.bare {
		kind = Result
	}
	for what := (message{kind, method}); source >= 0 && target >= 0 && source != target; {
		var d *direction
		if source < target {
			source++
			d = steps[source].up
		} else {
			d = steps[source].down
			source--
		}
		if err := d.apply(what, &t); err != nil {
			return nil, refuse(what, to, err)
		}
	}
	return t.Raw, nil
}

// refuse says that a message cannot be translated.
func refuse(what message, to *Revision, err error) *jsonrpc.Error {
	code := jsonrpc.InvalidParams
	switch {
	case errors.Is(err, errGone):
		code = jsonrpc.MethodNotFound
	case what.kind == Result:
		code = jsonrpc.InternalError
	}
	return &jsonrpc.Error{Code: code, Message: what.method + ": MCP " + to.Name + " " + err.Error()}
}

const errGone = cannot("has no such method")

// MCP has all of these codes for itself since it is stateless. What others sent
// with them is a thousand higher there, outside every reserved range.
const (
	reservedFirst = -32099
	reservedLast  = -32020
	aside         = 1000

	headerMismatch    = -32020
	missingCapability = -32021
)

// Code returns e with the code that it has in the revision to. It is e itself
// when that is the same one.
func Code(e *jsonrpc.Error, from, to *Revision) *jsonrpc.Error {
	if e == nil || from.ReservedCodes == to.ReservedCodes {
		return e
	}
	code := e.Code
	switch {
	case to.ReservedCodes && code == from.ResourceNotFound:
		code = to.ResourceNotFound
	case to.ReservedCodes && code == from.UnsupportedVersion &&
		scan.Member(e.Data, "supported") != nil:
		code = to.UnsupportedVersion
	case to.ReservedCodes && reserved(code):
		code += aside
	case to.ReservedCodes:
	case code == from.ResourceNotFound && scan.Member(e.Data, "uri") != nil:
		code = to.ResourceNotFound
	case code == from.UnsupportedVersion:
		code = to.UnsupportedVersion
	case code == headerMismatch, code == missingCapability:
		code = jsonrpc.InvalidRequest
	case reserved(code - aside):
		code -= aside
	}
	if code == e.Code {
		return e
	}
	out := *e
	out.Code = code
	return &out
}

func reserved(code jsonrpc.Code) bool { return reservedFirst <= code && code <= reservedLast }

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
