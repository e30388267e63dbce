package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/tails"
	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/store"
)

var (
	errClusterFixed = errors.New(
		"gateway: cluster cannot change while the gateway runs: this needs a restart")
	errNoStore = errors.New(
		"gateway: cluster: give the store in Options.Shared, which 'farcall serve' opens")
)

// join makes the gateway a node of those with the same store.
func (g *Gateway) join(c *Config) error {
	switch {
	case g.opts.Shared == nil && c.Cluster.Set():
		return errNoStore
	case g.opts.Shared == nil:
		return nil
	}
	host, _ := os.Hostname() // "" names none
	//nolint:forbidigo // New has no context
	node, err := cluster.Join(context.Background(), g.opts.Shared, &cluster.Options{
		Name: cmp.Or(c.Cluster.Node, c.Cluster.Listen, host, "a node"), Version: g.opts.Version,
		Logger: g.log, Load: g.nodeLoad, Config: c.alike(),
	})
	if err != nil {
		return fmt.Errorf("gateway: %w", err)
	}
	g.node, g.pins.wake = node, make(chan struct{}, 1)
	g.tails = tails.New(g.opts.Shared, g.log)
	return nil
}

// secret returns a key for a purpose, the same at all nodes. Nil: this gateway is not a node.
func (g *Gateway) secret(purpose string) []byte {
	if g.node == nil {
		return nil
	}
	return g.node.Secret(purpose)
}

// sharedRecords are those of all nodes. Nil: this gateway is not a node.
func (g *Gateway) sharedRecords() store.Records {
	if g.node == nil {
		return nil
	}
	return g.opts.Shared
}

// leave tells the other nodes that this one ends.
func (g *Gateway) leave() {
	if g.node != nil {
		g.tails.Close()
		g.node.Close()
	}
}

// Cluster implements control.Backend.
func (o operator) Cluster(context.Context) *control.Cluster {
	c := o.g.plan.Load().config
	v := &control.Cluster{Nodes: []control.Node{}, Shared: []string{}, Own: []string{}}
	if o.g.node == nil {
		return v
	}
	st := o.g.node.Status()
	v.Node, v.Size, v.Lost, v.Reason = st.Node, c.Cluster.Nodes(), st.Lost, st.Reason
	v.Differ = st.Differ
	v.Engine = "a store of the program"
	if c.Cluster.Set() {
		v.Engine = c.Cluster.Engine()
	}
	for _, m := range st.Members {
		v.Nodes = append(v.Nodes, control.Node{
			Name: m.Name, Version: m.Version, Since: m.Since, Calls: m.Calls, Draining: m.Drains,
			Sessions: m.Load.Sessions, Suspended: m.Load.Suspended, Children: m.Load.Children,
		})
	}
	shared, own := c.shares()
	v.Shared, v.Own = append(v.Shared, shared...), append(v.Own, own...)
	return v
}
