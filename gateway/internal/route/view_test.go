package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// fake is a source with lists that are set by a test.
type fake struct {
	mu     sync.Mutex
	lists  map[string]List
	err    error
	calls  atomic.Int32
	before func(ctx context.Context) // is called first
}

type callerKey struct{}

func as(t *testing.T, name string) context.Context {
	t.Helper()
	return context.WithValue(t.Context(), callerKey{}, name)
}

func scopeOf(ctx context.Context) string {
	name, _ := ctx.Value(callerKey{}).(string)
	return name
}

func (f *fake) list(ctx context.Context, kind string) (List, error) {
	f.calls.Add(1)
	if f.before != nil {
		f.before(ctx)
	}
	if err := ctx.Err(); err != nil {
		return List{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lists[kind], f.err
}

func (f *fake) set(kind string, l List) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = nil
	if f.lists == nil {
		f.lists = map[string]List{}
	}
	f.lists[kind] = l
}

func (f *fake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

// source returns it with rules, which show plain names unless they say otherwise.
func (f *fake) source(name string, r Rules) Source {
	r.Namespace = cmp.Or(r.Namespace, NamespaceAuto)
	return Source{Name: name, Rules: r, List: f.list, Scope: scopeOf}
}

// with is a source that has some names of a kind.
func with(kind string, names ...string) *fake {
	f := &fake{}
	f.set(kind, listed(kind, names...))
	return f
}

func listed(kind string, names ...string) List {
	k, _ := kindOf(kind)
	l := List{Public: true}
	for _, n := range names {
		l.Items = append(l.Items,
			jsonrpc.Raw(fmt.Sprintf(`{"description":"d","%s":%q,"x":1.0}`, layouts[k].key, n)))
	}
	return l
}

func view(t *testing.T, o *Options, sources ...Source) *View {
	t.Helper()
	v := NewView(sources, o)
	t.Cleanup(v.Close)
	return v
}

func names(kind string, items []jsonrpc.Raw) string {
	k, _ := kindOf(kind)
	var all []string
	for _, raw := range items {
		all = append(all, string(scan.Unquote(scan.Member(raw, layouts[k].key))))
	}
	return strings.Join(all, " ")
}

func page(t *testing.T, v *View, kind, want string) Page {
	t.Helper()
	p, err := v.Page(t.Context(), kind, "")
	if err != nil {
		t.Fatal(err)
	}
	if got := names(kind, p.Items); got != want {
		t.Errorf("%s: %q, want %q (missing: %+v)", kind, got, want, p.Missing)
	}
	return p
}

// found says where a name leads: SOURCE/name, "-", or the error.
func found(t *testing.T, v *View, kind, shown string) string {
	t.Helper()
	target, ok, err := v.Find(t.Context(), kind, shown)
	switch {
	case err != nil:
		return err.Error()
	case !ok:
		return "-"
	}
	return target.Source + "/" + target.Name
}

func finds(t *testing.T, v *View, kind string, want map[string]string) {
	t.Helper()
	for shown, to := range want {
		if got := found(t, v, kind, shown); got != to {
			t.Errorf("%s %q leads to %q, want %q", kind, shown, got, to)
		}
	}
}

func TestNames(t *testing.T) {
	always, never := Rules{Namespace: NamespaceAlways}, Rules{Namespace: NamespaceNever}
	renamed := Rules{
		Tools: Filter{
			Rename:   map[string]string{"x": "y"},
			Describe: map[string]string{"x": "said\n"},
		},
		Resources: Filter{Rename: map[string]string{"f:x": "f:y"}},
	}
	hidden := Rules{Tools: Filter{Deny: []string{"x"}}}
	const ambiguousX = `"x" is among the tools of a and b and c: use a__x or b__x or c__x`
	for _, test := range []struct {
		name    string
		kind    string
		sources []Source
		shown   string
		leads   map[string]string
	}{
		{
			"none collide", Tools,
			[]Source{with(Tools, "x", "y").source("a", Rules{}), with(Tools, "z").source("b", Rules{})},
			"x y z",
			map[string]string{"x": "a/x", "z": "b/z", "a__x": "a/x", "b__x": "-", "w": "-", "": "-"},
		},
		{
			"both get a prefix", Tools,
			[]Source{with(Tools, "x", "y").source("a", Rules{}), with(Tools, "z", "x").source("b", Rules{})},
			"a__x y z b__x",
			map[string]string{
				"x": `"x" is among the tools of a and b: use a__x or b__x`, "a__x": "a/x",
				"b__x": "b/x",
			},
		},
		{
			"prompts likewise", Prompts,
			[]Source{with(Prompts, "x").source("a", Rules{}), with(Prompts, "x").source("b", Rules{})},
			"a__x b__x",
			map[string]string{"b__x": "b/x"},
		},
		{
			"always", Tools,
			[]Source{with(Tools, "x").source("a", always), with(Tools, "x").source("b", Rules{})},
			"a__x x",
			map[string]string{"x": "b/x", "a__x": "a/x"},
		},
		{
			"always, all of them", Tools,
			[]Source{with(Tools, "x", "y", "b__z").source("a", always), with(Tools, "x", "a__x").source("b", always)},
			"a__x a__y a__b__z b__x b__a__x",
			map[string]string{
				"a__x": "a/x", "b__x": "b/x", "y": "a/y",
				"x":    `"x" is among the tools of a and b: use a__x or b__x`,
				"b__z": "-", "b__a__x": "b/a__x", "z": "-",
			},
		},
		{
			"always, alone", Resources,
			[]Source{with(Resources, "f:x", "ui://v", "https://w").source("a", always)},
			"a+f:x ui://a+/v https://w",
			map[string]string{
				"a+f:x": "a/f:x", "f:x": "a/f:x", "ui://a+/v": "a/ui://v", "a+ui://v": "a/ui://v",
				"ui://v":    "a/ui://v",
				"https://w": "a/https://w", "a+https://w": "a/https://w",
			},
		},
		{
			"web URIs are listed once", Resources,
			[]Source{
				with(Resources, "https://w", "b+f:x").source("a", always),
				with(Resources, "https://w", "f:x").source("b", always),
			},
			"https://w a+b+f:x b+f:x",
			map[string]string{
				"https://w":   `"https://w" is among the resources of a and b: use a+https://w or b+https://w`,
				"b+https://w": "b/https://w",
				// which b may have, and a must not take
				"b+f:x": "b/f:x", "a+b+f:x": "a/b+f:x", "b+f:y": "b/f:y",
			},
		},
		{
			"never", Tools,
			[]Source{with(Tools, "x").source("a", Rules{}), with(Tools, "x").source("b", never), with(Tools, "x", "y").source("c", never)},
			"a__x y",
			map[string]string{"x": ambiguousX, "c__x": "c/x", "y": "c/y"},
		},
		{
			"never beside auto", Tools,
			[]Source{with(Tools, "x").source("a", Rules{}), with(Tools, "x", "a__x").source("b", never)},
			"a__x x",
			map[string]string{"x": "b/x", "a__x": "a/x", "b__a__x": "b/a__x"},
		},
		{
			"renamed away from a collision", Tools,
			[]Source{with(Tools, "x").source("a", renamed), with(Tools, "x").source("b", Rules{})},
			"y x",
			map[string]string{"x": "b/x", "y": "a/x", "a__y": "a/x", "a__x": "-"},
		},
		{
			"what is hidden does not collide", Tools,
			[]Source{with(Tools, "x", "y").source("a", hidden), with(Tools, "x").source("b", Rules{})},
			"y x",
			map[string]string{"x": "b/x", "a__x": "-"},
		},
		{
			"a name that looks like a prefixed one", Tools,
			[]Source{with(Tools, "x").source("a", Rules{}), with(Tools, "x", "a__x").source("b", Rules{})},
			"a__x b__x b__a__x",
			map[string]string{"a__x": "a/x", "b__a__x": "b/a__x"},
		},
		{
			"sources with names that run into each other", Tools,
			[]Source{with(Tools, "b__x").source("a", always), with(Tools, "x").source("a__b", always)},
			"a__b__x a__b__a__b__x",
			map[string]string{"a__b__x": "a/b__x", "a__b__a__b__x": "a__b/x"},
		},
		{
			"URIs", Resources,
			[]Source{with(Resources, "f:x", "f:y").source("a", Rules{}), with(Resources, "f:x").source("b", Rules{})},
			"a+f:x a+f:y b+f:x",
			map[string]string{
				"f:x": `"f:x" is among the resources of a and b: use a+f:x or b+f:x`, "b+f:x": "b/f:x",
				"a+f:x": "a/f:x", "f:y": "a/f:y",
			},
		},
		{
			"renamed URIs", Resources,
			[]Source{with(Resources, "f:x").source("a", renamed), with(Resources, "f:x").source("b", always)},
			"a+f:y b+f:x",
			map[string]string{"a+f:y": "a/f:x", "a+f:x": "a/f:x", "f:y": "a/f:x", "b+f:x": "b/f:x"},
		},
		{
			"templates", Templates,
			[]Source{with(Templates, "f:{x}").source("a", Rules{}), with(Templates, "f:{x}").source("b", Rules{})},
			"a+f:{x} b+f:{x}",
			map[string]string{"b+f:{x}": "b/f:{x}"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			v := view(t, nil, test.sources...)
			page(t, v, test.kind, test.shown)
			finds(t, v, test.kind, test.leads)
		})
	}
	v := view(t, nil, with(Tools, "x").source("a", renamed))
	p := page(t, v, Tools, "y")
	if got, want := string(p.Items[0]), `{"description":"said\n","name":"y","x":1.0}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if target, _, _ := v.Find(t.Context(), Tools,
		"y"); string(target.Item) != `{"description":"d","name":"x","x":1.0}` {
		t.Errorf("the target is %s", target.Item)
	}
}

func TestHostileLists(t *testing.T) {
	var warned atomic.Int32
	f := &fake{}
	f.set(Tools, List{Items: []jsonrpc.Raw{
		jsonrpc.Raw(`{"name":"ok","n":1}`), jsonrpc.Raw(`{"name":"ok","n":2}`),
		jsonrpc.Raw(`[]`), jsonrpc.Raw(`null`), jsonrpc.Raw(`"ok"`), jsonrpc.Raw(`{`), jsonrpc.Raw(``),
		jsonrpc.Raw(`{"name":"a\u0007b"}`), jsonrpc.Raw(`{"name":"a\u202eb"}`),
		jsonrpc.Raw(`{"name":"\ud800"}`),
		jsonrpc.Raw(`{"name":""}`), jsonrpc.Raw(`{"name":7}`), jsonrpc.Raw(`{"title":"x"}`),
		jsonrpc.Raw(`{"name":"safe","name":"evil"}`),
		jsonrpc.Raw(`{"name":"z","description":"a","description":"b"}`),
		jsonrpc.Raw(`{"name":"` + strings.Repeat("n", 2000) + `"}`),
		jsonrpc.Raw(` { "name" : "last" } `),
	}})
	v := view(t, &Options{OnWarning: func(string, string, error) {
		warned.Add(1)
	}}, f.source("a", Rules{}))
	p := page(t, v, Tools, "ok last")
	if string(p.Items[0]) != `{"name":"ok","n":1}` {
		t.Errorf("the first does not count: %s", p.Items[0])
	}
	if len(p.Missing) != maxNotes+1 || p.Missing[0].State != Partial ||
		int(warned.Load()) != len(p.Missing) {
		t.Errorf("missing: %+v, %d warnings", p.Missing, warned.Load())
	}
	finds(t, v, Tools, map[string]string{"safe": "-", "evil": "-", "a\ab": "-"})

	huge := List{}
	for i := range maxItems + 10 {
		huge.Items = append(huge.Items, jsonrpc.Raw(fmt.Sprintf(`{"name":"t%d"}`, i)))
	}
	f.set(Tools, huge)
	p, err := v.Page(t.Context(), Tools, "")
	if err != nil || len(p.Items) != 100 || len(p.Missing) != 1 ||
		!strings.Contains(p.Missing[0].Reason, "cut after 100000") {
		t.Errorf("%d items, %+v, %v", len(p.Items), p.Missing, err)
	}
}

func TestPages(t *testing.T) {
	one, two := &fake{}, with(Tools, "x", "y", "z")
	var all []string
	for i := range 7 {
		all = append(all, fmt.Sprint("t", i))
	}
	one.set(Tools, listed(Tools, all...))
	v := view(t, &Options{PageSize: 3}, one.source("a", Rules{}), two.source("b", Rules{}))
	p := page(t, v, Tools, "t0 t1 t2")
	next := func(want string) {
		t.Helper()
		var err error
		if p, err = v.Page(t.Context(), Tools, p.Next); err != nil || names(Tools, p.Items) != want {
			t.Errorf("%q, %v; want %q", names(Tools, p.Items), err, want)
		}
	}
	// Something comes before, and something goes.
	one.set(Tools,
		listed(Tools, append([]string{"new"}, slices.Delete(slices.Clone(all), 3, 4)...)...))
	v.Invalidate("a", Tools)
	page(t, v, Tools, "new t0 t1")
	next("t4 t5 t6")
	saved := p
	next("x y z")
	if p.Next != "" {
		t.Error("there is a page after the last")
	}
	// The item that the cursor stands for goes: the number counts.
	one.set(Tools, listed(Tools, "new", "t0"))
	v.Invalidate("a", Tools)
	page(t, v, Tools, "new t0 x")
	p = saved
	next("x y z")
	// A view without the source goes on with the next one.
	w := view(t, &Options{PageSize: 3}, two.source("b", Rules{}))
	if p, err := w.Page(t.Context(), Tools, saved.Next); err != nil ||
		names(Tools, p.Items) != "x y z" {
		t.Errorf("%q, %v", names(Tools, p.Items), err)
	}
	for _, bad := range []string{
		"x", saved.Next + "A", saved.Next[1:], strings.ToLower(saved.Next),
		saved.Next[:10] + "\n" + saved.Next[10:], strings.Repeat("A", 1000),
	} {
		if _, err := v.Page(t.Context(), Tools, bad); !errors.Is(err, ErrCursor) {
			t.Errorf("cursor %q: %v", bad, err)
		}
	}
	if _, err := v.Page(t.Context(), Prompts, saved.Next); !errors.Is(err, ErrCursor) {
		t.Errorf("a cursor of another list: %v", err)
	}
	if _, err := v.Page(t.Context(), "things", ""); err == nil {
		t.Error("there is a list of things")
	}
}

func TestPageBytes(t *testing.T) {
	f := &fake{}
	big := strings.Repeat("b", 5<<20)
	f.set(Tools,
		List{
			Items: []jsonrpc.Raw{
				jsonrpc.Raw(`{"name":"a","d":"` + big + `"}`),
				jsonrpc.Raw(`{"name":"b","d":"` + big + `"}`),
			},
		})
	v := view(t, nil, f.source("a", Rules{}))
	if p := page(t, v, Tools, "a"); p.Next == "" {
		t.Error("there is no second page")
	}
}

func TestOneFetchForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := with(Tools, "x")
		f.before = func(context.Context) { <-time.After(time.Second) }
		v := view(t, nil, f.source("a", Rules{}))
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() { page(t, v, Tools, "x") })
		}
		wg.Wait()
		if n := f.calls.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
		// One who gives up takes nothing from the others.
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := v.Page(ctx, Tools, ""); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if p := page(t, v, Tools, "x"); len(p.Missing) > 0 {
				t.Errorf("missing: %+v", p.Missing)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}
