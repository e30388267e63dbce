package guard_test

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/budget"
)

// Large frames of a connection without credentials come from the part of the
// budget for those; of one that has them, from the share of its principal.
func TestBudgetOfAConnection(t *testing.T) {
	g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
	open := newGuard(t, &guard.Config{Anonymous: true}, nil)
	ada := &guard.Principal{ID: "ada", Kind: "user", Method: "test"}
	for _, c := range []struct {
		name  string
		g     *guard.Guard
		conn  *guard.Conn
		known bool
	}{
		{"no credentials", g, &guard.Conn{Transport: "tcp", Remote: "192.0.2.1:1"}, false},
		{
			"no certificate", g,
			&guard.Conn{Transport: "tcp+tls", Remote: "192.0.2.1:1", TLS: new(tls.ConnectionState)}, false,
		},
		{"anonymous", open, &guard.Conn{Transport: "tcp", Remote: "192.0.2.1:1"}, true},
		{"standard input", g, &guard.Conn{Transport: "stdio", Local: true}, true},
		{"of a handshake", g, &guard.Conn{Transport: "ws", Remote: "192.0.2.1:1", Principal: ada}, true},
	} {
		b := farcall.NewBudget(64<<20, 0)
		loan := budget.Lend(c.g.Budget(c.conn, b))
		if !loan.Grow(100 << 10) {
			t.Errorf("%s: no room", c.name)
		}
		if all, few := b.Used(); (all > 0) != c.known || (few > 0) == c.known {
			t.Errorf("%s: %d and %d bytes are held", c.name, all, few)
		}
		loan.Close()
	}
}

// Two connections of one principal have one share, and another principal has its own.
func TestPrincipalsShareTheBudget(t *testing.T) {
	g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey)}}, nil)
	b := farcall.NewBudget(64<<20, 0)
	lend := func(id string) *budget.Loan {
		l := budget.Lend(
			g.Budget(
				&guard.Conn{Transport: "ws", Principal: &guard.Principal{ID: id, Kind: "user", Method: "test"}},
				b))
		return &l
	}
	one, two, other := lend("ada"), lend("ada"), lend("bob")
	if !one.Grow(30<<20) || two.Grow(10<<20) {
		t.Error("two connections of one principal have two shares")
	}
	if !other.Grow(10 << 20) {
		t.Error("another principal finds no room")
	}
	one.Close()
	two.Close()
	other.Close()
}

// The body of a signed request is held until the request ends, and counts.
func TestBudgetOfASignedBody(t *testing.T) {
	t.Parallel()
	b := farcall.NewBudget(2<<20, 0)
	g := newGuard(t, &guard.Config{Signatures: []guard.Signer{{ID: "partner", Secret: secret}}},
		&guard.Options{Budget: b})
	var during int64
	s := httptest.NewServer(g.HTTP(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		during, _ = b.Used()
		w.WriteHeader(http.StatusNoContent)
	})))
	defer s.Close()
	send := func(size int) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL,
			strings.NewReader(`["`+strings.Repeat("x", size)+`"]`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if err := guard.SignRequest(r, "partner", []byte(secret)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	if status := send(500 << 10); status != http.StatusNoContent || during < 500<<10 {
		t.Errorf("%d, and %d bytes were held", status, during)
	}
	if status := send(1500 << 10); status != http.StatusServiceUnavailable && status != 0 {
		t.Errorf("without room: %d", status)
	}
	if n, few := b.Used(); n+few != 0 {
		t.Errorf("%d bytes are held at the end", n+few)
	}
}
