package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/store"
)

var key = strings.Repeat("00", 32)

func TestCheck(t *testing.T) {
	t.Parallel()
	three := []string{"10.0.0.1:6222", "10.0.0.2:6222", "10.0.0.3:6222"}
	for want, c := range map[string]Config{
		"":                                {Listen: three[0], Peers: three, Key: key},
		"url: there is no engine \"http":  {URL: "http://x"},
		"url: there is no engine \"\"":    {Key: key},
		"url: it has no host":             {URL: "nats://", Replicas: 1},
		"key: it is not 32 bytes":         {Listen: three[0], Peers: three, Key: "short"},
		"key: it is missing":              {Listen: three[0], Peers: three},
		"peers: there is no other node":   {Listen: three[0], Key: key},
		"peers: two nodes have no quorum": {Listen: three[0], Peers: three[:2], Key: key},
		"peers: 4 nodes survive":          {Listen: "10.0.0.4:6222", Peers: three, Key: key},
		"peers[0]: \"x\" is not HOST":     {Listen: "127.0.0.1:1", Peers: []string{"x", "127.0.0.1:2"}},
		"listen: it is missing":           {URL: Embedded, Peers: three[:2]},
		"listen: it is for an embedded":   {URL: "redis://h", Listen: three[0]},
		"replicas: what is shared":        {URL: "nats://a,nats://b"},
		"replicas: there are 3 nodes":     {Listen: three[0], Peers: three, Key: key, Replicas: 5},
		"replicas: a Valkey has":          {URL: "rediss://h", Replicas: 3},
		"replicas: it must be 1 to 5":     {URL: "nats://h", Replicas: 7},
		"calls: \":6223\" is not":         {URL: "redis://h", Calls: ":6223"},
		"calls: \"0.0.0.0:1\" is not":     {URL: "redis://h", Calls: "0.0.0.0:1"},
		"calls: no request is forwarded":  {Listen: "0.0.0.0:6222", Peers: three[1:], Key: key},
		"skew: it is negative":            {URL: "redis://h", Skew: -1},
	} {
		var got []string
		for _, p := range c.Check() {
			got = append(got, p.Key+": "+p.Message)
		}
		switch {
		case want == "" && len(got) > 0:
			t.Errorf("%+v: %q", c, got)
		case want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], want)):
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
	// Credentials are not shown.
	c := Config{URL: "nats://user:password@a:4222,nats://b", Replicas: 3}
	if text := c.Engine(); text != "NATS at a:4222, b, 3 replicas" {
		t.Error(text)
	}
}

// deaf is a store that can stop deciding.
type deaf struct {
	store.Store

	lost atomic.Bool
	gets atomic.Int64 // that still fail, by turns with both errors of an engine without a leader
}

func (d *deaf) Get(ctx context.Context, owner, id string) (*store.Record, error) {
	switch n := d.gets.Add(-1); {
	case n < 0:
		return d.Store.Get(ctx, owner, id)
	case n%2 == 0:
		return nil, fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)
	}
	return nil, store.ErrUnavailable
}

func (d *deaf) Since(ctx context.Context) (time.Time, error) {
	if d.lost.Load() {
		return time.Time{}, store.ErrUnavailable
	}
	return d.Store.Since(ctx)
}

func joined(t *testing.T, s store.Store, name string) *Node {
	t.Helper()
	n, err := Join(t.Context(), s, &Options{Name: name, Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func names(n *Node) string {
	var all []string
	for _, m := range n.Status().Members {
		all = append(all, m.Name)
	}
	return strings.Join(all, " ")
}

// Nodes know which others have another configuration. A node without a text differs from none.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory(nil)
		var logged strings.Builder // the nodes write to it by one handler, which has a lock
		logger := slog.New(slog.NewTextHandler(&logged, nil))
		join := func(name, config string) *Node {
			n, err := Join(t.Context(), shared, &Options{
				Name: name, Config: []byte(config), Logger: logger,
			})
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		a, b, c, none := join("a", "one"), join("b", "one"), join("c", "two"), join("none", "")
		check := func(want map[*Node]string) {
			t.Helper()
			<-time.After(2 * pulse)
			synctest.Wait()
			for n, differ := range want {
				if got := strings.Join(n.Status().Differ, " "); got != differ {
					t.Errorf("from %s, %q differ, want %q", n.self.Name, got, differ)
				}
			}
		}
		check(map[*Node]string{a: "c", b: "c", c: "a b", none: ""})
		const warning = "a node has another configuration"
		if text := logged.String(); strings.Count(text, warning) != 4 || strings.Contains(text, "two") {
			t.Errorf("logged: %s", text)
		}
		a.Configure([]byte("two"))
		check(map[*Node]string{a: "b", b: "a c", c: "b", none: ""})
		b.Configure([]byte("two"))
		check(map[*Node]string{a: "", b: "", c: "", none: ""})
		for _, n := range []*Node{a, b, c, none} {
			n.Close()
		}
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Nodes know of each other, of those that leave and of those that are silent, and have one secret.
func TestNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory(nil)
		a, b, c := joined(t, shared, "a"), joined(t, shared, "b"), joined(t, shared, "c")
		if !bytes.Equal(a.Secret("x"), c.Secret("x")) || bytes.Equal(a.Secret("x"), a.Secret("y")) {
			t.Error("the secret is not that of the purpose")
		}
		<-time.After(pulse + 1)
		synctest.Wait()
		if got := names(a); got != "a b c" || a.Present() != 3 {
			t.Error(got)
		}
		b.Close()
		synctest.Wait()
		if got := names(a); got != "a c" || a.Most() != 3 {
			t.Error(got)
		}
		c.end() // as if it had been killed
		c.done.Wait()
		<-time.After(absent + pulse)
		synctest.Wait()
		if got := names(a); got != "a" {
			t.Error(got)
		}
		c.stop()
		a.Close()
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A node that starts knows the others before it answers clients, and does not wait for those that
// are not there for longer than a pulse takes.
func TestMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := store.NewMemory(nil)
		a, b := joined(t, shared, "a"), joined(t, shared, "b")
		<-time.After(2 * pulse)
		for _, nodes := range []int{3, 0, 9} {
			began := time.Now()
			c := joined(t, shared, "c")
			if c.Meet(nodes); names(c) != "a b c" {
				t.Errorf("of %d nodes: %s", nodes, names(c))
			}
			most := map[int]time.Duration{3: pulse / 4, 0: pulse, 9: 2 * pulse}[nodes]
			if took := time.Since(began); took > most {
				t.Errorf("of %d nodes: it waits for %v", nodes, took)
			}
			c.Close()
		}
		a.Close()
		b.Close()
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &deaf{Store: store.NewMemory(nil)}
		n := joined(t, shared, "a")
		shared.lost.Store(true)
		<-time.After(pulse + 1)
		synctest.Wait()
		if st := n.Status(); st.Lost.IsZero() || st.Reason == "" {
			t.Errorf("%+v", st)
		}
		shared.lost.Store(false)
		<-time.After(pulse)
		synctest.Wait()
		if st := n.Status(); !st.Lost.IsZero() || st.Reason != "" {
			t.Errorf("%+v", st)
		}
		n.Close()
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A node that starts while the engine has no leader waits for one, and not for ever.
func TestJoinWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		shared := &deaf{Store: store.NewMemory(nil)}
		shared.gets.Store(10)
		joined(t, shared, "a").Close()
		shared.gets.Store(1 << 40)
		start := time.Now()
		if _, err := Join(t.Context(), shared, nil); err == nil || time.Since(start) < joinTime {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start = time.Now()
		if _, err := Join(ctx, shared, nil); err == nil || time.Since(start) > 2*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Without a store no process is a node.
func TestJoinFails(t *testing.T) {
	t.Parallel()
	shared := store.NewMemory(nil)
	if err := shared.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), shared, nil); !errors.Is(err, store.ErrClosed) {
		t.Error(err)
	}
}

func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","seq":1,"since":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"id":"ABCDEFGHIJKLMNOPQRSTUVWXYZ","leaves":true,"seq":1}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := &Node{
			others: map[string]Member{}, heard: map[string]int64{}, logger: slog.New(slog.DiscardHandler),
		}
		n.receive(store.Message{Data: data})
		n.receive(store.Message{Data: n.sign(data)})
		if n.Present() > 2 {
			t.Error("one message is one node")
		}
	})
}
