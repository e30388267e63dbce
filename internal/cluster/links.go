package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/internal/forwarded"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/slow"
)

const (
	dialTime = 2 * time.Second // of a connection, and of its handshake
	linkIdle = 2 * time.Minute
	maxIdle  = 256 // connections to a node that are kept
	headTime = 10 * time.Second
	maxHead  = 256 << 10
	copySize = 32 << 10
	secure   = "https"
)

// The headers between nodes. Only the listener for nodes reads them, and what a client sends of
// them is not forwarded.
const (
	headerClient = "Farcall-Client" // the client's address
	headerTLS    = "Farcall-Tls"    // yes: the client's connection has TLS
	headerLeaf   = "Farcall-Leaf"   // the client's certificate
	headerChain  = "Farcall-Chain"  // from it to an authority, as the other node has verified
	headerProxy  = "Farcall-Proxy"  // what a listed proxy has named: scheme/host
	headerMoved  = "Farcall-Moved"  // of an answer: the node ends, and has executed nothing
)

var errNotReached = errors.New("cluster: the other node was not reached")

// links is the part of a Node that carries requests to and from other nodes.
type links struct {
	server *http.Server // nil: this node neither takes nor forwards requests
	client *http.Transport
	served sync.WaitGroup
}

type forwardedKey struct{}

// Forwarded reports whether a request has come from another node, which has authenticated its
// client.
func Forwarded(ctx context.Context) bool { return ctx.Value(forwardedKey{}) != nil }

// Listen lets the other nodes reach this one at an address, HOST:PORT, where h answers what they
// forward: [Forwarded] is true, and RemoteAddr and TLS are those of the client. Only nodes with the
// secret of the store, and with the same key, connect. A port of 0 is one that is free. It is
// called at most once, and before Forward.
func (n *Node) Listen(address string, key []byte, h http.Handler) error {
	mutual, err := Mutual(append(n.Secret("calls between nodes"), key...))
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	//nolint:forbidigo // it ends when it listens
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return fmt.Errorf("cluster: calls: %w", err)
	}
	// A connection for each request: that takes half of the time of HTTP/2, and a client that does not
	// read holds up no other.
	var only http.Protocols
	only.SetHTTP1(true)
	alive := net.KeepAliveConfig{Enable: true, Idle: absent / 2, Interval: absent / 8, Count: 4}
	n.links.client = &http.Transport{
		DialContext:     (&net.Dialer{Timeout: dialTime, KeepAliveConfig: alive}).DialContext,
		TLSClientConfig: mutual, TLSHandshakeTimeout: dialTime, IdleConnTimeout: linkIdle,
		MaxIdleConnsPerHost: maxIdle, DisableCompression: true, Protocols: &only,
		ReadBufferSize: copySize, WriteBufferSize: copySize,
	}
	n.links.server = &http.Server{
		Handler: received(h), TLSConfig: mutual.Clone(), Protocols: &only,
		ReadHeaderTimeout: headTime, IdleTimeout: 2 * linkIdle, MaxHeaderBytes: maxHead,
		ErrorLog: slog.NewLogLogger(n.logger.Handler(), slog.LevelDebug),
	}
	n.links.served.Go(func() { _ = n.links.server.ServeTLS(l, "", "") }) // until it is closed
	n.mu.Lock()
	n.self.Calls = l.Addr().String()
	n.mu.Unlock()
	//nolint:forbidigo // it ends within probeTime
	n.publish(context.Background())
	return nil
}

// closeLinks ends the listener and all that is forwarded.
func (n *Node) closeLinks() {
	if n.links.server != nil {
		//nolint:forbidigo // it ends within probeTime
		ctx, cancel := context.WithTimeout(context.Background(), probeTime)
		defer cancel()
		_ = n.links.server.Shutdown(ctx) // answers are on their way
		_ = n.links.server.Close()
		n.links.client.CloseIdleConnections()
		n.links.served.Wait()
	}
}

// received gives h requests as their clients have sent them to the other node.
func received(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, state, err := clientOf(r.Header)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		ctx := context.WithValue(r.Context(), forwardedKey{}, true)
		if scheme, host, ok := strings.Cut(r.Header.Get(headerProxy), "/"); ok {
			ctx = forwarded.With(ctx, &forwarded.Request{Host: host, Secure: scheme == secure})
		}
		r.RemoteAddr, r.TLS = client, state
		keepUpgrade(r, r.Header)
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// clientOf returns the address of the client of the other node, and its connection if that has TLS.
func clientOf(h http.Header) (address string, state *tls.ConnectionState, err error) {
	if address = h.Get(headerClient); address == "" {
		return "", nil, errors.New("cluster: a request of a node says no client")
	}
	if h.Get(headerTLS) == "" {
		return address, nil, nil
	}
	state = &tls.ConnectionState{HandshakeComplete: true}
	if leaf := h.Get(headerLeaf); leaf != "" {
		state.PeerCertificates, err = decoded(leaf)
	}
	for _, text := range h[headerChain] {
		chain, bad := decoded(text)
		state.VerifiedChains, err = append(state.VerifiedChains, chain), cmp.Or(err, bad)
	}
	return address, state, err
}

// describe adds the headers about the client of a request.
func describe(h http.Header, r *http.Request) {
	h.Set(headerClient, cmp.Or(r.RemoteAddr, "unknown"))
	if of := forwarded.Of(r.Context()); of != nil {
		h.Set(headerProxy, map[bool]string{true: secure, false: "http"}[of.Secure]+"/"+of.Host)
	}
	if r.TLS == nil {
		return
	}
	h.Set(headerTLS, "yes")
	if len(r.TLS.PeerCertificates) > 0 {
		h.Set(headerLeaf, encoded(r.TLS.PeerCertificates[:1]))
	}
	for _, chain := range r.TLS.VerifiedChains {
		h.Add(headerChain, encoded(chain))
	}
}

func encoded(chain []*x509.Certificate) string {
	var der []byte
	for _, one := range chain {
		der = append(der, one.Raw...)
	}
	return base64.StdEncoding.EncodeToString(der)
}

func decoded(text string) ([]*x509.Certificate, error) {
	der, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificates(der)
}

// Moved answers a request that this node, which ends, has not executed: another node is to take it.
func Moved(w http.ResponseWriter) {
	w.Header().Set(headerMoved, "yes")
	w.WriteHeader(http.StatusMisdirectedRequest)
}

func dropHeaders(h http.Header) {
	onhttp.DropOwn(h)
	for _, name := range []string{
		headerClient, headerTLS, headerLeaf, headerChain, headerProxy, headerMoved,
	} {
		h.Del(name)
	}
}

// keepUpgrade drops the headers h of r, but for those with which a WebSocket begins.
func keepUpgrade(r *http.Request, h http.Header) {
	begins := r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
	dropHeaders(h)
	if begins {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
}

// lent is the body of a request. Its memory is the caller's again after end.
type lent struct {
	mu  *sync.Mutex
	src *bytes.Reader
	end *bool
}

func (b lent) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *b.end {
		return 0, io.ErrClosedPipe
	}
	return b.src.Read(p)
}

// Forward has a node answer a request with a body that was read already, and writes its answer to
// w as it comes; a WebSocket is carried until it ends. It ends when the client leaves, which ends
// the request there, and when the node cannot be reached any more. begun says whether something was
// written, and sent whether that node may have executed something.
func (n *Node) Forward(
	w http.ResponseWriter, r *http.Request, id string, body []byte,
) (begun, sent bool, err error) {
	n.mu.Lock()
	to := n.others[id]
	n.mu.Unlock()
	if to.Calls == "" || time.Now().Before(to.suspect) {
		return false, false, errNotReached
	}
	to.carried.Add(1)
	defer to.carried.Add(-1)
	var mu sync.Mutex
	ended, reached := false, false
	defer func() {
		mu.Lock()
		ended = true
		mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(to.life, cancel)()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { mu.Lock(); reached = true; mu.Unlock() },
	})
	at := "https://" + to.Calls + r.URL.RequestURI()               // the address is that of a node
	out, err := http.NewRequestWithContext(ctx, r.Method, at, nil) //nolint:gosec // see above
	if err != nil {
		return false, false, err
	}
	if len(body) > 0 {
		out.ContentLength = int64(len(body))
		out.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(lent{&mu, bytes.NewReader(body), &ended}), nil
		}
		out.Body, _ = out.GetBody()
	}
	out.Host, out.Header = r.Host, r.Header.Clone()
	keepUpgrade(r, out.Header)
	describe(out.Header, r)
	resp, err := n.links.client.RoundTrip(out)
	if err != nil {
		mu.Lock()
		sent = reached
		mu.Unlock()
		n.logger.Debug("a request was not forwarded", "sent", sent, "error", err)
		if !sent && r.Context().Err() == nil { // what ends later may be about the request alone
			n.mark(id, func(m *Member) { m.suspect = time.Now().Add(pulse) })
		}
		return false, sent, err
	}
	defer resp.Body.Close()
	if resp.Header.Get(headerMoved) != "" {
		n.mark(id, func(m *Member) { m.Drains = true })
		return false, false, errNotReached
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return true, true, carried(ctx, w, resp)
	}
	return true, true, relayed(w, resp)
}

// carried carries the bytes of a WebSocket that the other node has accepted, until one end closes
// it.
func carried(ctx context.Context, w http.ResponseWriter, resp *http.Response) error {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return err
	}
	there, _ := resp.Body.(io.ReadWriteCloser) // as net/http says of this status
	end := func() { conn.Close(); there.Close() }
	defer context.AfterFunc(ctx, end)()
	resp.Body = nil
	err = errors.Join(resp.Write(buffered), buffered.Flush())
	var up sync.WaitGroup
	up.Go(func() { _, _ = io.Copy(there, buffered); end() })
	if err == nil {
		_, _ = io.Copy(conn, there)
	}
	end()
	up.Wait()
	return nil
}

// answers reports whether the listener at an address does: whether with an error is the same.
func (n *Node) answers(ctx context.Context, at string) bool {
	n.mu.Lock()
	linked := n.self.Calls != "" // the transport is there
	n.mu.Unlock()
	if at == "" || !linked {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at+"/", nil)
	if err != nil {
		return false
	}
	resp, err := n.links.client.RoundTrip(r)
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
}

func (n *Node) mark(id string, change func(*Member)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if m, ok := n.others[id]; ok {
		change(&m)
		n.others[id] = m
	}
}

// relayed writes an answer as it comes.
func relayed(w http.ResponseWriter, resp *http.Response) error {
	dropped := resp.Header
	length := dropped["Content-Length"]
	dropHeaders(dropped)
	maps.Copy(w.Header(), dropped)
	if length != nil {
		w.Header()["Content-Length"] = length
	}
	w.WriteHeader(resp.StatusCode)
	ctl := http.NewResponseController(w)
	buf := make([]byte, copySize)
	for {
		m, err := resp.Body.Read(buf)
		if m > 0 {
			_ = ctl.SetWriteDeadline(time.Now().Add(slow.AnswerTime)) // not supported: there is none
			if _, failed := w.Write(buf[:m]); failed != nil {
				return nil //nolint:nilerr // the client has gone
			}
			if length == nil {
				_ = ctl.Flush() // an error is that of the next Write
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m == 0:
			return io.ErrNoProgress
		}
	}
}

// ID returns the name of this node in what it gives to clients. Like that of each node, it has
// [IDSize] letters and digits.
func (n *Node) ID() string { return n.self.ID }

// Links reports whether requests can be forwarded.
func (n *Node) Links() bool { return n.links.server != nil }

// Place returns the node that answers for what has begun at home: home, while it is present. With a
// key others can go on with it: when home is absent, or takes nothing new, the owner of the key
// answers. Without a key it is "" then: this node, which knows as little of it as any other.
func (n *Node) Place(home, key string) string {
	n.mu.Lock()
	m, present := n.others[home]
	if home == n.self.ID {
		m, present = n.self, true
	}
	takes := present && !m.Drains && !time.Now().Before(m.suspect)
	n.mu.Unlock()
	switch {
	case takes, present && key == "":
		return home
	case key == "":
		return ""
	}
	return n.Owner(key)
}

// Owner returns the node that has a key, by rendezvous hashing: when a node comes or goes, only the
// keys of that one move.
func (n *Node) Owner(key string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	best, most := n.self.ID, uint64(0)
	if !n.self.Drains {
		most = weight(n.self.ID, key)
	}
	now := time.Now()
	for id, m := range n.others {
		if m.Calls == "" || m.Drains || now.Before(m.suspect) {
			continue
		}
		if w := weight(id, key); w > most {
			best, most = id, w
		}
	}
	return best
}

func weight(id, key string) uint64 {
	sum := sha256.Sum256([]byte(id + key))
	return binary.BigEndian.Uint64(sum[:])
}

// Drain tells the other nodes that this one takes nothing new.
func (n *Node) Drain() {
	n.mu.Lock()
	n.self.Drains = true
	n.mu.Unlock()
	//nolint:forbidigo // it ends within probeTime
	n.publish(context.Background())
}

// sign puts a code before what a node says of itself: only nodes can make it.
func (n *Node) sign(said []byte) []byte {
	mac := hmac.New(sha256.New, n.presence)
	mac.Write(said)
	return append(mac.Sum(nil), said...)
}

// signed returns what a node with our secret has said. It reports false for anything else.
func (n *Node) signed(data []byte) (said []byte, ok bool) {
	if len(data) < sha256.Size {
		return nil, false
	}
	said = data[sha256.Size:]
	return said, hmac.Equal(data, n.sign(slices.Clone(said)))
}

// newerLocked reports whether a message is later than all others of its node, and notes that. One
// that is older than replayTime may be of a node that this one never heard.
func (n *Node) newerLocked(m *Member) bool {
	now := time.Now()
	if m.Seq <= n.heard[m.ID] || now.Sub(time.Unix(0, m.Seq)).Abs() > replayTime {
		return false
	}
	for id, last := range n.heard {
		if now.Sub(time.Unix(0, last)) > 2*replayTime {
			delete(n.heard, id)
		}
	}
	if _, known := n.heard[m.ID]; !known && len(n.heard) >= 2*maxNodes {
		return false
	}
	n.heard[m.ID] = m.Seq
	return true
}
