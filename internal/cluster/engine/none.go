//go:build nocluster

package engine

import (
	"context"
	"errors"

	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/store"
)

// Available reports whether this program has engines.
const Available = false

// Open fails: this program was built without engines.
func Open(context.Context, *cluster.Config, *Options) (store.Store, error) {
	return nil, errors.New("cluster: this program was built with the tag nocluster, and has no engine")
}
