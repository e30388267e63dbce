package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

// killsVar says how many nodes TestMCPClusterKills kills, one each minute. Without it one is
// killed, in less time.
const killsVar = "FARCALL_KILLS"

// A roundRobin gives each connection to the next of some addresses that takes it.
type roundRobin struct {
	addresses []string
	next      atomic.Int64
	lost      atomic.Int64 // answers of clients to questions that no node has got
}

// answerKey is in the context of a request with an answer to a question.
type answerKey struct{}

func (b *roundRobin) dial(ctx context.Context, network, _ string) (conn net.Conn, err error) {
	var d net.Dialer
	first := int(b.next.Add(1))
	for i := range b.addresses {
		at := b.addresses[(first+i)%len(b.addresses)]
		if conn, err = d.DialContext(ctx, network, at); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// serve listens, and gives each request to one of the addresses. It reads it first, as most
// balancers do: ReverseProxy breaks an answer off that begins while it still looks for the end of
// the request.
func (b *roundRobin) serve(t *testing.T) string {
	t.Helper()
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1, Transport: &http.Transport{DialContext: b.dial, DisableKeepAlives: true},
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "127.0.0.1"}) },
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Value(answerKey{}) != nil {
				b.lost.Add(1)
			}
			http.Error(w, "the balancer has no answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if len(body) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		if bytes.Contains(body, []byte(`"result"`)) && !bytes.Contains(body, []byte(`"method"`)) {
			r = r.WithContext(context.WithValue(r.Context(), answerKey{}, true))
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	return front.URL
}

// clusterConfigs writes the configuration of each of three nodes before an upstream.
func clusterConfigs(t *testing.T, upstream string) (configs, addresses []string) {
	t.Helper()
	for range 6 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	key, err := exec.CommandContext(t.Context(), farcallPath, "cluster", "key").Output()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		dir := t.TempDir()
		config := filepath.Join(dir, "farcall.yaml")
		for name, text := range map[string]string{
			config: fmt.Sprintf(
				"listen: %s\ncluster: {listen: '%s', peers: ['%s'], key: 'file:cluster.key', skew: 1s}\n"+
					"upstreams: {ours: {url: '%s'}}\n", addresses[i], addresses[3+i],
				strings.Join(addresses[3:], "', '"), upstream),
			filepath.Join(dir, "cluster.key"): string(key),
		} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		configs = append(configs, config)
	}
	return configs, addresses[:3]
}

// kills is what clients see while nodes are killed.
type kills struct {
	t    *testing.T
	lost *atomic.Int64 // of the balancer

	mu      sync.Mutex
	killed  time.Time
	calls   map[string]int
	failed  map[string]int // of those, near a kill
	longest time.Duration
}

// near is how long after a kill a call may fail: it was at the node, or its client has not yet
// found that its stream or session is gone.
const near = 15 * time.Second

// note books one call of a client.
func (k *kills) note(name string, began time.Time, err error) {
	took := time.Since(began)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls[name]++
	switch {
	case took <= waitLimit:
		k.longest = max(k.longest, took)
	case !strings.HasPrefix(name, "farcall ") && k.lost.Add(-1) >= 0: // only ours sends it again
		k.t.Logf("%s: a call has waited for an answer that the balancer has lost", name)
	default:
		k.t.Errorf("%s: a call took %v", name, took)
	}
	switch since := time.Since(k.killed); {
	case err == nil:
	case since < near+took:
		k.failed[name]++
		k.t.Logf("%s: %v after a kill: %.200v", name, since.Round(time.Millisecond), err)
	default:
		k.t.Errorf("%s: %v", name, err)
	}
}

// use has a client do things in turn, until the context ends.
func (k *kills) use(ctx context.Context, name string, things ...func(context.Context) error) {
	for ctx.Err() == nil {
		for _, do := range things {
			within, cancel := context.WithTimeout(context.WithoutCancel(ctx), waitLimit)
			began := time.Now()
			err := do(within)
			cancel()
			k.note(name, began, err)
		}
	}
}

// things are what a client does: it reads lists, calls tools that ask, and reads resources.
func things(u clusterUser) []func(context.Context) error {
	all := []func(context.Context) error{
		func(ctx context.Context) error { _, _, _, _, err := u.lists(ctx); return err },
		func(ctx context.Context) error { _, err := u.read(ctx, "note://numbered/7"); return err },
	}
	if era.Lookup(u.revision()).Elicitation {
		all = append(all, func(ctx context.Context) error {
			text, err := u.call(ctx, "ask", nil)
			if err == nil && !strings.Contains(text, "Ada") {
				err = errors.New(text)
			}
			return err
		})
	}
	return all
}

// task runs a tool as a task, and waits for its end: when the client has its id, it goes on
// whatever happens to nodes, and is known until its time is over.
func (u *our) task(ctx context.Context) error {
	started, err := u.client.StartTask(ctx, "count", counted{N: 15, Pause: 100}, time.Minute)
	if err != nil {
		return err
	}
	for {
		r, err := u.client.WaitTask(ctx, started.TaskID)
		wire := new(jsonrpc.Error)
		switch {
		case err == nil && r.IsError, err == nil && r.Content[0].Text != "Counted.":
			u.t.Errorf("a task has ended with %+v", r)
			return nil
		case err == nil:
			return nil
		case errors.As(err, &wire) && wire.Code == jsonrpc.InvalidParams:
			u.t.Errorf("a task is lost: %v", err)
			return nil
		case ctx.Err() != nil:
			return err
		}
		u.t.Logf("a task is asked for again: %.200v", err)
		<-time.After(100 * time.Millisecond) // a node was killed
	}
}

// told changes a resource that the client watches, and waits until it hears of that.
func (u *our) told(ctx context.Context) error {
	for len(u.event) > 0 {
		<-u.event
	}
	if _, err := u.call(ctx, "touch", nil); err != nil {
		return err
	}
	for late := time.After(5 * time.Second); ; {
		select {
		case event := <-u.event:
			if event == "updated note://text" {
				return nil
			}
		case <-late:
			return errors.New("the client was not told of a change")
		}
	}
}

type clusterUser interface {
	revision() string
	lists(ctx context.Context) (tools, resources, templates, prompts []string, err error)
	call(ctx context.Context, tool string, args any) (string, error)
	read(ctx context.Context, uri string) (string, error)
}

// TestMCPClusterKills has three nodes of a cluster behind a round robin, and clients of others that
// use them all the time, are asked, run tasks and watch a resource. So many nodes as FARCALL_KILLS
// says are killed and start again: but for calls that it had, all go on, and each call ends within
// 30 s.
func TestMCPClusterKills(t *testing.T) {
	t.Parallel()
	count, between := 1, 20*time.Second
	if n, err := strconv.Atoi(os.Getenv(killsVar)); err == nil {
		count, between = n, time.Minute
	}
	configs, addresses := clusterConfigs(t, serveOurs(t).http)
	nodes := make([]*far, 3)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() { nodes[i] = starts(t, "serve", "--config", configs[i]) })
	}
	wg.Wait()
	balancer := &roundRobin{addresses: addresses}
	place := &place{http: balancer.serve(t) + "/mcp/ours"}
	k := &kills{t: t, lost: &balancer.lost, calls: map[string]int{}, failed: map[string]int{}}
	users := map[string][]func(context.Context) error{}
	for _, rev := range []string{"2025-11-25", "2026-07-28"} {
		users["farcall "+rev] = things(useAs(t, place, "http", rev))
		tasks, watcher := useAs(t, place, "http", rev), useAs(t, place, "http", rev)
		users["farcall "+rev+" tasks"] = []func(context.Context) error{tasks.task}
		if err := watcher.watch(t.Context(), "note://text"); err != nil {
			t.Fatal(err)
		}
		users["farcall "+rev+" subscriptions"] = []func(context.Context) error{watcher.told}
		users["go-sdk "+rev] = things(useGoSDK(t, place, "http", rev))
		if era.Lookup(rev).Handshake {
			users["mcp-go "+rev] = things(useMCPGo(t, place, "http", rev))
		}
		if findNode() == "" && os.Getenv("CI") == "" {
			t.Log(
				"without the TypeScript client: there is no Node.js of version 22 or later on this machine")
			continue
		}
		script := useTypeScript(t, place.http, rev)
		users["typescript "+rev] = []func(context.Context) error{func(context.Context) error {
			failed, err := script.use(1)
			if err == nil && len(failed) > 0 {
				err = errors.New(strings.Join(failed, "; "))
			}
			return err
		}}
	}
	ctx, end := context.WithCancel(t.Context())
	var using sync.WaitGroup
	for name, u := range users {
		using.Go(func() { k.use(ctx, name, u...) })
	}
	pause := func() {
		select {
		case <-time.After(between / 2):
		case <-t.Context().Done():
		}
	}
	pause()
	for n := range count {
		i := n % 3
		k.mu.Lock()
		k.killed = time.Now()
		k.mu.Unlock()
		if err := nodes[i].cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-nodes[i].ended
		pause()
		nodes[i] = starts(t, "serve", "--config", configs[i])
		pause()
	}
	end()
	using.Wait()
	for name := range users {
		if k.calls[name] <= k.failed[name] {
			t.Errorf("%s: no call has succeeded", name)
		}
	}
	t.Logf("%d kills: calls %v, failed %v, the longest took %v", count, k.calls, k.failed, k.longest)
}
