package cluster

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall/internal/full"
	"github.com/farcall-dev/farcall/store"
)

// counted counts what nodes ask of a store.
type counted struct {
	store.Store
	published, bytes, received, probes atomic.Int64
}

func (c *counted) Publish(ctx context.Context, topic string, data []byte) error {
	c.published.Add(1)
	c.bytes.Add(int64(len(data)))
	return c.Store.Publish(ctx, topic, data)
}

func (c *counted) Since(ctx context.Context) (time.Time, error) {
	c.probes.Add(1)
	return c.Store.Since(ctx)
}

func (c *counted) Subscribe(
	ctx context.Context, topic string, receive func(store.Message),
) (func(), error) {
	return c.Store.Subscribe(ctx, topic, func(m store.Message) {
		c.received.Add(1)
		receive(m)
	})
}

// TestModel has as many nodes as the model of docs/cluster.md. It measures what they tell each
// other, and where sessions go: evenly, and of a node that leaves only its own move.
func TestModel(t *testing.T) {
	nodes, keys := 20, 10_000
	if full.Wanted() {
		nodes, keys = 100, 1_000_000
	}
	synctest.Test(t, func(t *testing.T) {
		shared := &counted{Store: store.NewMemory(nil)}
		var all []*Node
		for i := range nodes {
			n := joined(t, shared, strconv.Itoa(i))
			n.mu.Lock()
			n.self.Calls = fmt.Sprintf("10.0.0.%d:6223", i)
			n.mu.Unlock()
			all = append(all, n)
		}
		<-time.After(2*pulse + 1)
		synctest.Wait()
		published, bytes := shared.published.Load(), shared.bytes.Load()
		received, probes := shared.received.Load(), shared.probes.Load()
		const pulses = 30
		<-time.After(pulses * pulse)
		synctest.Wait()
		published, bytes = shared.published.Load()-published, shared.bytes.Load()-bytes
		received, probes = shared.received.Load()-received, shared.probes.Load()-probes
		if want := int64(nodes * pulses); published != want || probes != want ||
			received != want*int64(nodes) {
			t.Errorf("%d messages, %d deliveries and %d probes of %d nodes in %d pulses",
				published, received, probes, nodes, pulses)
		}
		seconds := int64(pulses * pulse / time.Second)
		t.Logf("%d nodes: each publishes %.1f and receives %d messages in a second, of %d bytes",
			nodes, float64(published)/float64(seconds)/float64(nodes),
			received/int64(nodes)/seconds, bytes/published)

		asked, left := all[0], all[1]
		owners := make([]string, keys)
		count := map[string]int{}
		for i := range owners {
			owners[i] = asked.Owner(strconv.Itoa(i))
			count[owners[i]]++
		}
		left.Close()
		synctest.Wait()
		moved := 0
		for i, was := range owners {
			if was != left.ID() && i%10 > 0 {
				continue
			}
			now := asked.Owner(strconv.Itoa(i))
			if now != was && was != left.ID() {
				t.Fatalf("key %d moved from %s to %s, and %s has left", i, was, now, left.ID())
			}
			if now != was {
				moved++
			}
		}
		most := 0
		for _, n := range count {
			most = max(most, n)
		}
		if mean := keys / nodes; len(count) != nodes || most > mean*5/4 || moved != count[left.ID()] {
			t.Errorf("%d nodes have keys, one %d with a mean of %d; %d moved",
				len(count), most, mean, moved)
		}
		t.Logf("%d sessions at %d nodes: %d at the fullest, %d moved with one node",
			keys, nodes, most, moved)
		for _, n := range all {
			if n != left {
				n.Close()
			}
		}
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
}
