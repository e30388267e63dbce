package guard_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// twoSigners are those of a guard with a small memory of nonces.
func twoSigners(memory int, rates ...guard.Rate) *guard.Config {
	c := &guard.Config{
		Anonymous: true, Signatures: []guard.Signer{{ID: "a", Secret: secret}, {ID: "b", Secret: secret}},
	}
	c.Replay.Memory = memory
	c.Limits.Rates = rates
	return c
}

// One signer that sends as much as it can fills its share of the memory, and another one still gets
// in.
func TestSignersHaveShares(t *testing.T) {
	g := newGuard(t, twoSigners(100), nil)
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	got := map[any]int{}
	for range 150 {
		got[ask(t, p, "who", signed(t, "who", `{}`, "a", "", []byte(secret)))]++
	}
	if got["service a by signature"] != 75 || got[limited] != 75 {
		t.Errorf("signer a: %v", got)
	}
	expect(t, "signer b", ask(t, p, "who", signed(t, "who", `{}`, "b", "", []byte(secret))),
		"service b by signature")
	expect(t, "unsigned", ask(t, p, "who", nil), "anonymous anonymous by none")
}

// What a rate refuses is not remembered: it takes no room from others, may come again, and is
// executed once then.
func TestRateBeforeNonce(t *testing.T) {
	now := newClock()
	g := newGuard(t, twoSigners(100, guard.Rate{Limit: 1, Every: time.Minute}),
		&guard.Options{Now: now.Now})
	p := over(t, g, &guard.Conn{Transport: "tcp"})
	message := func(id string) jsonrpc.Raw { return signed(t, "who", `{}`, id, "", []byte(secret)) }
	got := map[any]int{}
	var last jsonrpc.Raw
	for range 150 {
		last = message("a")
		got[ask(t, p, "who", last)]++
	}
	if got["service a by signature"] != 1 || got[limited] != 149 {
		t.Errorf("signer a: %v", got)
	}
	expect(t, "signer b", ask(t, p, "who", message("b")), "service b by signature")
	now.add(time.Minute)
	expect(t, "the last one again", ask(t, p, "who", last), "service a by signature")
	now.add(time.Minute)
	expect(t, "and again", ask(t, p, "who", last), replayed)
}

// The same over HTTP, for signed requests and for proofs.
func TestRateBeforeNonceOverHTTP(t *testing.T) {
	now := newClock()
	a, mine := newAuthority(t, "1"), prover{newAuthority(t, "")}
	c := everyWay(a, false)
	c.Replay.Memory = 100
	c.Limits.Rates = []guard.Rate{{Limit: 1, Every: time.Minute}}
	s := newSite(t, c, &guard.Options{Now: now.Now})
	bound := a.token(now.Now(), map[string]any{"cnf": map[string]any{"jkt": mine.thumbprint()}})
	requests := map[string]func() *http.Request{
		"signature": func() *http.Request {
			return s.signedRequest("who", "", "partner", []byte(secret))
		},
		"proof": func() *http.Request {
			return s.request("who", "", "Authorization: DPoP "+bound,
				"DPoP: "+mine.proof(now.Now(), s.url+"/rpc", bound, nil))
		},
	}
	ok := map[string]string{
		"signature": "service partner by signature",
		"proof":     "user " + issuer + "|alice by jwt",
	}
	for name, request := range requests {
		send := func(r *http.Request) *reply {
			again := r.Clone(t.Context())
			again.Body, _ = r.GetBody()
			return s.do(again)
		}
		send(request()).wants(t, ok[name])
		var last *http.Request
		for range 120 {
			last = request()
			send(last).wants(t, limited)
		}
		now.add(time.Minute)
		send(last).wants(t, ok[name])
		now.add(time.Minute)
		send(last).wants(t, replayed)
	}
}

// No signature and no proof is good for two executions: not with a rate that refuses a part of a
// batch, not for a notification, not for a call without a rate, and not for one that a policy
// denies.
func TestSignatureIsExecutedOnce(t *testing.T) {
	now := newClock()
	c := twoSigners(1000, guard.Rate{Calls: []string{"rated"}, Limit: 1, Every: time.Minute})
	c.Deny = []guard.Rule{{Name: "no", Calls: []string{"denied"}}}
	c.Allow = []guard.Rule{{Calls: []string{"*"}}}
	g := newGuard(t, c, &guard.Options{Now: now.Now})
	var executed atomic.Int64
	mux := farcall.NewMux()
	for _, method := range []string{"rated", "free", "denied"} {
		mux.Handle(method, farcall.HandlerFunc(func(context.Context, *farcall.Request) (any, error) {
			executed.Add(1)
			return "done", nil
		}))
	}
	s := serve(t, g,
		g.HTTP(
			httprpc.NewHandler(mux,
				&httprpc.Options{
					RPC: &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}},
				})))
	message := func(method, id string) string {
		if id != "" {
			id = `,"id":` + id
		}
		return `{"jsonrpc":"2.0","method":"` + method + `"` + id + `}`
	}
	signedBody := func(body string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/rpc",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if err := guard.SignRequest(r, "a", []byte(secret)); err != nil {
			t.Fatal(err)
		}
		return r
	}
	s.do(signedBody(message("rated", "0"))).wants(t, "done") // the rate refuses all further ones
	for name, test := range map[string]struct {
		body string
		want int64 // executions
	}{
		"a call without a rate": {message("free", "1"), 1},
		"a notification":        {message("free", ""), 1},
		"a denied call":         {message("denied", "1"), 0},
		"a batch that is refused in part": {
			"[" + message("rated", "1") + "," + message("free", "2") + "]", 1,
		},
		"notifications and a refused call": {
			"[" + message("free", "") + "," + message("rated", "1") + "]", 1,
		},
		"a batch of refused calls": {
			"[" + message("rated", "1") + "," + message("rated", "2") + "]", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			executed.Store(0)
			r := signedBody(test.body)
			again := r.Clone(t.Context())
			again.Body, _ = r.GetBody()
			first := s.do(r)
			if got := s.do(again); got.code != replayed {
				t.Errorf("%d %s, then %d %s", first.status, first.body, got.status, got.body)
			}
			if n := executed.Load(); n != test.want {
				t.Errorf("%d were executed, want %d", n, test.want)
			}
		})
	}
	// A message that is signed on its own.
	for _, method := range []string{"free", "denied"} {
		executed.Store(0)
		params := string(signed(t, method, `{}`, "b", "", []byte(secret)))
		s.call(method, params)
		s.call(method, params).wants(t, replayed)
		if n := executed.Load(); n > 1 || n == 0 && method == "free" {
			t.Errorf("%s: %d were executed", method, n)
		}
	}
}

// A store of the program's own gets the owner, and forgets what limits refused.
func TestNonceStore(t *testing.T) {
	now := newClock()
	store := &countingStore{}
	c := twoSigners(10, guard.Rate{Limit: 1, Every: time.Minute})
	s := newSite(t, c, &guard.Options{Now: now.Now, Nonces: store})
	for range 3 {
		s.do(s.signedRequest("who", "", "a", []byte(secret)))
	}
	if got := fmt.Sprint(store.used.Load(), store.forgotten.Load()); got != "3 2" {
		t.Errorf("used and forgotten: %s", got)
	}
}

// countingStore takes all nonces for new.
type countingStore struct{ used, forgotten atomic.Int64 }

func (s *countingStore) Use(_ context.Context, owner, nonce string, _ time.Time) (bool, error) {
	if owner == "" || nonce == "" {
		return false, fmt.Errorf("owner %q, nonce %q", owner, nonce)
	}
	s.used.Add(1)
	return true, nil
}

func (s *countingStore) Forget(context.Context, string) { s.forgotten.Add(1) }
