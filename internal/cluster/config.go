package cluster

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Embedded is the URL of an engine in this process.
const Embedded = "embedded"

// keySize is the size of Config.Key.
const keySize = 32

// The kinds of engines.
const (
	KindEmbedded = Embedded
	KindNATS     = "nats"
	KindValkey   = "valkey"
)

// A Config says over which engine nodes share state. The zero value is none.
type Config struct {
	// URL is that of a NATS (nats://, tls://) or of a Valkey or Redis (redis://, rediss://), or
	// "embedded". Default: embedded where there is Listen.
	URL string
	// Listen is the address at which the engines of the other nodes connect, and Peers are those of
	// all nodes. Without them an embedded engine is alone.
	Listen string
	Peers  []string
	// Key is the secret of all nodes with an embedded engine: 32 bytes in base64 or hex. With it
	// their connections are authenticated and encrypted. Required unless Listen is an address of
	// this machine.
	Key string
	// Calls is the address at which this node takes requests that other nodes forward, HOST:PORT. A
	// port of 0 is a free one. Default: a free port at the host of Listen; without that none, and
	// nothing is forwarded to or from this node.
	Calls string
	// Dir is the directory of an embedded engine.
	Dir string
	// Node is what this node calls itself, by default Listen or the name of the machine.
	Node string
	// Replicas is how many engines of NATS keep each change. Default: 1 at a URL; up to 3, and no more
	// than there are nodes, where they are embedded.
	Replicas int
	// Skew is by how much the clocks of the nodes may differ, 1 minute by default.
	Skew time.Duration
}

// A Problem is an error, or with Notice something to know.
type Problem struct {
	Key, Message, Hint string
	Notice             bool
}

// Kind returns the kind of the engine: "" for none, or for one that is not known.
func (c *Config) Kind() string {
	scheme, _, _ := strings.Cut(c.URL, "://")
	switch {
	case c.URL == Embedded, c.URL == "" && c.Listen != "":
		return KindEmbedded
	case scheme == "nats", scheme == "tls":
		return KindNATS
	case scheme == "redis", scheme == "rediss":
		return KindValkey
	}
	return ""
}

// Set reports whether the configuration says anything.
func (c *Config) Set() bool {
	return c.URL != "" || c.Listen != "" || c.Calls != "" || len(c.Peers) > 0 || c.Key != "" ||
		c.Dir != "" || c.Node != "" || c.Replicas != 0 || c.Skew != 0
}

// Nodes returns how many nodes are configured; 0: that is not known.
func (c *Config) Nodes() int {
	if c.Kind() != KindEmbedded {
		return 0
	}
	return len(c.others()) + 1
}

// others returns the addresses of the other nodes.
func (c *Config) others() []string {
	all := slices.Clone(c.Peers)
	slices.Sort(all)
	all = slices.Compact(all)
	return slices.DeleteFunc(all, func(p string) bool { return p == c.Listen })
}

// Copies returns Replicas with its default.
func (c *Config) Copies() int {
	switch {
	case c.Replicas != 0:
		return c.Replicas
	case c.Kind() == KindEmbedded:
		return min(c.Nodes(), 3)
	}
	return 1
}

// Secret reads Key. Nil: there is none.
func (c *Config) Secret() ([]byte, error) {
	if c.Key == "" {
		return nil, nil
	}
	return ParseKey(strings.TrimSpace(c.Key))
}

// ParseKey reads a key of 32 bytes.
func ParseKey(text string) ([]byte, error) {
	for _, decode := range []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString,
		base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if key, err := decode(text); err == nil && len(key) == keySize {
			return key, nil
		}
	}
	return nil, fmt.Errorf("it is not %d bytes in base64 or hex", keySize)
}

// CallsAt returns Calls with its default. "": requests are not forwarded.
func (c *Config) CallsAt() string {
	if host, _, err := net.SplitHostPort(c.Listen); c.Calls == "" && err == nil && !wild(host) {
		return net.JoinHostPort(host, "0")
	}
	return c.Calls
}

// Engine describes the engine, without credentials.
func (c *Config) Engine() string {
	switch c.Kind() {
	case KindEmbedded:
		if c.Nodes() == 1 {
			return "an engine in this process alone"
		}
		return fmt.Sprintf("an engine in each of %d nodes, %d replicas", c.Nodes(), c.Copies())
	case KindNATS:
		return fmt.Sprintf("NATS at %s, %d replicas", public(c.URL), c.Copies())
	}
	return "Valkey at " + public(c.URL)
}

// public returns the hosts of a URL, or of a list of them.
func public(text string) string {
	var hosts []string
	for one := range strings.SplitSeq(text, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil || u.Host == "" {
			hosts = append(hosts, "an address that cannot be read")
			continue
		}
		hosts = append(hosts, u.Host)
	}
	return strings.Join(hosts, ", ")
}

// Check returns what is wrong with the configuration, and what to know of it.
func (c *Config) Check() (found []Problem) {
	add := func(key, message, hint string) {
		found = append(found, Problem{Key: key, Message: message, Hint: hint})
	}
	kind := c.Kind()
	if kind == "" {
		add("url", fmt.Sprintf("there is no engine %q", c.URL),
			"write nats://HOST, tls://HOST, redis://HOST, rediss://HOST, embedded, or listen and peers")
		return found
	}
	if host, _, err := net.SplitHostPort(c.Calls); c.Calls != "" && (err != nil || wild(host)) {
		add("calls", fmt.Sprintf("%q is not an address that other nodes reach", c.Calls),
			"write 10.0.0.1:6223")
	}
	if _, err := c.Secret(); err != nil {
		add("key", err.Error(), "`farcall cluster key` prints one")
	}
	if c.Skew < 0 {
		add("skew", "it is negative", "leave it out for 1 minute")
	}
	if c.Replicas < 0 || c.Replicas > 5 {
		add("replicas", "it must be 1 to 5", "write 1, 3 or 5")
	}
	if kind != KindEmbedded {
		for _, of := range []struct {
			key string
			set bool
		}{{"listen", c.Listen != ""}, {"peers", len(c.Peers) > 0}, {"dir", c.Dir != ""}} {
			if of.set {
				add(of.key, "it is for an embedded engine, and url names another one", "remove url or "+of.key)
			}
		}
		if strings.Contains(public(c.URL), "cannot be read") {
			add("url", "it has no host", "write nats://HOST:4222 or redis://HOST:6379")
		}
		if kind == KindValkey && c.Replicas != 0 {
			add("replicas", "a Valkey has its own replication", "remove replicas")
		}
	} else {
		found = append(found, c.checkEmbedded()...)
	}
	return append(found, c.notices()...)
}

func (c *Config) checkEmbedded() (found []Problem) {
	add := func(key, message, hint string) {
		found = append(found, Problem{Key: key, Message: message, Hint: hint})
	}
	if c.Listen == "" && len(c.Peers) > 0 {
		add("listen", "it is missing: the engines of the other nodes connect there", "write one of peers")
	}
	if c.Listen != "" && len(c.others()) == 0 {
		add("peers", "there is no other node", "list the listen addresses of all nodes, or remove listen")
	}
	for i, address := range append([]string{c.Listen}, c.Peers...) {
		key := "listen"
		if i > 0 {
			key = "peers[" + strconv.Itoa(i-1) + "]"
		}
		if address == "" && i == 0 {
			continue
		}
		host, port, err := net.SplitHostPort(address)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
			add(key, fmt.Sprintf("%q is not HOST:PORT", address), "write 10.0.0.1:6222")
		}
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && c.Key == "" && !local(host) {
		add("key", "it is missing, and other machines can reach "+c.Listen,
			"write key: file:cluster.key, with what `farcall cluster key` prints in the file of each node")
	}
	if c.Replicas > c.Nodes() {
		add("replicas", fmt.Sprintf("there are %d nodes only", c.Nodes()), "leave it out")
	}
	return found
}

func (c *Config) notices() (found []Problem) {
	add := func(key, message, hint string) {
		found = append(found, Problem{Key: key, Message: message, Hint: hint, Notice: true})
	}
	if c.Listen != "" && c.CallsAt() == "" {
		add("calls", "no request is forwarded to this node: listen names no address that others reach",
			"write 10.0.0.1:6223")
	}
	switch n := c.Nodes(); {
	case n == 2:
		add("peers", "two nodes have no quorum when one of them is lost: "+
			"claims, sums, records and work fail then", "use one node, three or five")
	case n > 2 && n%2 == 0:
		add("peers", fmt.Sprintf("%d nodes survive no more losses than %d", n, n-1), "use three or five")
	}
	if c.Kind() == KindNATS && c.Replicas == 0 {
		add("replicas", "what is shared is kept by one server of the NATS, and is lost with it",
			"write 3 where there are three servers; 1 ends this notice")
	}
	return found
}

// wild reports whether a host is not one that another machine can connect to.
func wild(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// local reports whether a host is this machine.
func local(host string) bool {
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
