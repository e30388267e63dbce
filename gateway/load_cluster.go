package gateway

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/cluster"
)

// clusterConfig is the type of Config.Cluster.
type clusterConfig = cluster.Config

// cluster reads over which engine nodes share state: a URL, or a map with it.
func (r *reader) cluster(c *Config, n *node, path string) {
	s := &c.Cluster
	if n.kind == scalarNode {
		r.text(&s.URL)(n, path)
	} else {
		r.fields(n, path, map[string]take{
			"url": r.text(&s.URL), "listen": r.text(&s.Listen), "peers": r.oneOrMore(&s.Peers),
			"dir": r.directory(&s.Dir), "node": r.text(&s.Node), "calls": r.text(&s.Calls),
			"replicas": r.count(&s.Replicas),
			"skew":     r.duration(&s.Skew),
			"key":      func(n *node, path string) { r.hidden(&s.Key, n, path) },
		})
	}
	if s.Kind() == cluster.KindEmbedded && s.Dir == "" {
		s.Dir = r.beside("cluster")
	}
}

// cluster checks over which engine nodes share state.
func (c *checker) cluster(conf *Config) {
	if !conf.Cluster.Set() {
		return
	}
	for _, p := range conf.Cluster.Check() {
		path := "cluster." + p.Key
		switch {
		case !p.Notice:
			c.problem(path, p.Message, p.Hint)
		case c.notice != nil:
			c.notice(path, p.Message, p.Hint)
		}
	}
	if c.notice != nil && conf.signsIn() && conf.SignIn.Dir != "" {
		c.notice("sign_in.dir",
			"with a directory the nodes do not share sign-ins: a principal signs in at each "+
				"node, and the browser has to reach the node that has made the link",
			"remove dir: the store of the cluster has them then, and principals sign in again")
	}
}

// Shared says what the nodes of a cluster share with this configuration, and what each has for
// itself. Both are empty without a cluster.
func (c *Config) Shared() (shared, own []string) {
	if !c.Cluster.Set() {
		return nil, nil
	}
	return c.shares()
}

// alike is what all nodes have alike, for the other nodes to compare: the configuration, and the
// keys that it may only refer to.
func (c *Config) alike() []byte {
	if c.digest == nil || len(c.SignIn.Keys) == 0 {
		return c.digest
	}
	sum := sha256.Sum256([]byte(strings.Join(c.SignIn.Keys, "\n")))
	return slices.Concat(c.digest, sum[:])
}

// shares is Shared where there is a store.
func (c *Config) shares() (shared, own []string) {
	shared = append(shared, "idempotency keys")
	forwards := c.Cluster.CallsAt() != ""
	if c.Guard != nil {
		shared = append(shared, "nonces of signatures", "DPoP proofs", "rates and quotas")
		own = append(own, "concurrency limits")
	}
	switch c.Sessions.mode(true) {
	case "sealed":
		shared = append(shared, "sealed sessions", "events of their streams")
	case "memory":
		if !forwards {
			own = append(own, "sessions")
		}
		own = append(own, "events of open streams")
	}
	if c.Tasks.Dir == "" {
		shared = append(shared, "tasks")
	} else {
		own = append(own, "tasks")
	}
	if forwards {
		shared = append(shared, "requests of sessions and suspended calls, forwarded to their node")
	} else {
		own = append(own, "suspended calls")
	}
	if c.Lock != "" {
		shared = append(shared, "pins")
	}
	if c.signsIn() && c.SignIn.Dir == "" {
		shared = append(shared, "sign-ins to upstreams")
	} else if c.signsIn() {
		own = append(own, "sign-ins to upstreams")
	}
	return shared, append(own, "child processes", "the configuration")
}

// nodesText says how the nodes are, for probes: no names, no addresses.
func (g *Gateway) nodesText() string {
	if g.node == nil {
		return ""
	}
	st := g.node.Status()
	text := fmt.Sprintf("cluster: %d present", len(st.Members))
	if n := g.plan.Load().config.Cluster.Nodes(); n > 0 {
		text += fmt.Sprintf(" of %d nodes", n)
	}
	if !st.Lost.IsZero() {
		text += "; the shared store does not decide since " +
			st.Lost.UTC().Format(time.RFC3339) + ": signed requests and quotas are refused"
	}
	if n := len(st.Differ); n > 0 {
		text += fmt.Sprintf("; %d with another configuration than this one", n)
	}
	shared, own := g.plan.Load().config.shares()
	if len(shared) > 0 {
		text += "\nshared: " + strings.Join(shared, ", ")
	}
	return text + "\nof this node alone: " + strings.Join(own, ", ")
}
