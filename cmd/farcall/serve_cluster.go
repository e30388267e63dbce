package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/internal/cluster/engine"
	"github.com/farcall-dev/farcall/store"
)

// quorumTime is how long a node waits for a quorum when it starts.
const quorumTime = time.Minute

// withCluster gives a configuration what --cluster says.
func (f *serveFlags) withCluster(c *gateway.Config) error {
	c.Cluster.URL = cmp.Or(f.cluster, c.Cluster.URL)
	if c.Cluster.Kind() != cluster.KindEmbedded || c.Cluster.Dir != "" {
		return nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return usagef("Write cluster: {dir: PATH} into the configuration.",
			"--cluster embedded: the directory of the engine: %w", err)
	}
	c.Cluster.Dir = filepath.Join(dir, "farcall", "cluster")
	return nil
}

// openCluster opens the store that nodes share. Nil: nothing is shared.
func (f *serveFlags) openCluster(
	ctx context.Context, c *cluster.Config, log *slog.Logger, stderr io.Writer,
) (store.Store, error) {
	if !c.Set() {
		return nil, nil //nolint:nilnil // nothing is shared
	}
	for _, p := range c.Check() {
		switch {
		case !p.Notice:
			return nil, usagef(p.Hint+".", "cluster.%s: %s", p.Key, p.Message)
		case f.config == "" && f.log != logOff: // those of a file are among its notices
			fmt.Fprintf(stderr, "farcall: cluster.%s: %s; %s\n", p.Key, p.Message, p.Hint)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, quorumTime)
	defer cancel()
	shared, err := engine.Open(ctx, c, &engine.Options{
		Logger: orDiscard(log),
		Waiting: func(connected, others int) {
			fmt.Fprintf(stderr,
				"farcall: cluster: waiting for a quorum: %d of %d other nodes are connected "+
					"(the first time, all have to be)\n",
				connected, others)
		},
	})
	if err != nil {
		hint := "Is " + c.Engine() + " reachable? docs/cluster.md has more."
		return nil, failf(exitConnect, hint, "cluster: %w", err)
	}
	if f.log != logOff {
		fmt.Fprintf(stderr, "farcall: cluster: %s\n", c.Engine())
	}
	return f.measured().Store(shared), nil
}

// sharing runs a service that shares what --cluster or a configuration names. The store is closed
// when the service has ended.
func (f *serveFlags) sharing(
	ctx context.Context, c *gateway.Config, log *slog.Logger, stderr io.Writer, serve func() error,
) (err error) {
	if err := f.withCluster(c); err != nil {
		return err
	}
	shared, err := f.openCluster(ctx, &c.Cluster, log, stderr)
	if err != nil {
		return err
	}
	if shared == nil {
		return serve()
	}
	f.shared = shared
	defer func() { err = errors.Join(err, shared.Close()) }()
	return serve()
}

// joined makes a server without a gateway a node. leave tells the others when it ends.
func (f *serveFlags) joined(ctx context.Context, log *slog.Logger) (leave func(), err error) {
	if f.shared == nil {
		return func() {}, nil
	}
	host, _ := os.Hostname() // "" names none
	node, err := cluster.Join(ctx, f.shared, &cluster.Options{
		Name: cmp.Or(host, "a node"), Version: versionName(), Logger: log,
	})
	if err != nil {
		return nil, err
	}
	f.secret, f.nodes = node.Secret("nonces of DPoP"), node.Most
	return node.Close, nil
}

// clusterLimits says what nodes share with a configuration, and what they do not.
func clusterLimits(c *gateway.Config) (lines []string) {
	if !c.Cluster.Set() {
		return nil
	}
	shared, own := c.Shared()
	lines = append(lines, "the cluster is over "+c.Cluster.Engine())
	if len(shared) > 0 {
		lines = append(lines, "all nodes share: "+strings.Join(shared, ", "))
	}
	return append(lines, "each node alone has: "+strings.Join(own, ", "))
}
