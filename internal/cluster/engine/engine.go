//go:build !nocluster

package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/internal/filelock"
	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/natsstore"
	"github.com/farcall-dev/farcall/store/valkeystore"
)

// The memory of claims of an embedded engine, and what it may use in all.
const (
	claimBytes  = 192 << 20
	sumBytes    = 64 << 20
	engineBytes = 256 << 20
)

// waitingAfter is when a start that waits for other nodes says so.
const waitingAfter = 3 * time.Second

// Available reports whether this program has engines.
const Available = true

// Open opens the store of a configuration, which has no problems. It waits for a quorum until ctx
// ends.
func Open(ctx context.Context, c *cluster.Config, o *Options) (store.Store, error) {
	if o == nil {
		o = &Options{}
	}
	switch c.Kind() {
	case cluster.KindEmbedded:
		return embedded(ctx, c, o)
	case cluster.KindNATS:
		return natsstore.Open(ctx, c.URL, &natsstore.Options{
			Replicas: c.Copies(), Skew: c.Skew, Logger: o.Logger,
		})
	case cluster.KindValkey:
		return valkeystore.Open(ctx, c.URL, &valkeystore.Options{Skew: c.Skew, Logger: o.Logger})
	}
	return nil, errors.New("cluster: no engine is configured")
}

// owned is a store with its own engine.
type owned struct {
	*natsstore.Store

	server *natsstore.Server
	lock   *os.File
}

// Close closes the store, and then the engine.
func (o *owned) Close() error {
	err := o.Store.Close()
	o.server.Close()
	return errors.Join(err, filelock.Close(o.lock))
}

func embedded(ctx context.Context, c *cluster.Config, o *Options) (store.Store, error) {
	secret, err := c.Secret()
	if err != nil {
		return nil, fmt.Errorf("cluster: key: %w", err)
	}
	s := &natsstore.ServerOptions{
		MaxMemory: engineBytes, Name: nameOf(c.Listen), Listen: c.Listen, Peers: c.Peers,
		Logger: o.Logger,
	}
	if secret != nil && c.Listen != "" {
		if s.TLS, err = cluster.Mutual(secret); err != nil {
			return nil, fmt.Errorf("cluster: key: %w", err)
		}
	}
	lock, err := claim(c.Dir)
	if err != nil {
		return nil, err
	}
	server, err := natsstore.StartServer(c.Dir, s)
	if err != nil {
		return nil, errors.Join(err, filelock.Close(lock))
	}
	if o.Waiting != nil && c.Nodes() > 1 {
		timer := time.AfterFunc(waitingAfter, func() { o.Waiting(server.Peers(), c.Nodes()-1) })
		defer timer.Stop()
	}
	opened, err := natsstore.Open(ctx, "", &natsstore.Options{
		Server: server, Replicas: c.Copies(), Skew: c.Skew, MaxClaims: claimBytes, MaxSums: sumBytes,
		Logger: o.Logger,
	})
	if err != nil {
		server.Close()
		return nil, errors.Join(err, filelock.Close(lock))
	}
	return &owned{opened, server, lock}, nil
}

// claim makes the directory of an engine this process's.
func claim(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	ok, err := filelock.Try(f, true)
	if err == nil && !ok {
		err = fmt.Errorf("cluster: another process uses %s: give each node its own directory", dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// nameOf makes the name of an engine of its address, which stays the same.
func nameOf(listen string) string {
	return cmp.Or(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, listen), "farcall")
}
