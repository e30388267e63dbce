package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/store"
)

// valueArgs are the arguments of the tool "value": it sets a value, or returns one.
type valueArgs struct {
	Key string `json:"key"`
	Set string `json:"set,omitempty"`
}

func useValue(ctx context.Context, a valueArgs) (string, error) {
	x := RequestFrom(ctx).Session()
	if a.Set != "" {
		return a.Set, x.SetValue(a.Key, a.Set)
	}
	var value string
	ok, err := x.Value(a.Key, &value)
	if err == nil && !ok {
		value = "none"
	}
	return value, err
}

// TestSessionValuesAreStored lets clients of each revision with sessions set and read values at two
// servers in turn, many at a time. One server is replaced: all values are there. The end of a
// session removes its own only.
func TestSessionValuesAreStored(t *testing.T) {
	t.Parallel()
	kept, err := store.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() })
	var replicas [2]atomic.Pointer[mcphttp.Handler]
	start := func(i int) {
		s, h := replica(t, ServerOptions{Keys: sealKeys("k"), Sessions: kept, Tasks: kept},
			mcphttp.Options{})
		AddTool(s, Tool{Name: "value"}, useValue)
		if old := replicas[i].Swap(h); old != nil {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = old.Shutdown(ctx) // its error is the context's
		}
	}
	start(0)
	start(1)
	var next atomic.Int64
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		replicas[next.Add(1)%2].Load().ServeHTTP(w, r)
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })

	value := func(c *Client, a valueArgs, want string) {
		t.Helper()
		if got, err := CallTool[string](t.Context(), c, "value", a); err != nil || got != want {
			t.Errorf("%+v: %q, %v; want %q", a, got, err, want)
		}
	}
	var clients []*Client
	for _, rev := range era.Revisions() {
		if !rev.Handshake {
			continue
		}
		c, err := Dial(t.Context(), front.URL+"/mcp", &ClientOptions{Era: rev.Name})
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	const keys = 8
	key := func(c, k int) (valueArgs, string) {
		return valueArgs{Key: fmt.Sprint("key ", k)}, fmt.Sprintf("%d of client %d", k, c)
	}
	var wg sync.WaitGroup
	for i, c := range clients {
		for k := range keys {
			wg.Go(func() {
				a, v := key(i, k)
				a.Set = v
				value(c, a, v)
			})
		}
	}
	wg.Wait()
	start(1)
	for i, c := range clients {
		for k := range keys {
			a, v := key(i, k)
			value(c, a, v)
			value(c, a, v) // at the other one
		}
		value(c, valueArgs{Key: "other"}, "none")
	}
	big := valueArgs{Key: "big", Set: strings.Repeat("x", maxSessionValues)}
	if r, err := clients[0].CallTool(t.Context(), "value", big); err != nil || !r.IsError ||
		!strings.Contains(r.Content[0].Text, errManyValues.Error()) {
		t.Errorf("a value that is too large: %v, %v", r, err)
	}
	for i, c := range clients {
		if _, records := kept.Used(); records != len(clients)-i {
			t.Errorf("%d records of %d sessions", records, len(clients)-i)
		}
		if err := c.Close(); err != nil { // DELETE
			t.Error(err)
		}
	}
	if _, records := kept.Used(); records != 0 {
		t.Errorf("%d records are left", records)
	}
}

// TestSessionValuesConflict: a change is made again when another replica was first, but not for
// ever; the error of a store is reported.
func TestSessionValuesConflict(t *testing.T) {
	kept := &faultyStore{Records: store.New(nil)}
	v := &storedValues{
		records: kept, owner: "o", id: valuesPrefix + "1",
		until: time.Now().Add(time.Hour),
	}
	conflicts := 0
	kept.fail(func(*store.Record) error {
		if conflicts++; conflicts < 3 {
			return store.ErrConflict
		}
		return nil
	})
	if err := v.set("a", []byte("1")); err != nil || conflicts != 3 {
		t.Errorf("%v after %d attempts", err, conflicts)
	}
	for _, fails := range []error{store.ErrConflict, store.ErrFull} {
		kept.fail(func(*store.Record) error { return fails })
		if err := v.set("a", []byte("2")); !errors.Is(err, fails) {
			t.Errorf("%v, want %v", err, fails)
		}
	}
	kept.fail(nil)
	if values, _, err := v.get(storeTimeout); err != nil || string(values["a"]) != "1" {
		t.Errorf("%s, %v", values, err)
	}
	if err := errors.Join(v.set("a", nil), v.set("b", []byte("2"))); err != nil {
		t.Error(err)
	}
	if values, _, err := v.get(storeTimeout); err != nil || len(values) != 1 {
		t.Errorf("%s, %v", values, err)
	}
}
