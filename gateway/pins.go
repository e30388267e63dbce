package gateway

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/internal/cluster"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/store"
)

const (
	pinTopic = "pins"
	pinTime  = 2 * time.Second  // in which the store answers, if it decides
	pinPause = time.Second      // between two looks at what has changed
	pinEvery = 30 * time.Second // when nothing is heard
	maxNews  = 10_000           // upstreams that have changed
)

// A pinNews has the nodes of a cluster look again at an upstream when one of them has accepted or
// blocked something of it. The zero value, of a gateway that is no node, notes nothing.
type pinNews struct {
	following sync.WaitGroup
	wake      chan struct{} // gets one when all has a new entry; nil: there are no nodes

	mu  sync.Mutex
	all map[pinNote]bool
}

// A pinNote says that the pins or lists of an upstream have changed: here, or at another node.
type pinNote struct {
	upstream string
	here     bool
}

func (n *pinNews) note(upstream string, here bool) {
	if n.wake == nil {
		return
	}
	n.mu.Lock()
	if n.all == nil {
		n.all = map[pinNote]bool{}
	}
	if len(n.all) < maxNews {
		n.all[pinNote{upstream, here}] = true
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (g *Gateway) sharedPins(c *Config) *pin.Shared {
	changed := func(upstream string) { g.pins.note(upstream, true) }
	return &pin.Shared{File: c.Lock, Records: g.opts.Shared, Changed: changed}
}

// loadPins returns the pins of a configuration. While the store of the nodes does not answer, they
// are those of the plan before.
func (g *Gateway) loadPins(c *Config, old *plan) (*pin.Lock, error) {
	if g.node == nil {
		return pin.Load(c.Lock)
	}
	var sources []string
	for _, u := range c.Upstreams {
		sources = append(sources, u.Name)
	}
	//nolint:forbidigo // it ends within pinTime
	ctx, cancel := context.WithTimeout(context.Background(), pinTime)
	defer cancel()
	l, err := g.sharedPins(c).Load(ctx, sources)
	if old != nil && old.lock != nil && errors.Is(err, pin.ErrStore) {
		g.log.Warn("the pins are those of before, and nothing can be accepted", "error", err)
		return old.lock, nil
	}
	return l, err
}

// acceptPins makes what an upstream says what is pinned, in place of what the lock has of it.
func (g *Gateway) acceptPins(
	ctx context.Context, c *Config, lock *pin.Lock, upstream string, all map[string][]jsonrpc.Raw,
) error {
	if g.node != nil {
		return g.sharedPins(c).Accept(ctx, lock, upstream, all)
	}
	lock, err := pin.Load(c.Lock) // it may have changed
	if err == nil {
		err = lock.AcceptAll(upstream, all)
	}
	if err != nil {
		return err
	}
	return lock.Save(c.Lock)
}

// followPins has this node go by what other nodes accept, and look at what they block, until the
// gateway ends.
func (g *Gateway) followPins() error {
	if g.node == nil {
		return nil
	}
	stop, err := g.opts.Shared.Subscribe(g.serving, pinTopic, func(m store.Message) {
		from, upstream := "", ""
		if len(m.Data) > cluster.IDSize {
			from, upstream = string(m.Data[:cluster.IDSize]), string(m.Data[cluster.IDSize:])
		}
		if m.Gap || from != g.node.ID() {
			g.pins.note(upstream, false) // "": any may have
		}
	})
	if err != nil {
		return err
	}
	g.pins.following.Go(func() {
		defer stop()
		for {
			select {
			case <-g.serving.Done():
				return
			case <-g.pins.wake:
			case <-time.After(pinEvery):
			}
			g.lookAtPins()
			select {
			case <-g.serving.Done():
			case <-time.After(pinPause):
			}
		}
	})
	return nil
}

// lookAtPins tells the other nodes what has changed here, and goes by what has changed there.
func (g *Gateway) lookAtPins() {
	g.pins.mu.Lock()
	all := g.pins.all
	g.pins.all = nil
	g.pins.mu.Unlock()
	for of := range all {
		if of.here {
			// they look in any case, later
			_ = g.opts.Shared.Publish(g.serving, pinTopic, []byte(g.node.ID()+of.upstream))
		}
	}
	g.reloading.Lock()
	if old := g.plan.Load(); old.lock != nil && !g.draining.Load() {
		l, err := g.loadPins(old.config, old)
		if err == nil && !l.Same(old.lock) {
			err = g.repinLocked("")
		}
		if err != nil {
			g.log.Warn("the pins are those of before", "error", err)
		}
	}
	p := g.plan.Load()
	g.reloading.Unlock()
	for of := range all {
		if s := p.byName[of.upstream]; s != nil && s.mcp != nil && !of.here {
			for _, kind := range []string{route.Tools, route.Resources, route.Prompts} {
				s.listChanged(kind)
			}
		}
	}
}

// repinLocked has the gateway go by the pins that are kept now: those of an upstream have changed,
// or of any for "". The caller holds g.reloading.
func (g *Gateway) repinLocked(upstream string) error {
	old := g.plan.Load()
	p, err := g.newPlan(old.config, old, nil)
	if err == nil {
		g.swap(old, p, upstream, func(s *server) { s.close(g.ends) })
	}
	return err
}
