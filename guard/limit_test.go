package guard_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/httprpc"
)

// midday is far from where quotas of the day begin again.
func midday() *clock { return &clock{now: time.Now().Truncate(24 * time.Hour).Add(12 * time.Hour)} }

func TestRates(t *testing.T) {
	now := midday()
	c := &guard.Config{
		Anonymous: true, Keys: []guard.Key{keyOf("ci", goodKey, "slow"), keyOf("eve", otherKey)},
	}
	c.Limits.Rates = []guard.Rate{
		{Calls: []string{"math/*"}, Limit: 2, Every: time.Second},
		{Roles: []string{"slow"}, Limit: 3, Every: 24 * time.Hour},
		{Per: "all", Calls: []string{"admin/*"}, Limit: 1, Every: time.Minute},
	}
	s := newSite(t, c, &guard.Options{Now: now.Now})
	const asEve, ok = "X-API-Key: " + otherKey, "service eve by key"
	for range 2 {
		s.call("math/add", "", asEve).wants(t, ok)
	}
	got := s.call("math/add", "", asEve)
	got.wants(t, limited)
	if got.data["retryable"] != true || got.data["retryAfterMs"] != 500.0 {
		t.Errorf("%s", got.body)
	}
	s.call("who", "", asEve).wants(t, ok)
	s.call("math/add", "").wants(t, "anonymous anonymous by none") // its own bucket
	now.add(500 * time.Millisecond)
	s.call("math/add", "", asEve).wants(t, ok)
	s.call("math/add", "", asEve).wants(t, limited)
	for range 3 {
		s.call("who", "", asCI).wants(t, "service ci by key")
	}
	got = s.call("who", "", asCI) // the quota of the day
	got.wants(t, limited)
	if ms, _ := got.data["retryAfterMs"].(float64); ms < 11*3600*1000 || ms > 12*3600*1000 {
		t.Errorf("%s", got.body)
	}
	now.add(12 * time.Hour)
	s.call("who", "", asCI).wants(t, "service ci by key")
	s.call("admin/stop", "", asEve).wants(t, ok)
	s.call("admin/stop", "").wants(t, limited) // of all together
}

// A call that is under way has a place, and gives it back.
func TestConcurrency(t *testing.T) {
	c := &guard.Config{Anonymous: true, Keys: []guard.Key{keyOf("ci", goodKey)}}
	c.Limits.Concurrent = 2
	g := newGuard(t, c, nil)
	started, release := make(chan bool, 10), make(chan bool)
	mux := newMux()
	mux.Handle("wait", farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
		started <- true
		<-release
		return who(ctx, r)
	}))
	s := serve(t, g,
		g.HTTP(
			httprpc.NewHandler(mux,
				&httprpc.Options{
					RPC: &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}},
				})))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { s.call("wait", "").wants(t, "anonymous anonymous by none") })
		<-started
	}
	s.call("who", "").wants(t, limited)
	s.call("who", "", asCI).wants(t, "service ci by key")
	close(release)
	wg.Wait()
	s.call("who", "").wants(t, "anonymous anonymous by none")
}

func TestBodyAndHeaderAreBounded(t *testing.T) {
	t.Parallel()
	c := &guard.Config{Anonymous: true}
	c.Limits.MaxBody, c.Limits.MaxHeader = 1000, 2000
	s := newSite(t, c, nil)
	s.call("who", "").wants(t, "anonymous anonymous by none")
	const most = `{"code":-32012,"message":"Request too large","data":{"maxSize":1000,"unit":"bytes"}}`
	if got := s.call("who", `["`+strings.Repeat("x", 1000)+`"]`); got.status !=
		http.StatusRequestEntityTooLarge || !strings.Contains(got.body, most) {
		t.Errorf("%d %s", got.status, got.body)
	}
	r := s.request("who", `["`+strings.Repeat("x", 1000)+`"]`)
	r.ContentLength = -1
	if got := s.do(r); got.status != http.StatusRequestEntityTooLarge ||
		!strings.Contains(got.body, most) {
		t.Errorf("in chunks: %d %s", got.status, got.body)
	}
	if got := s.call("who", "", "X-Long: "+strings.Repeat("x", 2000)); got.status !=
		http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d %s", got.status, got.body)
	}
}

// A body that comes in drops is given up.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	c := &guard.Config{Anonymous: true, Signatures: []guard.Signer{{ID: "partner", Secret: secret}}}
	c.Limits.BodyTimeout = 50 * time.Millisecond
	s := newSite(t, c, nil)
	for _, header := range []string{"", "Signature: x=:eA==:\r\nSignature-Input: x=()\r\n"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn,
			"POST /rpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+
				"%sContent-Length: 1000\r\n\r\n{", header)
		conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		raw, err := io.ReadAll(conn) // it is answered, and the connection ends
		if err != nil || strings.Contains(string(raw), "anonymous") {
			t.Errorf("%q: %v %.200s", header, err, raw)
		}
	}
}

// A body in time leaves no deadline behind for the answer, or for the next request.
func TestBodyInTime(t *testing.T) {
	t.Parallel()
	c := &guard.Config{Anonymous: true}
	c.Limits.BodyTimeout = 100 * time.Millisecond
	g := newGuard(t, c, nil)
	mux := newMux()
	mux.Handle("wait", farcall.HandlerFunc(func(ctx context.Context, r *farcall.Request) (any, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return who(ctx, r)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	s := serve(t, g,
		g.HTTP(
			httprpc.NewHandler(mux,
				&httprpc.Options{
					RPC: &farcall.Options{Interceptors: []farcall.Interceptor{g.Interceptor(nil)}},
				})))
	for range 2 {
		s.call("wait", "").wants(t, "anonymous anonymous by none")
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	c := &guard.Config{Anonymous: true}
	c.Limits.Connections = 2
	g := newGuard(t, c, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	bounded := g.Listener(l)
	defer bounded.Close()
	accepted := make(chan net.Conn, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := bounded.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	})
	var mine []net.Conn
	for range 3 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil && len(mine) == 2 {
			break // it was reset before Dial returned
		} else if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		mine = append(mine, conn)
	}
	if len(mine) == 3 {
		mine[2].SetReadDeadline(time.Now().Add(10 * time.Second))
		if n, err := mine[2].Read(make([]byte, 1)); err == nil {
			t.Errorf("the third connection has read %d bytes", n)
		}
	}
	(<-accepted).Close()
	mine[0].Close()
	(<-accepted).Close()
	mine[1].Close()
	bounded.Close()
	wg.Wait()
	for len(accepted) > 0 {
		(<-accepted).Close()
	}
}
