package era

import (
	"slices"
	"testing"
)

// Third is a made-up revision with a third lifecycle: a connection begins with a
// handshake and has a session, as in legacy revisions, but a server asks by results
// of several rounds, and results have their type and cache hints, as in modern ones.
const Third = "2027-01-01"

// AddThird makes it a row of the table until the test ends. Messages are those of
// the revision before it: nothing is translated.
func AddThird(t *testing.T) {
	r := *Latest()
	r.Name = Third
	r.Handshake, r.SessionHeader, r.PingAllowed = true, true, true
	r.Subscribe, r.SetLevel, r.RootsChanged = true, true, true
	r.RequestMeta, r.MetaLogLevel, r.ListenStream, r.MirroredHeaders = false, false, false, false
	wasTable, wasRevisions, wasSteps := table, revisions, steps
	table = append(slices.Clone(table), row{&r, step{down: toward(nil), up: toward(nil)}})
	revisions = append(slices.Clone(revisions), &r)
	steps = append(slices.Clone(steps), table[len(table)-1].step)
	t.Cleanup(func() { table, revisions, steps = wasTable, wasRevisions, wasSteps })
}
