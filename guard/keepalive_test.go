package guard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
)

// The connection of a stream that was ended serves no other client: a proxy would give it to
// the next client, and its context has ended already.
func TestConnectionOfAnEndedStream(t *testing.T) {
	g := newGuard(t, &guard.Config{Keys: []guard.Key{keyOf("ci", goodKey), keyOf("eve", otherKey)}},
		nil)
	dead := make(chan bool, 1)
	h := g.HTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			dead <- r.Context().Err() != nil
			return
		}
		ctl := http.NewResponseController(w)
		w.WriteHeader(http.StatusOK)
		_ = ctl.Flush()
		<-r.Context().Done()
		_ = ctl.SetWriteDeadline(time.Time{}) // as a handler with its own deadlines does
	}))
	s := httptest.NewServer(h)
	defer s.Close()
	web := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}}
	defer web.CloseIdleConnections()
	ask := func(method, key string) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/rpc", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-API-Key", key)
		return web.Do(r)
	}
	got, err := ask(http.MethodGet, goodKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Reload(&guard.Config{Keys: []guard.Key{keyOf("eve", otherKey)}}); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = got.Body.Read(make([]byte, 100))
	}
	got.Body.Close()
	got, err = ask(http.MethodPost, otherKey)
	if err != nil {
		t.Fatal(err)
	}
	got.Body.Close()
	if <-dead {
		t.Error("the context of the next request has ended before it began")
	}
}
