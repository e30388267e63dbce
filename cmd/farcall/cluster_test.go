package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/race"
)

const clusterSecret = "a secret of the tests, of more than 32 bytes"

// A nodes is three gateways in three processes, each with an embedded engine.
type nodes struct {
	all  [3]*served
	dirs [3]string // with their configurations
}

// clusterConfig begins the configuration of all nodes; only their addresses differ.
const clusterConfig = `
cluster:
  listen: ${NODE}
  peers: [%s]
  key: file:cluster.key
  skew: 1s
`

const guardedConfig = `
guard:
  keys:
    - {id: local, hash: "%s"}
  signatures:
    - {id: ci, secret: "file:ci.key"}
  resource: {url: "https://rpc.example"}
  allow: [{calls: ["*"]}]
upstreams:
  none: {url: "http://127.0.0.1:1/mcp"}
`

// freeAddresses returns loopback addresses on which nothing listens. On Linux no other program
// takes them in the meantime: their host is one that no other program uses.
func freeAddresses(t *testing.T, n int) (all []string) {
	t.Helper()
	host := "127.0.0.1"
	if runtime.GOOS == "linux" {
		host = fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
	}
	for len(all) < n {
		port := 0
		if runtime.GOOS == "linux" {
			port = 10_000 + rand.IntN(20_000) // no connection to the host gets such a one for its own end
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp",
			net.JoinHostPort(host, strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // none is given twice
		all = append(all, l.Addr().String())
	}
	return all
}

// startNodes starts nodes with a configuration behind that of the cluster. ${WEB} is there where a
// node listens.
func startNodes(t *testing.T, config string) *nodes {
	t.Helper()
	race.Skip(t, "three processes run for it")
	addresses := freeAddresses(t, 6)
	addresses, webs := addresses[:3], addresses[3:]
	key, err := program(t, "cluster", "key").Output()
	if err != nil {
		t.Fatal(err)
	}
	n := &nodes{}
	dirs := n.dirs[:]
	for i := range dirs {
		dirs[i] = t.TempDir()
		for name, text := range map[string]string{
			"cluster.key": string(key), "ci.key": clusterSecret,
			"farcall.yaml": fmt.Sprintf(clusterConfig, strings.Join(addresses, ", ")) + config,
		} {
			if err := os.WriteFile(filepath.Join(dirs[i], name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	return n.start(t, dirs, addresses, webs)
}

func (n *nodes) start(t *testing.T, dirs, addresses, webs []string) *nodes {
	t.Helper()
	var wg sync.WaitGroup
	for i := range n.all {
		cmd := program(t, "serve")
		cmd.Env = append(cmd.Env, "NODE="+addresses[i], "WEB="+webs[i])
		config := filepath.Join(dirs[i], "farcall.yaml")
		wg.Go(func() { n.all[i] = serveProgram(t, cmd, "--config", config, "--listen", webs[i]) })
	}
	wg.Wait()
	for _, s := range n.all {
		if s == nil {
			t.Fatal("a node did not start")
		}
	}
	return n
}

// send sends a request to a node. The answer is its status and the body.
func (n *nodes) send(t *testing.T, i int, r *http.Request) (int, string) {
	t.Helper()
	u, err := url.Parse(n.all[i].addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	again := r.Clone(t.Context())
	again.URL.Host, again.Host = u.Host, "rpc.example"
	if r.GetBody != nil {
		if again.Body, err = r.GetBody(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := http.DefaultClient.Do(again)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got.StatusCode, string(body)
}

func asking(t *testing.T, path, body string) *http.Request {
	t.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://rpc.example"+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r
}

// signedCall is a signed request, each time another one.
func signedCall(t *testing.T) *http.Request {
	t.Helper()
	r := asking(t, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	r.Host = "rpc.example"
	if err := guard.SignRequest(r, "ci", []byte(clusterSecret)); err != nil {
		t.Fatal(err)
	}
	return r
}

// until asks again and again, until the answer has a text.
func until(t *testing.T, want string, ask func() string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(waitLimit); ; <-tick.C {
		got := ask()
		if strings.Contains(got, want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %q: %s", want, got)
		}
	}
}

const (
	codeReplayed    = "-32052"
	codeStale       = "-32054"
	codeUnavailable = "-32008"
)

// Three processes accept a signed request once, also when one of them was killed. Without a quorum
// they refuse it, and serve other calls.
func TestClusterProcesses(t *testing.T) {
	t.Parallel()
	n := startNodes(t, fmt.Sprintf(guardedConfig, hashOf([]byte("fc_local"))))
	accepted := func(i int) *http.Request { // retries while the store is younger than the request
		var r *http.Request
		until(t, "accepted", func() string {
			r = signedCall(t)
			status, body := n.send(t, i, r)
			for _, code := range []string{codeReplayed, codeStale, codeUnavailable} {
				if status != http.StatusOK && strings.Contains(body, code) {
					return body
				}
			}
			return "accepted"
		})
		return r
	}
	for i := range 3 {
		r := accepted(i)
		for other := range 3 {
			if status, body := n.send(t, other, r); status != http.StatusUnauthorized ||
				!strings.Contains(body, codeReplayed) {
				t.Errorf("node %d accepts what node %d has: %d %s", other, i, status, body)
			}
		}
	}
	until(t, "cluster: 3 present of 3 nodes\nshared: idempotency keys, nonces of signatures",
		n.ready(t, 1))
	at := n.all[1].addrs[0]
	status := func() string {
		out, _ := program(t, "cluster", "status", at, "--bearer", keyFile(t, "fc_local")).CombinedOutput()
		return string(out)
	}
	until(t, "present:            3 of 3", status)

	if err := n.all[2].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r := accepted(0)
	if status, body := n.send(t, 1, r); status != http.StatusUnauthorized ||
		!strings.Contains(body, codeReplayed) {
		t.Errorf("after a loss: %d %s", status, body)
	}
	until(t, "2 present of 3 nodes", n.ready(t, 1))

	if err := n.all[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if status, body := n.send(t, 1, signedCall(t)); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, codeUnavailable) {
		t.Errorf("without a quorum: %d %s", status, body)
	}
	local := asking(t, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	local.Header.Set("Authorization", "Bearer fc_local")
	if status, body := n.send(t, 1, local); status == http.StatusUnauthorized ||
		status == http.StatusServiceUnavailable {
		t.Errorf("a call that needs nothing shared: %d %s", status, body)
	}
	until(t, "the shared store does not decide since", n.ready(t, 1))
	until(t, "the shared store does not decide since", status)
}

// The status and the log name a node with another configuration than the others have, but for
// listen, and the probe counts it, until it has the same again.
func TestClusterConfigurations(t *testing.T) {
	t.Parallel()
	n := startNodes(t, "upstreams: {none: {url: \"http://127.0.0.1:1/mcp\"}}\n")
	until(t, "3 present of 3 nodes", n.ready(t, 0))
	status := func() string {
		out, _ := program(t, "cluster", "status", n.all[0].addrs[0]).CombinedOutput()
		return string(out)
	}
	if text := status(); strings.Contains(text, "another one") {
		t.Errorf("one configuration: %s", text)
	}
	file := filepath.Join(n.dirs[1], "farcall.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := program(t, "admin", "reload", n.all[1].addrs[0]).CombinedOutput(); err != nil {
			t.Fatalf("%s, %v", out, err)
		}
	}
	reload(string(text) + "drain_timeout: 3s\n")
	n.all[1].logged(t, 1, "other nodes have another configuration")
	n.all[0].logged(t, 1, "a node has another configuration")
	until(t, "1 with another configuration than this one", n.ready(t, 0))
	until(t, "2 with another configuration than this one", n.ready(t, 1))
	if text := status(); !strings.Contains(text, "another one at 127.") {
		t.Error(text)
	}
	reload(string(text))
	until(t, "3 present of 3 nodes\n", n.ready(t, 0))
}

// ready asks a node whether it is.
func (n *nodes) ready(t *testing.T, i int) func() string {
	t.Helper()
	return func() string {
		_, body := n.send(t, i, asking(t, "/readyz", ""))
		return body
	}
}

func keyFile(t *testing.T, key string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
