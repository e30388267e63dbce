package cluster

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/store"
)

// linkedTo makes two nodes that answer with h, and waits until the first one knows the second.
func linkedTo(t *testing.T, h http.HandlerFunc) (a, b *Node) {
	t.Helper()
	shared := store.NewMemory(nil)
	t.Cleanup(func() { _ = shared.Close() })
	a, b = joined(t, shared, "a"), joined(t, shared, "b")
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	for _, n := range []*Node{a, b} {
		if err := n.Listen("127.0.0.1:0", nil, h); err != nil {
			t.Fatal(err)
		}
	}
	knows(t, a, b.ID(), func(m Member) bool { return m.Calls != "" })
	return a, b
}

// knows waits until a node knows something of another one.
func knows(t *testing.T, n *Node, id string, is func(Member) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		for _, m := range n.Status().Members {
			if m.ID == id && is(m) {
				return
			}
		}
		if t.Context().Err() != nil {
			return
		}
	}
}

func request(t *testing.T, body string) *http.Request {
	t.Helper()
	at := "http://rpc.example/mcp?x=1"
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, at, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.7:1234"
	return r
}

// What a client says of itself in the headers between nodes is not forwarded, and the listener of
// the nodes has the client's address and certificates of the node.
func TestForward(t *testing.T) {
	t.Parallel()
	var got *http.Request
	a, b := linkedTo(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(append([]byte("got "), body...))
	})
	r := request(t, "")
	r.Header.Set(headerClient, "127.0.0.1:1")
	r.Header.Set(headerChain, "AAAA")
	r.Header.Set("Authorization", "Bearer x")
	w := httptest.NewRecorder()
	begun, sent, err := a.Forward(w, r, b.ID(), []byte("it"))
	if err != nil || !begun || !sent || w.Code != http.StatusTeapot ||
		w.Body.String() != "got it" || w.Header().Get("X-Answer") != "yes" {
		t.Fatal(begun, sent, err, w.Code, w.Body)
	}
	if got.RemoteAddr != r.RemoteAddr || got.TLS != nil || !Forwarded(got.Context()) ||
		got.Host != "rpc.example" || got.URL.RequestURI() != "/mcp?x=1" ||
		got.Header.Get("Authorization") != "Bearer x" || got.Header.Get(headerClient) != "" {
		t.Errorf("%+v", got)
	}

	public, private, _ := ed25519.GenerateKey(rand.Reader)
	of := &x509.Certificate{SerialNumber: big.NewInt(7)}
	raw, err := x509.CreateCertificate(rand.Reader, of, of, public, private)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	r.TLS = &tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf, leaf}},
	}
	if _, _, err := a.Forward(httptest.NewRecorder(), r, b.ID(), nil); err != nil {
		t.Fatal(err)
	}
	if s := got.TLS; s == nil || len(s.PeerCertificates) != 1 || !s.PeerCertificates[0].Equal(leaf) ||
		len(s.VerifiedChains) != 1 || len(s.VerifiedChains[0]) != 2 {
		t.Errorf("%+v", s)
	}
}

// What a listed proxy says of the client's address is so at the other node, too: a signature of an
// https address is good there. What a client says of a proxy is not forwarded.
func TestForwardBehindAProxy(t *testing.T) {
	t.Parallel()
	var got *http.Request
	a, b := linkedTo(t, func(_ http.ResponseWriter, r *http.Request) { got = r })
	for _, said := range []*forwarded.Request{
		nil, {Secure: true}, {Host: "rpc.example:8443", Secure: true}, {Host: "rpc.example"},
	} {
		r := request(t, "")
		r.Header.Set(headerProxy, "https/evil.example")
		if said != nil {
			r = r.WithContext(forwarded.With(r.Context(), said))
		}
		if _, _, err := a.Forward(httptest.NewRecorder(), r, b.ID(), nil); err != nil {
			t.Fatal(err)
		}
		is := forwarded.Of(got.Context())
		if (is == nil) != (said == nil) || is != nil && *is != *said || got.TLS != nil {
			t.Errorf("%+v in place of %+v", is, said)
		}
	}
}

// A WebSocket is carried in both directions until one end closes it, or the node that accepts it is
// lost; nothing else may change the protocol of a connection between nodes.
func TestForwardWebSocket(t *testing.T) {
	t.Parallel()
	accepted := make(chan net.Conn, 1)
	a, b := linkedTo(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Connection") != "Upgrade" {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+
				"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello")
		}
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- conn
	})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if begun, _, err := a.Forward(w, r, b.ID(), nil); !begun || err != nil {
			t.Error(begun, err)
		}
	}))
	defer front.Close()
	open := func(upgrade string) (net.Conn, *bufio.Reader, int) {
		conn, err := net.Dial("tcp", front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		_, _ = io.WriteString(conn,
			"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+upgrade+"\r\n\r\n")
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return conn, in, resp.StatusCode
	}
	if _, _, status := open("h2c"); status != http.StatusTeapot {
		t.Error(status)
	}
	for _, ends := range []string{"the client", "the node"} {
		conn, in, status := open("websocket")
		text := make([]byte, 5)
		if _, err := io.ReadFull(in, text); err != nil || string(text) != "hello" ||
			status != http.StatusSwitchingProtocols {
			t.Fatal(err, string(text), status)
		}
		there := <-accepted
		_, _ = io.WriteString(conn, "world")
		if _, err := io.ReadFull(there, text); err != nil || string(text) != "world" {
			t.Fatal(err, string(text))
		}
		first, other := conn, io.Reader(there)
		if ends == "the node" {
			first, other = there, in
		}
		first.Close()
		if n, err := other.Read(text); n != 0 || err == nil {
			t.Errorf("%s closes it: %d, %v", ends, n, err)
		}
		there.Close()
	}
}

// A client that leaves ends its request at the other node, and an answer that breaks off is an
// error.
func TestForwardEnds(t *testing.T) {
	t.Parallel()
	began, ended := make(chan struct{}), make(chan struct{})
	a, b := linkedTo(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Break") != "" {
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
		close(began)
		<-r.Context().Done()
		close(ended)
	})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-began; leave() }()
	r := request(t, "")
	_, _, err := a.Forward(httptest.NewRecorder(), r.WithContext(ctx), b.ID(), nil)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	<-ended
	r.Header.Set("X-Break", "yes")
	begun, _, err := a.Forward(httptest.NewRecorder(), r, b.ID(), nil)
	if !begun || err == nil {
		t.Error(begun, err)
	}
}

// Nodes that end, and those that are gone, have executed nothing, and others take their keys.
func TestForwardMoves(t *testing.T) {
	t.Parallel()
	a, b := linkedTo(t, func(w http.ResponseWriter, _ *http.Request) { Moved(w) })
	if to := a.Place(b.ID(), ""); to != b.ID() {
		t.Error(to)
	}
	begun, sent, err := a.Forward(httptest.NewRecorder(), request(t, ""), b.ID(), nil)
	if begun || sent || err == nil {
		t.Error(begun, sent, err)
	}
	if keyed, kept := a.Place(b.ID(), "k"), a.Place(b.ID(), ""); keyed != a.ID() || kept != b.ID() {
		t.Error(keyed, kept)
	}
	if to := a.Place("ABCDEFGHIJKLMNOPQRSTUVWXYZ", ""); to != "" {
		t.Error("a node that is not there has it:", to)
	}
	b.links.server.Close()
	b.links.served.Wait()
	a.links.client.CloseIdleConnections()
	_, sent, err = a.Forward(httptest.NewRecorder(), request(t, ""), b.ID(), nil)
	if sent || err == nil {
		t.Error(sent, err)
	}
}

// A node that is silent in the store, and answers other nodes, is present: the store may be away.
// One that does not answer is absent, and what was forwarded to it ends.
func TestSilentNode(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	a, b := linkedTo(t, func(_ http.ResponseWriter, r *http.Request) {
		close(began)
		<-r.Context().Done()
	})
	silent := func() { a.mark(b.ID(), func(m *Member) { m.seen = m.seen.Add(-absent - time.Minute) }) }
	silent()
	if a.forget(t.Context()); a.Present() != 2 {
		t.Error("a node that answers is absent")
	}
	ended := make(chan error, 1)
	go func() {
		_, _, err := a.Forward(httptest.NewRecorder(), request(t, ""), b.ID(), nil)
		ended <- err
	}()
	<-began
	b.end() // it publishes nothing more
	b.done.Wait()
	for a.Present() != 1 { // what it has published before may still arrive
		a.mark(b.ID(), func(m *Member) { m.Calls = "127.0.0.1:1" })
		silent()
		a.forget(t.Context())
	}
	if err := <-ended; err == nil {
		t.Error("a call goes on at a node that is absent")
	}
}

// Of three nodes each has a share of the keys, and when one goes only its keys move.
func TestOwner(t *testing.T) {
	t.Parallel()
	n := &Node{self: Member{ID: "A"}, others: map[string]Member{"B": {Calls: "x"}, "C": {Calls: "x"}}}
	before, count := map[string]string{}, map[string]int{}
	for i := range 3000 {
		key := string(rune('a'+i%26)) + strings.Repeat("x", i/26)
		before[key] = n.Owner(key)
		count[before[key]]++
	}
	for _, id := range []string{"A", "B", "C"} {
		if count[id] < 800 {
			t.Errorf("%s has %d of 3000", id, count[id])
		}
	}
	n.mark("B", func(m *Member) { m.Drains = true })
	for key, was := range before {
		if is := n.Owner(key); is == "B" || was != "B" && is != was {
			t.Fatalf("%s moved from %s to %s", key, was, is)
		}
	}
}

// The listener of the nodes accepts certificates of our secret only, and requests that name a
// client.
func TestForeignCertificate(t *testing.T) {
	t.Parallel()
	reached := false
	a, b := linkedTo(t, func(http.ResponseWriter, *http.Request) { reached = true })
	own, err := Mutual(append(a.Secret("calls between nodes"), "another key"...))
	if err != nil {
		t.Fatal(err)
	}
	none := &tls.Config{InsecureSkipVerify: true, ServerName: own.ServerName}
	foreign := own.Clone()
	foreign.InsecureSkipVerify = true
	mine := a.links.client.TLSClientConfig
	for what, config := range map[string]*tls.Config{"no": none, "a foreign": foreign, "our": mine} {
		c := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}
		at := "https://" + addressOf(b) + "/mcp"
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
		resp, err := c.RoundTrip(r)
		refused := err != nil
		if !refused {
			resp.Body.Close()
		}
		if refused != (what != "our") || !refused && resp.StatusCode != http.StatusBadRequest || reached {
			t.Errorf("with %s certificate: %v %v, reached: %v", what, resp, err, reached)
		}
		c.CloseIdleConnections()
	}
	if c, err := tls.Dial("tcp", addressOf(b), own); err == nil { // the client refuses, too
		c.Close()
		t.Error("a foreign authority accepts the node")
	}
}

func addressOf(n *Node) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.self.Calls
}

// What a node has said counts once, and what no node has said does not count.
func TestPresenceIsRefused(t *testing.T) {
	t.Parallel()
	shared := store.NewMemory(nil)
	heard := make(chan []byte, 64)
	stop, err := shared.Subscribe(t.Context(), topic, func(m store.Message) {
		select {
		case heard <- append([]byte(nil), m.Data...):
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	a, b := joined(t, shared, "a"), joined(t, shared, "b")
	id := b.ID()
	knows(t, a, id, func(Member) bool { return true })
	var said []byte
	for !strings.Contains(string(said), id) {
		said = <-heard
	}
	b.Close()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for strings.Contains(names(a), "b") {
		<-tick.C
	}
	forged := append([]byte(nil), said...)
	forged[len(forged)-3]++
	for what, data := range map[string][]byte{
		"replayed": said, "forged": forged, "unsigned": said[32:],
	} {
		a.receive(store.Message{Data: data})
		for _, m := range a.Status().Members {
			if m.ID == id {
				t.Error("a node is present by a message that was", what)
			}
		}
	}
	// One of a node that was never heard is refused for its age.
	old := &Node{self: Member{ID: "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}}
	old.self.Seq = time.Now().Add(-replayTime - time.Second).UnixNano()
	if a.mu.Lock(); a.newerLocked(&old.self) {
		t.Error("an old message counts")
	}
	a.mu.Unlock()
	stop()
	a.Close()
	if err := shared.Close(); err != nil {
		t.Error(err)
	}
}
