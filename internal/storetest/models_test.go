package storetest

import (
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/farcall-dev/farcall/store"
)

// Each model refuses what breaks the contract, and accepts what an unknown outcome allows.
func TestModels(t *testing.T) {
	yes, no, unknown := outcome{ok: true}, outcome{}, outcome{unknown: true}
	a, b, release := claim{key: "a"}, claim{key: "b"}, claim{key: "a", release: true}
	take, give := count{n: 5, limit: 8}, count{n: 2, give: true}
	put, get, remove := access{what: "put", value: "v"}, access{what: "get"}, access{what: "delete"}
	other, seen := access{what: "put", value: "w"}, outcome{n: 1, value: "v"}
	push, pull, end := work{"push", "a"}, work{"pull", "a"}, work{"done", "a"}
	n := func(n uint64) outcome { return outcome{n: n} }
	for name, test := range map[string]struct {
		model porcupine.Model
		done  []any // inputs and outcomes, one after another
		legal bool
	}{
		"claimed once":        {onceModel(), []any{a, yes, a, no}, true},
		"claimed twice":       {onceModel(), []any{a, yes, a, yes}, false},
		"two keys":            {onceModel(), []any{a, yes, b, yes}, true},
		"released":            {onceModel(), []any{a, yes, release, yes, a, yes}, true},
		"free, but refused":   {onceModel(), []any{a, no}, false},
		"unknown, refused":    {onceModel(), []any{a, unknown, a, no}, true},
		"unknown, free":       {onceModel(), []any{a, unknown, a, yes}, true},
		"sum at the limit":    {counterModel(), []any{take, n(5), take, n(3)}, true},
		"sum above the limit": {counterModel(), []any{take, n(5), take, n(5)}, false},
		"given":               {counterModel(), []any{take, n(5), give, yes, take, n(5)}, true},
		"put, seen":           {recordsModel(), []any{put, yes, get, seen}, true},
		"put, stale read":     {recordsModel(), []any{put, yes, get, no}, false},
		"put, wrong version":  {recordsModel(), []any{put, yes, other, yes}, false},
		"conflict, no cause":  {recordsModel(), []any{put, no}, false},
		"put unknown, seen":   {recordsModel(), []any{put, unknown, get, seen}, true},
		"seen, but deleted":   {recordsModel(), []any{put, yes, remove, yes, get, seen}, false},
		"pulled twice":        {queueModel(), []any{push, yes, pull, yes, pull, yes}, true},
		"pulled, then pushed": {queueModel(), []any{pull, yes, push, yes}, false},
		"pulled after done":   {queueModel(), []any{push, yes, pull, yes, end, yes, pull, yes}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var all []porcupine.Operation
			for i := 0; i < len(test.done); i += 2 {
				all = append(all, porcupine.Operation{
					Input: test.done[i], Output: test.done[i+1],
					Call: int64(10 * i), Return: int64(10*i + 1),
				})
				if test.done[i+1] == any(unknown) {
					all[len(all)-1].Return = 1 << 62
				}
			}
			if got := porcupine.CheckOperations(test.model, all); got != test.legal {
				t.Errorf("legal: %v", got)
			}
		})
	}
}

// A listener finds what a bus must not do.
func TestListener(t *testing.T) {
	for name, test := range map[string]struct {
		messages []string // "gap", or what was published
		faults   int
	}{
		"in order":        {[]string{"0 1", "1 1", "0 2"}, 0},
		"twice":           {[]string{"0 1", "0 1"}, 1},
		"swapped":         {[]string{"0 2", "0 1"}, 2},
		"lost":            {[]string{"0 1", "0 3"}, 1},
		"lost with a gap": {[]string{"0 1", "gap", "0 3"}, 0},
		"foreign":         {[]string{"x"}, 1},
	} {
		l := newListener()
		for _, text := range test.messages {
			l.receive(message(text))
		}
		if len(l.faults) != test.faults {
			t.Errorf("%s: %q", name, l.faults)
		}
	}
}

func message(text string) store.Message {
	if text == "gap" {
		return store.Message{Gap: true}
	}
	return store.Message{Data: []byte(text)}
}
