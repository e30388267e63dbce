package signin

import (
	"errors"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/store"
)

// Over random sequences of sign-ins, calls, refreshes, sign-outs, restarts and attacks of two
// principals, an upstream only ever gets the token that was issued to the calling principal.
func TestOwnersNeverMix(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			key := newKey()
			dir := ""
			if seed%2 == 0 {
				dir = filepath.Join(t.TempDir(), "sign-in")
			}
			w := newWorld(t, open(t, dir, key), nil)
			r := rand.New(rand.NewPCG(seed, 7))
			people := []Who{person("ann"), person("bob"), person("cy")}
			browsers := map[string]*browser{}
			for _, p := range people {
				browsers[p.Name] = w.browser(p.Name)
			}
			want := map[string]bool{}
			for range 60 {
				p, upstream := people[r.IntN(3)], []string{"a", "b"}[r.IntN(2)]
				other := people[r.IntN(3)]
				is := p.Name + upstream
				switch r.IntN(10) {
				case 0, 1:
					if !browsers[p.Name].signIn(upstream, p) {
						t.Fatal("not signed in")
					}
					want[is] = true
				case 2:
					if err := w.ups[upstream].SignOut(t.Context(), p); err != nil {
						t.Fatal(err)
					}
					want[is] = false
				case 3:
					pass(time.Duration(r.IntN(7000)) * time.Second) // some tokens come to their end
				case 4: // the process ends
					w.svc.Close()
					if dir != "" {
						w.store = open(t, dir, key)
					}
					w.begin(nil)
				case 5: // one sends another the address of the authorization server
					link, _ := w.ups[upstream].Link(t.Context(), p, nil)
					if there := browsers[p.Name].open(link); p != other &&
						browsers[other.Name].back(browsers[other.Name].consent(there)) {
						t.Fatal("a browser has finished the sign-in of another one")
					} else if p == other && !browsers[p.Name].back(browsers[p.Name].consent(there)) {
						t.Fatal("not signed in")
					} else if p == other {
						want[is] = true
					}
				case 6: // the upstream, or the authorization server, forgets the token
					w.mu.Lock()
					for token, whose := range w.access {
						if whose == upstream+".example "+p.Name {
							delete(w.access, token)
						}
					}
					w.mu.Unlock()
				default:
					status, err := w.call(upstream, p)
					if err != nil && !errors.Is(err, ErrSignIn) &&
						!strings.Contains(err.Error(), "refuses the token") {
						t.Fatal(err)
					}
					if status == 200 && !want[is] {
						t.Fatalf("%s has called %s without having signed in", p.Name, upstream)
					}
				}
				w.rightful()
			}
		})
	}
}

// Each state counts once, in the browser that began, at the callback of its upstream, and in time.
func TestStatesAreRefused(t *testing.T) {
	for name, attack := range map[string]func(
		t *testing.T, w *world, ann, bob *browser, back string,
	) string{
		"used twice": func(t *testing.T, _ *world, ann, _ *browser, back string) string {
			if !ann.back(back) {
				t.Fatal("not signed in")
			}
			return ann.send("GET", back, nil).Body.String()
		},
		"another browser": func(_ *testing.T, _ *world, _, bob *browser, back string) string {
			return bob.send("GET", back, nil).Body.String()
		},
		"a browser with its own cookie": func(
			t *testing.T, w *world, _, bob *browser, back string,
		) string {
			link, _ := w.ups["b"].Link(t.Context(), person("bob"), nil)
			bob.open(link)
			return bob.send("GET", back, nil).Body.String()
		},
		"another owner": func(_ *testing.T, _ *world, ann, _ *browser, back string) string {
			ann.owner = person("bob").Owner
			return ann.send("GET", back, nil).Body.String()
		},
		"expired": func(_ *testing.T, _ *world, ann, _ *browser, back string) string {
			pass(flowLife + time.Second)
			return ann.send("GET", back, nil).Body.String()
		},
		"another upstream": func(_ *testing.T, _ *world, ann, _ *browser, back string) string {
			return ann.send("GET", strings.Replace(back, CallbackPath+"a", CallbackPath+"b", 1),
				nil).Body.String()
		},
		"no state": func(_ *testing.T, _ *world, ann, _ *browser, back string) string {
			return ann.send("GET", back[:strings.Index(back, "&state")], nil).Body.String()
		},
		"state twice": func(_ *testing.T, _ *world, ann, _ *browser, back string) string {
			return ann.send("GET", back+"&state=x", nil).Body.String()
		},
		"a state that was never issued": func(
			_ *testing.T, _ *world, ann, _ *browser, back string,
		) string {
			return ann.send("GET", back+"x", nil).Body.String()
		},
		"after a restart": func(_ *testing.T, w *world, ann, _ *browser, back string) string {
			w.svc.Close()
			w.begin(nil)
			return ann.send("GET", back, nil).Body.String()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, open(t, ""), nil)
				ann, bob := w.browser("ann"), w.browser("bob")
				link, err := w.ups["a"].Link(t.Context(), person("ann"), nil)
				if err != nil {
					t.Fatal(err)
				}
				page := attack(t, w, ann, bob, ann.consent(ann.open(link)))
				if !strings.Contains(page, "Not signed in") {
					t.Errorf("the page: %s", page)
				}
				for _, who := range []string{"ann", "bob"} {
					for _, upstream := range []string{"a", "b"} {
						if got, want := w.ready(upstream, person(who)),
							name == "used twice" && who == "ann" && upstream == "a"; got != want {
							t.Errorf("%s at %s: signed in: %v", who, upstream, got)
						}
					}
				}
			})
		})
	}
}

// A link counts once, for its principal, in time, and only when the user presses the button.
func TestLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, open(t, ""), nil)
		ann, u := w.browser("ann"), w.ups["a"]
		link, err := u.Link(t.Context(), person("ann"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := u.Link(t.Context(), person("ann"), nil); again != link {
			t.Error("another link although the first was not opened")
		}
		if other, _ := u.Link(t.Context(), person("bob"), nil); other == link {
			t.Error("two principals have one link")
		}
		for range 3 { // programs that preview links use up nothing
			if page := ann.send("GET", link, nil).Body.String(); !strings.Contains(page, "<b>ann</b>") ||
				!strings.Contains(page, "<b>a</b>") {
				t.Errorf("the page: %s", page)
			}
		}
		token := url.Values{"link": {link[strings.Index(link, "=")+1:]}}
		for _, header := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Origin", "https://evil.example"},
			{"Origin", "null"},
		} {
			if rec := ann.send("POST", public+Path, token, header...); rec.Header().Get("Location") != "" {
				t.Errorf("%v began a sign-in", header)
			}
		}
		bob := w.browser("bob")
		bob.owner = person("bob").Owner
		if bob.open(link) != "" || bob.send("POST", public+Path, token).Header().Get("Location") != "" {
			t.Error("a browser with the credentials of another principal has begun")
		}
		there := ann.open(link)
		if !strings.HasPrefix(there, "https://as.a.example/authorize?") {
			t.Fatalf("sent to %q", there)
		}
		if ann.open(link) != "" || ann.send("POST", public+Path, token).Header().Get("Location") != "" {
			t.Error("a link counts twice")
		}
		late, _ := u.Link(t.Context(), person("ann"), nil)
		pass(linkLife + time.Second)
		if late == link || ann.open(late) != "" {
			t.Error("a link that has expired counts")
		}
		if _, err := u.Link(t.Context(), Who{}, nil); err == nil {
			t.Error("a caller without credentials gets a link")
		}
	})
}

// Where the browser must show the credentials of the principal, one without them gets nowhere.
func TestBoundBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, open(t, ""), &Options{Bound: true})
		ann := w.browser("ann")
		if ann.signIn("a", person("ann")) {
			t.Error("a browser without credentials has signed in")
		}
		ann.owner = person("ann").Owner
		if !ann.signIn("a", person("ann")) || !w.ready("a", person("ann")) {
			t.Error("not signed in")
		}
	})
}

// Calls that come when the token has expired lead to one refresh; all of them get the new token.
func TestOneRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, open(t, filepath.Join(t.TempDir(), "sign-in"), newKey()), nil)
		for _, who := range []string{"ann", "bob"} {
			if !w.browser(who).signIn("a", person(who)) {
				t.Fatal("not signed in")
			}
		}
		pass(time.Hour - 20*time.Second) // before the end
		var wg sync.WaitGroup
		for range 10 {
			for _, who := range []string{"ann", "bob"} {
				wg.Go(func() {
					if status, err := w.call("a", person(who)); status != 200 || err != nil {
						t.Errorf("%d, %v", status, err)
					}
				})
			}
		}
		wg.Wait()
		if w.renewed != 2 {
			t.Errorf("%d refreshes, not one for each principal", w.renewed)
		}
		w.rightful()
	})
}

// Who signs out is revoked at the authorization server, here and in other processes, and can sign
// in again.
func TestSignOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, key := filepath.Join(t.TempDir(), "sign-in"), newKey()
		w := newWorld(t, open(t, dir, key), nil)
		other := newWorld(t, open(t, dir, key), nil)
		other.access, other.refresh = w.access, w.refresh
		ann := w.browser("ann")
		if !ann.signIn("a", person("ann")) || !w.browser("bob").signIn("a", person("bob")) {
			t.Fatal("not signed in")
		}
		if status, err := other.call("a", person("ann")); status != 200 || err != nil {
			t.Errorf("at another process: %d, %v", status, err)
		}
		if err := other.ups["a"].SignOut(t.Context(), person("ann")); err != nil {
			t.Fatal(err)
		}
		if w.ready("a", person("ann")) || other.ready("a", person("ann")) ||
			!w.ready("a", person("bob")) || other.revoked != 2 {
			t.Errorf("after the sign-out; %d were revoked", other.revoked)
		}
		if status, err := w.call("a", person("ann")); status == 200 || !errors.Is(err, ErrSignIn) {
			t.Errorf("%d, %v", status, err)
		}
		if !ann.signIn("a", person("ann")) || !w.ready("a", person("ann")) {
			t.Error("cannot sign in again")
		}
	})
}

// The gateway is known by its metadata document where that is supported, and registers once
// otherwise.
func TestClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, open(t, ""), nil)
		for _, who := range []string{"ann", "bob"} {
			w.browser(who).signIn("a", person(who))
		}
		if len(w.clients) != 2 || w.clients[0] != w.clients[1] {
			t.Errorf("clients %q", w.clients)
		}
		w.docs = true
		w.browser("ann").signIn("b", person("ann"))
		if w.clients[2] != public+ClientPath {
			t.Errorf("clients %q", w.clients)
		}
		page := w.browser("").send("GET", public+ClientPath, nil).Body.String()
		for _, want := range []string{
			`"client_id":"` + public + ClientPath, public + CallbackPath + "a",
			public + CallbackPath + "b", `"client_name":"Tools"`,
		} {
			if !strings.Contains(page, want) {
				t.Errorf("%s has not %s", page, want)
			}
		}
	})
}

// One who asks for many links takes no room of another, and none is kept without a limit.
func TestPendingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, open(t, ""), nil)
		for n := range maxAttempts / 4096 {
			if _, err := w.svc.link(t.Context(),
				ID{person("ann").Owner, strings.Repeat("x", n%100) + string(rune(n))}, "ann", nil); err != nil {
				break
			}
		}
		if !w.browser("bob").signIn("a", person("bob")) {
			t.Error("another principal cannot sign in")
		}
		pass(linkLife + time.Minute)
		if _, err := w.ups["a"].Link(t.Context(), person("ann"), nil); err != nil {
			t.Error(err)
		}
		if _, n := w.svc.attempts.(*store.Local).Used(); n != 1 {
			t.Errorf("%d are pending", n)
		}
	})
}

// A call waits until its principal has signed in, and for no other one.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, open(t, ""), nil)
		ann, bob := errors.New("waits"), errors.New("waits")
		var wg sync.WaitGroup
		ctx := t.Context()
		wg.Go(func() { ann = w.ups["a"].Wait(ctx, person("ann")) })
		wg.Go(func() { bob = w.ups["a"].Wait(ctx, person("bob")) })
		synctest.Wait()
		w.browser("ann").signIn("a", person("ann"))
		synctest.Wait()
		if ann != nil || bob == nil {
			t.Errorf("%v, %v", ann, bob)
		}
		w.browser("bob").signIn("a", person("bob"))
		wg.Wait()
		if err := w.ups["a"].Wait(ctx, person("ann")); err != nil {
			t.Error(err)
		}
	})
}

// Whatever a browser asks for, nothing is signed in, no redirect leads away, and each page has its
// headers.
func FuzzRequests(f *testing.F) {
	f.Add("GET", "/signin?link=x", "")
	f.Add("GET", "/signin/callback/a?state=x&code=y", "")
	f.Add("POST", "/signin", "link=x")
	f.Add("GET", "/signin/../signin//callback/?state=", "")
	f.Fuzz(func(t *testing.T, method, target, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !Serves(u.Path) || strings.ContainsAny(method, " \t\r\n") || method == "" ||
			!isToken(method) {
			return
		}
		w := newWorld(t, open(t, ""), nil)
		if _, err := w.ups["a"].Link(t.Context(), person("ann"), nil); err != nil {
			t.Fatal(err)
		}
		form, _ := url.ParseQuery(body)
		r := w.browser("ann")
		rec := r.raw(method, u, form)
		if rec.Header().Get("Location") != "" || rec.Header().Get("X-Frame-Options") != "DENY" ||
			rec.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%v", rec.Header())
		}
		if w.ready("a", person("ann")) {
			t.Error("signed in")
		}
	})
}
