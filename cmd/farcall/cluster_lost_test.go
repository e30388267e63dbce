//go:build unix

package main

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const initializeBody = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
	`"params":{"protocolVersion":"` +
	spec.Revision20251125 + `","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// sessionAt begins a session at a node.
func (n *nodes) sessionAt(t *testing.T, i int) (id string) {
	t.Helper()
	resp := n.open(t, i, asking(t, "/mcp", initializeBody)) //nolint:bodyclose // open has it closed
	return resp.Header.Get("Mcp-Session-Id")
}

// open sends a request to a node, and returns the answer, which the test reads.
func (n *nodes) open(t *testing.T, i int, r *http.Request) *http.Response {
	t.Helper()
	u, err := url.Parse(n.all[i].addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	r.URL.Host, r.Host = u.Host, u.Host
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// inSession is a request of a session.
func inSession(t *testing.T, id, body string) *http.Request {
	t.Helper()
	r := asking(t, "/mcp", body)
	r.Header.Set("Mcp-Session-Id", id)
	r.Header.Set("Mcp-Protocol-Version", spec.Revision20251125)
	return r
}

// When the node of a session is killed, and when it is stopped, a call that another node has
// forwarded ends with an error within 30 s, and later ones say that the session is not there.
func TestClusterNodeLost(t *testing.T) {
	t.Parallel()
	config, _ := childConfig(t, "session", "legacy")
	n := startNodes(t, "sessions: {mode: memory}\n"+config)
	n.linked(t)
	for i, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		id := n.sessionAt(t, i)
		//nolint:bodyclose // open has it closed
		resp := n.open(t, 2, inSession(t, id, `{"jsonrpc":"2.0","id":7,"method":"tools/call",`+
			`"params":{"name":"wait","arguments":{},"_meta":{"progressToken":1}}}`))
		lines := bufio.NewReader(resp.Body)
		for line := ""; !strings.Contains(line, "half"); {
			var err error
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(resp.Status, line, err)
			}
		}
		n.all[i].signal(t, signal)
		began := time.Now()
		rest, err := io.ReadAll(lines)
		took := time.Since(began)
		if err != nil || took > 30*time.Second || !strings.Contains(string(rest), `"sent":"unknown"`) ||
			!strings.Contains(string(rest), `"id":7`) {
			t.Errorf("after %v of %v: %v %s", signal, took, err, rest)
		}
		t.Logf("%v: an error after %v", signal, took)
		until(t, "404", func() string {
			r := inSession(t, id, `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"where"}}`)
			began := time.Now()
			resp := n.open(t, 2, r) //nolint:bodyclose // open has it closed
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("a later call took %v", took)
			}
			return resp.Status
		})
	}
}

// The nonce of a signed request that is forwarded is used once, by the node where it arrives, and
// what a client says in the headers between nodes changes nothing.
func TestClusterForwardedSignature(t *testing.T) {
	t.Parallel()
	config, _ := childConfig(t, "session", "legacy")
	n := startNodes(t,
		"sessions: {mode: memory}\ntrusted_proxies: [127.0.0.0/8]\nguard:\n  signatures:\n"+
			"    - {id: ci, secret: \"file:ci.key\"}\n"+
			"  resource: {url: \"https://rpc.example\"}\n  allow: [{calls: [\"*\"]}]\n"+config)
	n.present(t)
	signed := func(id, body string) *http.Request {
		r := asking(t, "/mcp", body)
		if id != "" {
			r = inSession(t, id, body)
		}
		r.Host = "rpc.example"
		r.URL.Scheme = "https" // it is sent by way of a proxy, which ends TLS
		if err := guard.SignRequest(r, "ci", []byte(clusterSecret)); err != nil {
			t.Fatal(err)
		}
		r.URL.Scheme = "http"
		r.Header.Set("X-Forwarded-For", "192.0.2.7")
		r.Header.Set("X-Forwarded-Proto", "https")
		return r
	}
	id := ""
	until(t, "begun", func() string { // the store is younger than the first requests
		u, err := url.Parse(n.all[0].addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		r := signed("", initializeBody)
		r.URL.Host = u.Host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if id = resp.Header.Get("Mcp-Session-Id"); id == "" {
			return resp.Status
		}
		return "begun"
	})
	call := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"where","arguments":{}}}`
	for i := range 3 {
		r := signed(id, call)
		if status, body := n.send(t, i, r); status != http.StatusOK || !strings.Contains(body, `"text"`) {
			t.Errorf("by way of node %d: %d %s", i, status, body)
		}
		r.Header.Set("Farcall-Client", "127.0.0.1:1")
		r.Header.Set("Farcall-Tls", "yes")
		for other := range 3 {
			if status, body := n.send(t, other, r); status != http.StatusUnauthorized ||
				!strings.Contains(body, codeReplayed) {
				t.Errorf("node %d accepts what node %d has: %d %s", other, i, status, body)
			}
		}
	}
}
