package gateway

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	probes "github.com/farcall-dev/farcall/internal/health"
)

// health starts a server before it is needed, and asks it whether it is still there.
type health struct {
	end  context.CancelFunc // nil: nothing was begun
	done sync.WaitGroup
}

// checks returns how often a server is asked whether it is there. 0: never.
func (u *Upstream) checks() time.Duration {
	if u.Required {
		return cmp.Or(u.HealthCheck, 30*time.Second)
	}
	return u.HealthCheck
}

// keepUp starts the preload and the health checks of a server. It may be called
// again.
func (s *server) keepUp(ctx context.Context) {
	every := s.cfg.checks()
	if s.mcp == nil || !s.cfg.Preload && every == 0 || s.health.end != nil {
		return
	}
	ctx, s.health.end = context.WithCancel(ctx)
	s.health.done.Go(func() {
		for {
			_ = s.mcp.Check(ctx) // its failure is the status of the server
			if every == 0 {
				return
			}
			timer := time.NewTimer(every)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
		}
	})
}

func (h *health) stop() {
	if h.end != nil {
		h.end()
	}
	h.done.Wait()
}

// serves is the status of a service at the addresses of the server for JSON-RPC, as /readyz has it:
// "" is the gateway as a whole. A Watch outlives the server with which it began, so the one of the
// plan counts.
func (s *server) serves(service string) probes.Status {
	p := s.g.plan.Load()
	if service == "" {
		if p.unready() != "" {
			return probes.NotServing
		}
		return probes.Serving
	}
	now := p.byName[s.cfg.Name]
	switch {
	case service != s.cfg.Name || now == nil || now.raw == nil:
		return probes.Unknown
	case now.held != nil || now.raw.Status().State == "down":
		return probes.NotServing
	}
	return probes.Serving
}

// unready tells which of the required servers are not there, and why. "": all are.
func (p *plan) unready() string {
	var missing []string
	for _, s := range p.mcp {
		if !s.cfg.Required {
			continue
		}
		if st := s.mcp.Status(); st.State != upstream.StateUp {
			text := fmt.Sprintf("%s is required and %s since %s", s.cfg.Name, st.State, st.Since.UTC().Format(time.RFC3339))
			if st.LastError != "" && !s.g.plain() {
				text += ": " + st.LastError
			}
			missing = append(missing, text)
		}
	}
	return strings.Join(missing, "\n")
}
