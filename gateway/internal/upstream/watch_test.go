package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// TestWatch tells all who watch a resource, also after its connection was replaced.
func TestWatch(t *testing.T) {
	for _, eras := range []string{legacy, modern} {
		t.Run(eras, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, eras)
				u := l.upstream(Options{})
				var a, b, other atomic.Int32
				watch := func(uri string, n *atomic.Int32) func() {
					t.Helper()
					stop, err := u.Watch(t.Context(), Caller{}, uri, func() { n.Add(1) })
					if err != nil {
						t.Fatal(err)
					}
					return stop
				}
				stopA, stopB := watch("lab:r", &a), watch("lab:r", &b)
				defer watch("lab:other", &other)()
				check := func(wantA, wantB, wantOther int32) {
					t.Helper()
					<-time.After(time.Second)
					if a.Load() != wantA || b.Load() != wantB || other.Load() != wantOther {
						t.Errorf("got %d, %d, %d; want %d, %d, %d", a.Load(), b.Load(), other.Load(), wantA, wantB,
							wantOther)
					}
				}
				check(0, 0, 0)
				l.child(1).server.ResourceUpdated("lab:r")
				check(1, 1, 0)
				l.child(1).end.Close()
				<-time.After(time.Minute)
				check(2, 2, 1) // what happened in the meantime is not known
				if n := l.count(); n != 2 {
					t.Errorf("%d servers, want 2", n)
				}
				l.child(2).server.ResourceUpdated("lab:r")
				check(3, 3, 1)
				stopA()
				l.child(2).server.ResourceUpdated("lab:r")
				check(3, 4, 1)
				stopB()
				stopB()
				l.child(2).server.ResourceUpdated("lab:r")
				check(3, 4, 1)
			})
		})
	}
}

// TestWatchRefused says so.
func TestWatchRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRootsLab(t, 0, 0)
		u := l.upstream(Options{})
		if _, err := u.Watch(t.Context(), Caller{}, "a:b", func() {}); !errors.Is(err,
			jsonrpc.MethodNotFound) {
			t.Errorf("got %v", err)
		}
		l.close(u)
	})
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, legacy)
		l.dialing = func(context.Context, int) error { return errors.New("down") }
		u := l.upstream(Options{})
		_, err := u.Watch(t.Context(), Caller{}, "lab:r", func() {})
		_ = dataOf(t, err, jsonrpc.Unavailable)
		if n := len(u.watching); n != 0 {
			t.Errorf("%d watches are left", n)
		}
		l.dialing = func(ctx context.Context, _ int) error { <-ctx.Done(); return ctx.Err() }
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := u.Watch(ctx, Caller{}, "lab:r", func() {}); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestListChanged passes changes on.
func TestListChanged(t *testing.T) {
	for _, eras := range []string{legacy, modern} {
		t.Run(eras, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, eras)
				var tools atomic.Int32
				u := l.upstream(Options{OnListChanged: func(kind string) {
					if kind == "tools" {
						tools.Add(1)
					}
				}})
				mustDo(t, u, toolCall("which", "", Caller{}), "1")
				<-time.After(time.Second)
				l.child(1).server.RemoveTool("die")
				<-time.After(time.Second)
				if n := tools.Load(); n != 1 {
					t.Errorf("%d changes were announced, want 1", n)
				}
			})
		})
	}
}

func TestWithin(t *testing.T) {
	for uri, want := range map[string]bool{
		"a:b": true, "a:b/c": true, "a:b?x": true, "a:b#x": true,
		"a:bc": false, "a:": false,
	} {
		if got := within(uri, "a:b"); got != want {
			t.Errorf("%s: %v", uri, got)
		}
	}
	if !within("a:b/c", "a:b/") {
		t.Error("a:b/c is in a:b/")
	}
}

func TestAbilities(t *testing.T) {
	for caps, want := range map[string]abilities{
		``: 0, `{}`: 0, `{"elicitation":null}`: 0,
		`{"elicitation":{}}`:                              canForm,
		`{"elicitation":{"url":{}}}`:                      canURL,
		`{"elicitation":{"form":{},"url":{}},"roots":{}}`: canForm | canURL | canRoots,
		`{"sampling":{"tools":{},"context":{}},"other":{}}`: canSample | canSampleTools |
			canSampleContext,
		`{"roots":{"listChanged":true},"experimental":{"x":{}}}`: canRoots,
		`{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["x",` +
			`"text/html;profile=mcp-app"]},"a/b":{}}}`: canShowApps,
		`{"extensions":{"io.modelcontextprotocol/ui":{"mimeTypes":["x",` +
			`{}]}}}`: 0, `{"extensions":{"io.modelcontextprotocol/ui":7}}`: 0,
	} {
		if got := abilitiesOf(jsonrpc.Raw(caps)); got != want {
			t.Errorf("%s: %07b, want %07b", caps, got, want)
		}
	}
	for a := range abilities(allAbilities + 1) {
		raw, err := json.Marshal(a.declared())
		if err != nil {
			t.Fatal(err)
		}
		want := a
		if a&canSample == 0 {
			want &^= canSampleTools | canSampleContext
		}
		if got := abilitiesOf(raw); got != want {
			t.Errorf("%s: %07b, want %07b", raw, got, want)
		}
	}
}
