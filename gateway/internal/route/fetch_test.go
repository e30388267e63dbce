package route

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func calls(t *testing.T, f *fake, want int32, when string) {
	t.Helper()
	if got := f.calls.Swap(0); got != want {
		t.Errorf("%s: asked %d times, want %d", when, got, want)
	}
}

func TestCaching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		l := listed(Tools, "x")
		l.TTL = time.Minute
		f.set(Tools, l)
		v := view(t, nil, f.source("a", Rules{}))
		if p := page(t, v, Tools, "x"); p.TTL != time.Minute || !p.Public {
			t.Errorf("%v, %v", p.TTL, p.Public)
		}
		<-time.After(20 * time.Second)
		if p, err := v.Page(as(t, "other"), Tools, ""); err != nil || p.TTL != 40*time.Second {
			t.Errorf("%v, %v", p.TTL, err)
		}
		calls(t, f, 1, "public")
		<-time.After(time.Minute)
		finds(t, v, Tools, map[string]string{"x": "a/x"})
		calls(t, f, 0, "Find takes what there is")
		page(t, v, Tools, "x")
		calls(t, f, 1, "expired")

		l.Public = false
		f.set(Tools, l)
		v.Invalidate("a", Tools)
		finds(t, v, Tools, map[string]string{"x": "a/x"})
		calls(t, f, 1, "Find after a change")
		for _, who := range []string{"p", "q", "p", "q"} {
			if p, err := v.Page(as(t, who), Tools, ""); err != nil || p.Public || len(p.Items) != 1 {
				t.Errorf("%+v, %v", p, err)
			}
		}
		calls(t, f, 2, "private")

		l.TTL = 0
		f.set(Tools, l)
		v.Invalidate("a", Tools)
		page(t, v, Tools, "x")
		page(t, v, Tools, "x")
		calls(t, f, 2, "without a TTL")
		l.TTL = -1
		f.set(Tools, l)
		page(t, v, Tools, "x")
		<-time.After(24 * time.Hour)
		if p := page(t, v, Tools, "x"); p.TTL != 0 {
			t.Errorf("TTL %v", p.TTL)
		}
		calls(t, f, 1, "until it changes")
	})
}

func TestMissRefreshesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := with(Tools, "x")
		v := view(t, nil, f.source("a", Rules{}))
		page(t, v, Tools, "x")
		<-time.After(2 * time.Second)
		f.set(Tools, listed(Tools, "x", "y"))
		finds(t, v, Tools, map[string]string{"y": "a/y"})
		calls(t, f, 2, "a miss")
		for range 100 {
			finds(t, v, Tools, map[string]string{"z": "-"})
		}
		calls(t, f, 0, "many misses")
	})
}

// No caller gets what was listed for another one.
func TestScopes(t *testing.T) {
	s := Source{
		Name: "a", Rules: Rules{Namespace: NamespaceAuto}, Scope: scopeOf,
		List: func(ctx context.Context, _ string) (List, error) {
			l := listed(Tools, "of-"+scopeOf(ctx))
			l.Public, l.TTL = false, time.Hour
			return l, nil
		},
	}
	v := view(t, &Options{MaxLists: 7}, s, with(Tools, "all").source("b", Rules{}))
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			who := fmt.Sprint(i % 20)
			ctx := as(t, who)
			for range 20 {
				p, err := v.Page(ctx, Tools, "")
				if err != nil || names(Tools, p.Items) != "of-"+who+" all" {
					t.Errorf("%s sees %q, %v", who, names(Tools, p.Items), err)
				}
				if _, ok, err := v.Find(ctx, Tools, "of-"+who); !ok || err != nil {
					t.Errorf("%s does not find their own: %v", who, err)
				}
				if target, ok, _ := v.Find(ctx, Tools, "of-x"); ok {
					t.Errorf("%s finds %v", who, target)
				}
			}
		})
	}
	wg.Wait()
	page(t, v, Tools, "of- all")
	if _, err := v.Page(as(t, "me"), Tools, ""); err != nil {
		t.Error(err)
	}
	if all := v.Entries(Tools); len(all) != 2 || all[0].Shown != "of-me" || all[1].Shown != "all" {
		t.Errorf("what came last is %v", all)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.kept.Len() > 7 || v.recent.Len() > 7 || len(v.merged) != v.recent.Len() {
		t.Errorf("%d lists, %d and %d merged are kept", v.kept.Len(), v.recent.Len(), len(v.merged))
	}
	bytes := 0
	for e := v.kept.Front(); e != nil; e = e.Next() {
		if r, ok := e.Value.(*record); ok && r.list != nil {
			bytes += r.list.bytes
		}
	}
	for _, m := range v.merged {
		bytes += m.bytes
	}
	if bytes != v.bytes {
		t.Errorf("%d bytes are counted, %d are there", v.bytes, bytes)
	}
}

// A list that was public turns out to be private: those who waited for it ask
// themselves.
func TestPublicTurnsPrivate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		public := true
		s := Source{
			Name: "a", Rules: Rules{Namespace: NamespaceAuto}, Scope: scopeOf,
			List: func(ctx context.Context, _ string) (List, error) {
				<-time.After(time.Second)
				l := listed(Tools, "of-"+scopeOf(ctx))
				l.Public = public
				return l, nil
			},
		}
		v := view(t, nil, s)
		if _, err := v.Page(as(t, "p"), Tools, ""); err != nil {
			t.Fatal(err)
		}
		public = false
		var wg sync.WaitGroup
		for _, who := range []string{"p", "q", "r", "p"} {
			wg.Go(func() {
				p, err := v.Page(as(t, who), Tools, "")
				if err != nil || names(Tools, p.Items) != "of-"+who {
					t.Errorf("%s sees %q, %v", who, names(Tools, p.Items), err)
				}
			})
		}
		wg.Wait()
	})
}

func TestPartialFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good, bad := with(Tools, "x", "y"), with(Tools, "x", "z")
		v := view(t, nil, good.source("good", Rules{}), bad.source("bad", Rules{}))
		page(t, v, Tools, "good__x y bad__x z")
		bad.fail(errors.New("it is \x1b[31mdown"))
		p := page(t, v, Tools, "good__x y bad__x z")
		if len(p.Missing) != 1 || p.Missing[0] != (Missing{"bad", Stale, "it is  [31mdown"}) ||
			p.TTL != 0 || p.Public {
			t.Errorf("%+v", p)
		}
		<-time.After(staleFor)
		// Names do not change when a source goes.
		if p = page(t, v, Tools, "good__x y"); len(p.Missing) != 1 || p.Missing[0].State != Absent {
			t.Errorf("%+v", p.Missing)
		}
		finds(t, v, Tools, map[string]string{"good__x": "good/x", "z": "bad/z"})
		bad.set(Tools, listed(Tools, "z"))
		if p = page(t, v, Tools, "x y z"); len(p.Missing) != 0 {
			t.Errorf("it does not heal: %+v", p.Missing)
		}
	})
}

// A source that never answers delays the first call, and no other.
func TestHangingSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := &fake{before: func(ctx context.Context) { <-ctx.Done() }}
		v := view(t, nil, with(Tools, "x").source("good", Rules{}), hangs.source("bad", Rules{}))
		took := func(most time.Duration, f func()) {
			t.Helper()
			start := time.Now()
			f()
			if d := time.Since(start); d > most {
				t.Errorf("took %v", d)
			}
		}
		took(10*time.Second, func() { page(t, v, Tools, "x") })
		took(0, func() { page(t, v, Tools, "x") })
		took(0, func() { finds(t, v, Tools, map[string]string{"x": "good/x"}) })
		for range 10 { // it also says that all is different now
			v.Invalidate("bad", Tools)
			took(0, func() { finds(t, v, Tools, map[string]string{"x": "good/x"}) })
		}
		took(0, func() {
			_, ok, err := v.Find(t.Context(), Tools, "z")
			var unknown *UnknownError
			if ok || !errors.As(err, &unknown) ||
				!strings.Contains(err.Error(), "bad (it has not answered within 10s)") {
				t.Errorf("%v, %v", ok, err)
			}
		})
		calls(t, hangs, 1, "a source that hangs")
		<-time.After(time.Minute)
		took(0, func() { finds(t, v, Tools, map[string]string{"x": "good/x"}) })
	})
}

// A name that is not found says of each source once why it could not be asked.
func TestUnknownReasons(t *testing.T) {
	down := &fake{err: &jsonrpc.Error{
		Code: jsonrpc.Unavailable, Message: "down cannot be reached: exit status 3",
		Cause: errors.New("exit"),
	}}
	refuses := &fake{err: jsonrpc.Errorf(jsonrpc.InternalError, "Internal error")}
	v := view(t, nil, down.source("down", Rules{}), refuses.source("odd", Rules{}))
	_, _, err := v.Find(t.Context(), Tools, "z")
	const want = `"z" is not among the tools of the upstreams that can be asked; it may be of one ` +
		`that cannot: ` +
		"down (cannot be reached: exit status 3), odd (Internal error (code -32603))"
	if err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// An answer that was on its way when the list changed is not the last word.
func TestChangedWhileAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now := "old"
		s := Source{Name: "a", List: func(context.Context, string) (List, error) {
			mu.Lock()
			l := listed(Tools, now)
			mu.Unlock()
			<-time.After(time.Second)
			l.TTL = time.Hour
			return l, nil
		}}
		v := view(t, nil, s)
		var wg sync.WaitGroup
		wg.Go(func() { page(t, v, Tools, "a__old") })
		synctest.Wait()
		mu.Lock()
		now = "new"
		mu.Unlock()
		v.Invalidate("a", Tools)
		page(t, v, Tools, "a__new")
		finds(t, v, Tools, map[string]string{"new": "a/new"})
		wg.Wait()
		page(t, v, Tools, "a__new")
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hangs := &fake{before: func(ctx context.Context) { <-ctx.Done() }}
		v := NewView([]Source{hangs.source("a", Rules{})}, nil)
		done := make(chan Page)
		go func() {
			p, _ := v.Page(t.Context(), Tools, "")
			done <- p
		}()
		synctest.Wait()
		v.Close()
		if p := <-done; len(p.Missing) != 1 {
			t.Errorf("%+v", p)
		}
		v.Close()
		if p := page(t, v, Tools, ""); len(p.Missing) != 1 || p.Missing[0].Reason != errClosed.Error() {
			t.Errorf("%+v", p.Missing)
		}
	})
}

func TestUnknownMethodIsNoFailure(t *testing.T) {
	f := &fake{}
	f.fail(fmt.Errorf("list: %w", jsonrpc.Errorf(jsonrpc.MethodNotFound, "Method not found")))
	v := view(t, nil, f.source("a", Rules{}))
	if p := page(t, v, Templates, ""); len(p.Missing) != 0 {
		t.Errorf("%+v", p.Missing)
	}
}

func TestBounds(t *testing.T) {
	f := &fake{}
	f.set(Tools,
		List{Items: []jsonrpc.Raw{jsonrpc.Raw(`{"name":"x","d":"` + strings.Repeat("d", 1000) + `"}`)}})
	v := view(t, &Options{MaxBytes: 10_000}, f.source("a", Rules{}))
	for i := range 100 {
		if p, err := v.Page(as(t, fmt.Sprint(i)), Tools, ""); err != nil || len(p.Items) != 1 {
			t.Errorf("%+v, %v", p, err)
		}
	}
	v.mu.Lock()
	if v.bytes > 10_000 || v.kept.Len() > 10 || len(v.sources[0].states[tools].own) != v.kept.Len() {
		t.Errorf("%d bytes of %d lists are kept, %d by scope", v.bytes, v.kept.Len(),
			len(v.sources[0].states[tools].own))
	}
	v.mu.Unlock()

	synctest.Test(t, func(t *testing.T) {
		hangs := &fake{before: func(ctx context.Context) { <-ctx.Done() }}
		v := view(t, nil, hangs.source("a", Rules{}))
		var wg sync.WaitGroup
		for i := range maxFetch + 10 {
			wg.Go(func() {
				if p, err := v.Page(as(t, fmt.Sprint(i)), Tools, ""); err != nil || len(p.Missing) != 1 {
					t.Errorf("%+v, %v", p, err)
				}
			})
		}
		wg.Wait()
		calls(t, hangs, maxFetch, "many")
	})
}

func TestWarnsOnce(t *testing.T) {
	var got []string
	f := with(Tools, "x")
	v := view(t, &Options{OnWarning: func(source, kind string, err error) {
		got = append(got, source+" "+kind+": "+err.Error())
	}}, f.source("a", Rules{}))
	for _, err := range []error{
		nil, errors.New("one"), errors.New("one"), errors.New("two"), nil, nil,
		errors.New("one"),
	} {
		f.fail(err)
		if _, err := v.Page(t.Context(), Tools, ""); err != nil {
			t.Error(err)
		}
	}
	if want := "a tools: one, a tools: two, a tools: one"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNoSources(t *testing.T) {
	v := view(t, nil)
	page(t, v, Tools, "")
	finds(t, v, Tools, map[string]string{"x": "-"})
	finds(t, v, Resources, map[string]string{"f:x": "-"})
}
