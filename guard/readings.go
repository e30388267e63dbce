package guard

import "github.com/farcall-dev/farcall/observe"

// Readings yields what the guard measures when it is asked: the nonces that it remembers, unless
// Options.Nonces does, and what waits to be written to the audit. It is an iter.Seq; see
// Metrics.Read of package observe/metrics.
func (g *Guard) Readings(yield func(observe.Reading) bool) {
	if m, ok := g.nonces.(interface{ Len() int }); ok {
		if !yield(observe.Reading{Name: "farcall_nonces", Value: float64(m.Len())}) {
			return
		}
	}
	if log := g.state.Load().log; log != nil {
		yield(observe.Reading{Name: "farcall_audit_backlog_bytes", Value: float64(log.Backlog())})
	}
}
