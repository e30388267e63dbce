package observe_test

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/observe"
)

type key string

// noting is an observer that writes its name at each event.
func noting(name string, log *[]string) *observe.Observer {
	note := func(what string) { *log = append(*log, name+what) }
	return &observe.Observer{
		Start: func(ctx context.Context, _ *observe.Call) context.Context {
			note("start")
			return context.WithValue(ctx, key(name), true)
		},
		End: func(ctx context.Context, _ *observe.Call) {
			if ctx.Value(key(name)) == nil {
				note("lost its context")
			}
			note("end")
		},
		Sent:   func(context.Context, *observe.Call) { note("sent") },
		Refuse: func(context.Context, *observe.Call) { note("refuse") },
		Frame:  func(observe.Frame) { note("frame") },
		Bad:    func(observe.Frame, string) { note("bad") },
		Open:   func(observe.Lifetime) { note("open") },
		Close:  func(observe.Lifetime) { note("close") },
		Decide: func(observe.Decision) { note("decide") },
	}
}

// Joined observers see each event once, nested, whichever of them have a function for it.
func TestJoin(t *testing.T) {
	t.Parallel()
	var log []string
	a, b := noting("a", &log), noting("b", &log)
	o := observe.Join(nil, a, &observe.Observer{}, nil, b, &observe.Observer{Messages: true},
		&observe.Observer{Traces: true})
	if !o.Messages || !o.Traces {
		t.Error("one wants the messages and another one the spans, and the joined observer does not")
	}
	all(t, o)
	const want = "astart bstart asent bsent bend aend arefuse brefuse aframe bframe abad bbad aopen " +
		"bopen bclose aclose adecide bdecide"
	if got := strings.Join(log, " "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if observe.Join() != nil || observe.Join(nil, nil) != nil {
		t.Error("joining none does not give nil")
	}
	if observe.Join(nil, a) != a {
		t.Error("joining one does not give that one")
	}
	// A field that Join forgets would be lost without a word.
	v := reflect.ValueOf(observe.Join(a, b)).Elem()
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).Kind() == reflect.Func && v.Field(i).IsNil() {
			t.Errorf("Join drops %s", name)
		}
	}
}

// all calls every function.
func all(t *testing.T, o *observe.Observer) {
	t.Helper()
	c := &observe.Call{}
	ctx := o.Start(t.Context(), c)
	o.Sent(ctx, c)
	o.End(ctx, c)
	o.Refuse(t.Context(), c)
	o.Frame(observe.Frame{})
	o.Bad(observe.Frame{}, "syntax")
	o.Open(observe.Lifetime{})
	o.Close(observe.Lifetime{})
	o.Decide(observe.Decision{})
}

// Tag comes before the observer, and works for one that has no Start.
func TestTag(t *testing.T) {
	t.Parallel()
	var none *observe.Observer
	if none.Tag(func(*observe.Call) {}) != nil {
		t.Error("the Tag of nil is not nil")
	}
	var got []string
	note := func(_ context.Context, c *observe.Call) { got = append(got, c.Tool) }
	o := (&observe.Observer{End: note, Refuse: note}).Tag(func(c *observe.Call) { c.Tool += "x" })
	c := &observe.Call{}
	o.End(o.Start(t.Context(), c), c)
	o.Refuse(t.Context(), &observe.Call{})
	if strings.Join(got, ",") != "x,x" {
		t.Errorf("got %q", got)
	}
}
