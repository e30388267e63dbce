package gateway

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/observe"
)

// latencyBounds are those of a histogram of calls.
var latencyBounds = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond,
	20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second,
	30 * time.Second,
}

// maxUsed bounds the tools, the principals and the kinds of errors that are counted of an upstream.
// Those that come later count as otherUsed. maxUsedName bounds their names, in bytes.
const (
	maxUsed     = 1000
	maxUsedName = 300
	otherUsed   = "(others)"
)

// A usage counts the calls of clients for each upstream. The zero value is ready.
type usage struct {
	mu sync.Mutex
	of map[string]*upstreamUsage // by upstream
}

type upstreamUsage struct {
	latency           [len(latencyBounds) + 1]int64
	errors            map[string]int64 // by kind
	tools, principals map[string]*used
}

// used is the usage of one tool, or by one principal.
type used struct {
	calls, errors int64
	took          time.Duration
}

// failureOf is the kind of the failure of a call; "": it has not failed.
func failureOf(c *observe.Call) string {
	switch {
	case c.Decision == "denied" || c.Decision == "limited":
		return c.Decision
	case c.ToolError:
		return "tool error"
	case c.Code == 0:
		return ""
	case c.Code == jsonrpc.Cancelled:
		return "cancelled"
	}
	return strconv.Itoa(int(c.Code))
}

// add counts a call of a client that has ended.
func (u *usage) add(c *observe.Call) {
	if c.Upstream == "" {
		return // the gateway itself has answered
	}
	failure := failureOf(c)
	u.mu.Lock()
	defer u.mu.Unlock()
	at := u.of[c.Upstream]
	if at == nil {
		if u.of == nil {
			u.of = map[string]*upstreamUsage{}
		}
		at = &upstreamUsage{
			errors: map[string]int64{}, tools: map[string]*used{}, principals: map[string]*used{},
		}
		u.of[strings.Clone(c.Upstream)] = at
	}
	i, _ := slices.BinarySearch(latencyBounds[:], c.Took)
	at.latency[i]++
	if failure != "" { // a server chooses its codes
		at.errors[usedName(at.errors, failure)]++
	}
	failed := failure != "" && c.Code != jsonrpc.Cancelled
	if c.Tool != "" {
		count(at.tools, c.Tool, c, failed)
	}
	if c.Principal != "" {
		count(at.principals, c.Principal, c, failed)
	}
}

// count counts a call for a name.
func count(in map[string]*used, name string, c *observe.Call, failed bool) {
	name = usedName(in, name)
	x := in[name]
	if x == nil {
		x = &used{}
		in[strings.Clone(name)] = x // a call lends its texts
	}
	x.calls++
	x.took += c.Took
	if failed {
		x.errors++
	}
}

// usedName returns the name by which in counts: otherUsed when it has no room for one that is new.
func usedName[V any](in map[string]V, name string) string {
	if len(name) > maxUsedName {
		name = strings.ToValidUTF8(name[:maxUsedName], "") + "…"
	}
	if _, known := in[name]; !known && len(in) >= maxUsed {
		return otherUsed
	}
	return name
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// Usage implements control.Backend: it has the principals for a caller with the permission, and
// otherwise that of the name of the caller alone.
func (o operator) Usage(ctx context.Context, name string) (*control.Usage, error) {
	if _, err := o.g.plan.Load().configured(name); err != nil {
		return nil, err
	}
	mine := guard.From(ctx).Name()
	v := &control.Usage{
		Upstream: name, Since: o.g.begun, Latency: []control.Bucket{}, Errors: []control.Kind{},
		All: o.g.shield == nil ||
			o.g.shield.Visible(ctx, &guard.Call{Method: methodAdmin, Name: "calls"}),
	}
	u := &o.g.edge.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	at := cmp.Or(u.of[name], &upstreamUsage{})
	for i, n := range at.latency {
		b := control.Bucket{Calls: n}
		if i < len(latencyBounds) {
			b.Most = milliseconds(latencyBounds[i])
		}
		v.Latency = append(v.Latency, b)
	}
	for _, kind := range slices.Sorted(maps.Keys(at.errors)) {
		v.Errors = append(v.Errors, control.Kind{Kind: kind, Calls: at.errors[kind]})
	}
	v.Tools = most(at.tools, func(string) bool { return true })
	v.Principals = most(at.principals, func(name string) bool {
		return v.All || mine != "" && name == mine
	})
	return v, nil
}

// most lists those that sees reports true for, with the most calls first.
func most(in map[string]*used, sees func(name string) bool) []control.Used {
	all := []control.Used{}
	for name, x := range in {
		if sees(name) {
			all = append(all, control.Used{
				Name: name, Calls: x.calls, Errors: x.errors,
				Mean: milliseconds(x.took / time.Duration(x.calls)),
			})
		}
	}
	slices.SortFunc(all, func(a, b control.Used) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Tools implements control.Backend.
func (o operator) Tools(_ context.Context, name string) (*control.Tools, error) {
	p := o.g.plan.Load()
	if _, err := p.configured(name); err != nil {
		return nil, err
	}
	all := new(control.Tools)
	if s := p.byName[name]; s != nil {
		all.Tools = s.tools(p)
	}
	return all, nil
}
