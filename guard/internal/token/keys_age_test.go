package token

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An attacker who keeps an issuer away must not keep keys valid for ever that the issuer has
// taken back: after KeysMaxAge they no longer count, not even for tokens that were verified.
func TestKeysMaxAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "ES256", "k")
		n := issuerNet(s)
		var log lockedBuffer
		v, err := New([]Issuer{{Issuer: testIssuer, Audience: []string{"https://rpc.example"}}}, &Options{
			HTTP: &http.Client{Transport: n}, Now: func() time.Time {
				return testNow
			}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		known, fresh := s.sign(nil, nil), func(n string) string { return s.sign(nil, dict{"jti": n}) }
		good(t, v, known)
		n.set(func() { n.down = true })
		later(23 * time.Hour)
		synctest.Wait()
		good(t, v, known)
		good(t, v, fresh("1"))
		if !strings.Contains(log.String(), "level=WARN") ||
			!strings.Contains(log.String(), "keys_count_until=") {
			t.Errorf("it does not say until when the keys count:\n%s", log.String())
		}
		later(2 * time.Hour)
		synctest.Wait()
		bad(t, v, known, "unavailable")
		bad(t, v, fresh("2"), "unavailable")
		if !strings.Contains(log.String(), "level=ERROR") ||
			!strings.Contains(log.String(), "no longer count") {
			t.Errorf("it does not say that the keys no longer count:\n%s", log.String())
		}
		n.set(func() { n.down = false })
		later(maxRetry * 2)
		synctest.Wait()
		good(t, v, known)
		good(t, v, fresh("3"))
	})
}

// The end comes at its time, not with the next fetch, also while one hangs.
func TestKeysMaxAgeWhileFetchHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t, "ES256", "k")
		n := issuerNet(s)
		v := fetching(t, n, func(i *Issuer) { i.Refresh, i.KeysMaxAge = time.Hour, time.Hour })
		known := s.sign(nil, nil)
		good(t, v, known)
		n.set(func() { n.hold = make(chan struct{}) })
		later(time.Hour)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := v.Verify(ctx, known)
		refused(t, err, "unavailable", known)
	})
}

func TestKeysMaxAgeBelowRefresh(t *testing.T) {
	_, err := New([]Issuer{
		{Issuer: testIssuer, Audience: []string{"a"}, Refresh: 2 * time.Hour, KeysMaxAge: time.Hour},
	}, nil)
	if err == nil ||
		!strings.Contains(err.Error(), "keys_max_age is 1h0m0s, less than refresh (2h0m0s)") {
		t.Error(err)
	}
}

// A lockedBuffer can be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
