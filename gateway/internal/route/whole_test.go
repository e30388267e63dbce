package route

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is made of all tools is made again when a list has changed, and not because a source that
// gives no time to keep its list was asked again. Within a second it is not even asked, unless it
// says that its list has changed.
func TestWholeIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := with(Tools, "x"), with(Tools, "y", "z")
		v := view(t, nil, a.source("a", Rules{}),
			b.source("b", Rules{Tools: Filter{Deny: []string{"z"}}}))
		made := 0
		read := func(want string, times int, asked int32, when string) {
			t.Helper()
			w, err := v.Whole(t.Context(), Tools)
			if err != nil {
				t.Fatal(err)
			}
			got, _ := w.Derived(func(all []Entry) (any, int) {
				made++
				var text strings.Builder
				for _, e := range all {
					text.WriteString(e.Shown + " ")
				}
				return text.String(), 1 << 10
			}).(string)
			if got != want || made != times {
				t.Errorf("%s: %q, made %d times; want %q, %d times", when, got, made, want, times)
			}
			calls(t, b, asked, when)
		}
		read("x y ", 1, 1, "first")
		read("x y ", 1, 0, "at once again")
		<-time.After(2 * time.Second)
		read("x y ", 1, 1, "later, unchanged")
		v.Invalidate("b", Tools)
		read("x y ", 1, 1, "said to have changed, and has not")
		b.set(Tools, listed(Tools, "y", "zz"))
		read("x y ", 1, 0, "changed without a word")
		v.Invalidate("b", Tools)
		read("x y zz ", 2, 1, "changed, and says so")
		b.set(Tools, listed(Tools, "y"))
		<-time.After(2 * time.Second)
		read("x y ", 3, 1, "changed without a word, later")
		b.fail(errors.New("down"))
		<-time.After(2 * time.Second)
		read("x y ", 3, 1, "the source fails")
		read("x y ", 3, 0, "the source has failed")
		<-time.After(staleFor)
		b.set(Tools, listed(Tools, "y"))
		read("x y ", 3, 1, "it is back with what it had")
		if w, err := v.Whole(t.Context(), Tools); err != nil || len(w.Entries()) != 2 ||
			len(w.Missing) > 0 {
			t.Errorf("%+v, %v", w, err)
		}
	})
}

// A list that has not changed may be kept for another time than before, by others than before, and
// what it is made of counts once against the memory.
func TestUnchangedListIsFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := with(Tools, "x")
		v := view(t, nil, f.source("a", Rules{}))
		page(t, v, Tools, "x")
		used := v.bytes
		l := listed(Tools, "x")
		l.TTL = time.Minute
		f.set(Tools, l)
		if p := page(t, v, Tools, "x"); p.TTL != time.Minute || v.bytes != used {
			t.Errorf("it may be kept for %v; %d bytes, before %d", p.TTL, v.bytes, used)
		}
		calls(t, f, 2, "without a time to keep it")
		page(t, v, Tools, "x")
		calls(t, f, 0, "with one")
		l.Public = false
		f.set(Tools, l)
		v.Invalidate("a", Tools)
		for _, who := range []string{"p", "q", "p"} {
			if p, err := v.Page(as(t, who), Tools, ""); err != nil || p.Public || len(p.Items) != 1 {
				t.Errorf("%+v, %v", p, err)
			}
		}
		calls(t, f, 2, "of each caller's own")
	})
}
