package route

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A source that hangs holds up neither who looks for what one before it has, nor,
// once it is known to hang, for long who lists.
func TestHangingSourceIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, hangs := &fake{}, &fake{before: func(ctx context.Context) { <-ctx.Done() }}
		good.set(Tools, List{Items: []jsonrpc.Raw{jsonrpc.Raw(`{"name":"echo"}`)}})
		v := NewView([]Source{{Name: "good", List: good.list}, {Name: "hangs", List: hangs.list}}, nil)
		defer v.Close()
		took := func(f func()) time.Duration {
			began := time.Now()
			f()
			return time.Since(began)
		}
		find := func() {
			if target, ok, err := v.Find(t.Context(), Tools, "good__echo"); !ok || err != nil ||
				target.Source != "good" {
				t.Error(target, ok, err)
			}
		}
		list := func() {
			if page, err := v.Page(t.Context(), Tools, ""); err != nil || len(page.Items) != 1 ||
				len(page.Missing) != 1 {
				t.Error(page, err)
			}
		}
		if d := took(find); d != 0 {
			t.Errorf("it was found after %v", d)
		}
		if d := took(list); d != 10*time.Second {
			t.Errorf("it was first listed after %v", d)
		}
		<-time.After(time.Minute) // that attempt is over
		if d := took(list); d != time.Second {
			t.Errorf("it was listed again after %v", d)
		}
		if d := took(find); d != 0 {
			t.Errorf("it was found after %v", d)
		}
	})
}

// A name goes to no other source while the source that may have it is slow.
func TestSlowSourceKeepsItsNames(t *testing.T) {
	always, never := Rules{Namespace: NamespaceAlways}, Rules{Namespace: NamespaceNever}
	const refused = `"x" is among the tools of`
	for name, c := range map[string]struct {
		slow, quick Rules
		slowIsLater bool
		shown, want string
		wait        time.Duration
	}{
		"never":             {never, never, false, "x", refused, 5 * time.Second},
		"auto":              {Rules{}, Rules{}, false, "x", refused, 5 * time.Second},
		"never before auto": {never, Rules{}, true, "x", "slow/x", 5 * time.Second},
		"auto, never":       {Rules{}, never, false, "x", "quick/x", 0},
		"always, auto":      {always, Rules{}, false, "x", "quick/x", 0},
		"always":            {always, always, false, "x", refused, 5 * time.Second},
		"later":             {Rules{}, Rules{}, true, "x", "quick/x", 0},
		"later, never":      {never, never, true, "x", "quick/x", 0},
		"long form":         {Rules{}, Rules{}, false, "quick__x", "quick/x", 0},
		"long form, always": {always, always, false, "quick__x", "quick/x", 0},
		"only here":         {always, always, false, "y", "quick/y", 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				slow, quick := with(Tools, "x"), with(Tools, "x", "y")
				slow.before = func(context.Context) { <-time.After(5 * time.Second) }
				sources := []Source{slow.source("slow", c.slow), quick.source("quick", c.quick)}
				if c.slowIsLater {
					slices.Reverse(sources)
				}
				v := view(t, nil, sources...)
				began := time.Now()
				if got := found(t, v, Tools, c.shown); got != c.want &&
					(c.want != refused || !strings.HasPrefix(got, refused)) {
					t.Errorf("%q leads to %q, want %q", c.shown, got, c.want)
				}
				if d := time.Since(began); d != c.wait {
					t.Errorf("after %v, want %v", d, c.wait)
				}
			})
		})
	}
}

// No caller waits longer than for a list, and those who come later not at all.
func TestSourceThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs, good := &fake{before: func(ctx context.Context) { <-ctx.Done() }}, with(Tools, "x")
		v := view(t, nil, hangs.source("hangs", Rules{}), good.source("good", Rules{}))
		for _, want := range []time.Duration{10 * time.Second, 0, 0} {
			began := time.Now()
			finds(t, v, Tools, map[string]string{"x": "good/x"})
			if d := time.Since(began); d != want {
				t.Errorf("it was found after %v, want %v", d, want)
			}
		}
	})
}
