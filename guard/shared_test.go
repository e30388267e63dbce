package guard_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/store"
)

// lossy is a store of several processes that can be out of reach, or lose what it remembered.
type lossy struct {
	store.Store

	since atomic.Pointer[time.Time]
	fails atomic.Pointer[error]
	asked atomic.Int64
}

func newLossy(t *testing.T, since time.Time) *lossy {
	t.Helper()
	l := &lossy{Store: store.NewMemory(nil)}
	l.since.Store(&since)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lossy) fail(err error) {
	if err == nil {
		l.fails.Store(nil)
		return
	}
	l.fails.Store(&err)
}

func (l *lossy) Since(context.Context) (time.Time, error) { return *l.since.Load(), nil }

func (l *lossy) Claim(ctx context.Context, key string, until time.Time) (bool, error) {
	l.asked.Add(1)
	if err := l.fails.Load(); err != nil {
		return false, *err
	}
	return l.Store.Claim(ctx, key, until)
}

// sites are processes that share a store.
func sites(t *testing.T, n int, shared store.Store, rates ...guard.Rate) []*site {
	t.Helper()
	c := twoSigners(0, rates...)
	c.Resource.URL = audience // one address for all
	all := make([]*site, n)
	for i := range all {
		all[i] = newSite(t, c, &guard.Options{Shared: shared})
	}
	return all
}

// repeatable returns a function that sends one signed request to any of several processes.
func repeatable(t *testing.T, s *site) func(to *site) *http.Request {
	t.Helper()
	r := s.request("who", "", "Host: rpc.example")
	if err := guard.SignRequest(r, "a", []byte(secret)); err != nil {
		t.Fatal(err)
	}
	return func(to *site) *http.Request {
		other := r.Clone(t.Context())
		u, err := url.Parse(to.url)
		if err != nil {
			t.Fatal(err)
		}
		other.URL.Host, other.Host = u.Host, "rpc.example"
		other.Body, _ = r.GetBody()
		return other
	}
}

// A signed request counts once at all processes together. The one that has seen it does not ask the
// store again.
func TestSharedNonces(t *testing.T) {
	t.Parallel()
	shared := newLossy(t, time.Now().Add(-time.Hour))
	nodes := sites(t, 2, shared)
	once := repeatable(t, nodes[0])
	nodes[0].do(once(nodes[0])).wants(t, "service a by signature")
	nodes[1].do(once(nodes[1])).wants(t, replayed)
	asked := shared.asked.Load()
	nodes[0].do(once(nodes[0])).wants(t, replayed)
	nodes[1].do(once(nodes[1])).wants(t, replayed)
	if n := shared.asked.Load(); n != asked {
		t.Errorf("the store was asked %d times more", n-asked)
	}
	message := string(signed(t, "who", `{}`, "b", audience, []byte(secret)))
	nodes[1].call("who", message).wants(t, "service b by signature")
	nodes[0].call("who", message).wants(t, replayed)
}

// Without the store a signed request is refused; it may come again where nothing was claimed, and
// may not where that is unknown.
func TestSharedNoncesWithoutStore(t *testing.T) {
	t.Parallel()
	shared := newLossy(t, time.Now().Add(-time.Hour))
	nodes := sites(t, 1, shared)
	lost := repeatable(t, nodes[0])
	shared.fail(store.ErrUnavailable)
	got := nodes[0].do(lost(nodes[0]))
	if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", got.status, got.body)
	}
	shared.fail(errors.New("no answer in time"))
	unknown := repeatable(t, nodes[0])
	if got := nodes[0].do(unknown(nodes[0])); got.status != http.StatusServiceUnavailable {
		t.Errorf("%d %s", got.status, got.body)
	}
	shared.fail(nil)
	nodes[0].do(lost(nodes[0])).wants(t, "service a by signature")
	nodes[0].do(unknown(nodes[0])).wants(t, replayed)
}

// What was made before the store began to remember is refused, also when it has begun again
// meanwhile.
func TestSharedNoncesLost(t *testing.T) {
	t.Parallel()
	shared := newLossy(t, time.Now().Add(-time.Hour))
	nodes := sites(t, 2, shared)
	before := repeatable(t, nodes[0])
	again := time.Now().Add(time.Minute)
	shared.since.Store(&again)
	got := nodes[1].do(before(nodes[1]))
	after, _ := got.data["retryAfterMs"].(float64)
	if got.code != stale || after < 50_000 || after > 60_000 {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// A request that a rate refused was not used: it may come again, at any process.
func TestSharedNoncesForgotten(t *testing.T) {
	t.Parallel()
	shared := newLossy(t, time.Now().Add(-time.Hour))
	nodes := sites(t, 2, shared, guard.Rate{Limit: 1, Every: time.Minute})
	nodes[0].do(repeatable(t, nodes[0])(nodes[0])).wants(t, "service a by signature")
	refused := repeatable(t, nodes[0])
	nodes[0].do(refused(nodes[0])).wants(t, limited)
	nodes[1].do(refused(nodes[1])).wants(t, limited) // and not replayed
	nodes[0].do(refused(nodes[0])).wants(t, limited)
}

// Processes with the same secret accept each other's nonces for DPoP.
func TestSharedSecret(t *testing.T) {
	t.Parallel()
	shared := newLossy(t, time.Now().Add(-time.Hour))
	a, mine := newAuthority(t, "1"), prover{newAuthority(t, "")}
	c := everyWay(a, true)
	c.Resource.URL, c.JWT[0].DPoP = audience, "required"
	var nodes [2]*site
	for i := range nodes {
		nodes[i] = newSite(t, c, &guard.Options{Shared: shared, Secret: []byte(secret)})
	}
	token := a.token(time.Now(), map[string]any{"cnf": map[string]any{"jkt": mine.thumbprint()}})
	send := func(s *site, nonce string) *reply {
		proof := mine.proof(time.Now(), audience, token, map[string]any{"nonce": nonce})
		return s.call("who", "", "Authorization: DPoP "+token, "DPoP: "+proof)
	}
	first := send(nodes[0], "unknown")
	nonce := first.header.Get("DPoP-Nonce")
	if nonce == "" {
		t.Fatalf("no nonce: %d %s", first.status, first.body)
	}
	send(nodes[1], nonce).wants(t, "user "+issuer+"|alice by jwt")
}

// Processes count rates together: a call that one has let pass is counted at the other.
func TestSharedLimits(t *testing.T) {
	t.Parallel()
	shared := newLossy(t, time.Now().Add(-time.Hour))
	nodes := sites(t, 2, shared, guard.Rate{Limit: 3, Every: 24 * time.Hour})
	passed := 0
	for i := range 8 {
		got := nodes[i%2].do(repeatable(t, nodes[0])(nodes[i%2]))
		switch {
		case got.status == http.StatusOK && got.code == 0:
			passed++
		case got.code != limited:
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	if passed != 3 {
		t.Errorf("%d calls passed, of a quota of 3", passed)
	}
}
