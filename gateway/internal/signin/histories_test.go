package signin

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Over random histories of three nodes that are cut off, end and start again, with calls at once,
// no refresh token is used twice, no principal has the token of another one, and who is not signed
// in can sign in.
func TestNodesHistories(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			nodes := newNodes(t)
			key := newKey()
			for _, n := range nodes {
				n.restart(t, key)
			}
			r := rand.New(rand.NewPCG(seed, 11))
			people := []Who{person("ann"), person("bob")}
			want := map[string]bool{}
			var fault atomic.Int32
			nodes[0].during = func() error {
				pass(time.Duration(seed%3) * time.Second)
				if fault.CompareAndSwap(1, 0) {
					return errors.New("the connection was cut")
				}
				return nil
			}
			for range 60 {
				who, n := people[r.IntN(2)], nodes[r.IntN(3)]
				switch r.IntN(12) {
				case 0:
					if !n.shared.cut.Load() {
						signInAt(t, who, n, n, n)
						want[who.Name] = true
					}
				case 1:
					if !n.shared.cut.Load() && n.ups["a"].SignOut(t.Context(), who) == nil {
						want[who.Name] = false
						pass(time.Second)
					}
				case 2:
					n.shared.cut.Store(true)
				case 3:
					for _, n := range nodes {
						n.shared.cut.Store(false)
					}
				case 4:
					cut := n.shared.cut.Swap(false)
					n.restart(t, key)
					n.shared.cut.Store(cut)
				case 5:
					fault.Store(1)
				case 6, 7:
					pass(time.Duration(r.IntN(7000)) * time.Second)
				default:
					var wg sync.WaitGroup
					for _, n := range nodes {
						for _, who := range people {
							wg.Go(func() {
								if n.calls(t, who) && !want[who.Name] {
									t.Errorf("%s has called without having signed in", who.Name)
								}
							})
						}
					}
					wg.Wait()
				}
				never(t, nodes)
			}
			for _, n := range nodes {
				n.shared.cut.Store(false)
			}
			pass(2 * time.Minute)
			for _, who := range people {
				signInAt(t, who, nodes[0], nodes[1], nodes[2])
				for i, n := range nodes {
					if !n.calls(t, who) {
						t.Errorf("seed %d: %s is not signed in at node %d", seed, who.Name, i)
					}
				}
			}
			never(t, nodes)
		})
	}
}
