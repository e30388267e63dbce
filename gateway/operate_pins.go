package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/control"
	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// pinWait bounds how long an upstream that is compared with its pins may take to answer.
const pinWait = 30 * time.Second

// lock returns what is pinned, and where that is kept.
func (o operator) lock(p *plan) (where string, lock *pin.Lock, err error) {
	switch {
	case p.lock == nil:
		return "", nil, control.NewProblem(http.StatusNotFound,
			"nothing is pinned: 'farcall pin FILE' writes farcall.lock beside the configuration")
	case o.g.node != nil:
		return "the cluster", p.lock, nil
	}
	return p.config.Lock, p.lock, nil
}

// Pins implements control.Backend.
func (o operator) Pins(context.Context) (*control.Pins, error) {
	p := o.g.plan.Load()
	file, lock, err := o.lock(p)
	if err != nil {
		return nil, err
	}
	all := &control.Pins{File: file, Upstreams: []control.UpstreamPins{}}
	for _, s := range p.mcp {
		u := control.UpstreamPins{Upstream: s.cfg.Name, Changes: []control.PinChange{}}
		for _, list := range append([]string{pin.Server}, pinnedLists...) {
			u.Pinned += len(lock.Items(s.cfg.Name, list))
		}
		s.blocking.Lock()
		for _, c := range s.blocked {
			u.Changes = append(u.Changes, shownChange(&c))
		}
		s.blocking.Unlock()
		slices.SortFunc(u.Changes, func(a, b control.PinChange) int {
			return strings.Compare(a.What+" "+a.Name, b.What+" "+b.Name)
		})
		all.Upstreams = append(all.Upstreams, u)
	}
	return all, nil
}

func shownChange(c *pin.Change) control.PinChange {
	return control.PinChange{What: c.What(), Name: c.Name, Kind: c.Kind, Diff: c.Diff}
}

// PinChanges implements control.Backend.
func (o operator) PinChanges(ctx context.Context, name string) (*control.PinChanges, error) {
	changes, _, _, err := o.compare(ctx, name)
	return changes, err
}

// compare asks an upstream for all that is pinned of it, and says what differs from a lock.
func (o operator) compare(
	ctx context.Context, name string,
) (*control.PinChanges, *pin.Lock, map[string][]jsonrpc.Raw, error) {
	p := o.g.plan.Load()
	if _, err := p.configured(name); err != nil {
		return nil, nil, nil, err
	}
	file, lock, err := o.lock(p)
	if err != nil {
		return nil, nil, nil, err
	}
	s := p.byName[name]
	if s == nil || s.mcp == nil {
		return nil, nil, nil, control.NewProblem(http.StatusConflict,
			name+" is not asked: it speaks no MCP, or the configuration disables it")
	}
	ctx, cancel := context.WithTimeout(ctx, pinWait)
	defer cancel()
	all, err := s.everything(ctx)
	if err != nil {
		return nil, nil, nil, control.NewProblem(http.StatusBadGateway,
			"nothing was compared: "+err.Error())
	}
	changes := &control.PinChanges{Upstream: name, File: file, Changes: []control.PinChange{}}
	// by another operator or node since, perhaps
	lines := []string{"accepted " + lock.Of(name).Digest()}
	for _, list := range append([]string{pin.Server}, pinnedLists...) {
		changes.Pinned += len(all[list])
		_, differ := lock.Check(name, list, all[list])
		for _, c := range differ {
			changes.Changes = append(changes.Changes, shownChange(&c))
		}
		for _, item := range all[list] {
			sum, err := pin.Hash(list, item)
			if err != nil {
				sum = "invalid: " + err.Error()
			}
			lines = append(lines, list+" "+sum)
		}
	}
	slices.Sort(lines)
	digest := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	changes.Digest = hex.EncodeToString(digest[:16])
	return changes, lock, all, nil
}

// AcceptPins implements control.Backend.
func (o operator) AcceptPins(
	ctx context.Context, name string, accepted *control.AcceptPins,
) (*control.PinChanges, error) {
	changes, lock, all, err := o.compare(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case accepted.Digest != changes.Digest:
		return nil, control.NewProblem(http.StatusConflict, fmt.Sprintf(
			"the digest %.64q is not that of what %s says now and what is accepted: look at the changes, "+
				"and accept the digest that is shown with them",
			accepted.Digest, name))
	}
	switch err := o.pin(ctx, name, lock, all); {
	case errors.Is(err, pin.ErrStore):
		return nil, control.NewProblem(http.StatusServiceUnavailable,
			"it is not known to be accepted: look again: "+err.Error())
	case err != nil:
		return nil, control.NewProblem(http.StatusConflict, "nothing was accepted: "+err.Error())
	}
	return changes, nil
}

// pin accepts what an upstream says in place of what a lock has of it, and has the gateway go by
// it.
func (o operator) pin(
	ctx context.Context, name string, lock *pin.Lock, all map[string][]jsonrpc.Raw,
) error {
	g := o.g
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if g.draining.Load() {
		return errDraining()
	}
	ctx, cancel := context.WithTimeout(ctx, pinTime)
	defer cancel()
	err := g.acceptPins(ctx, g.plan.Load().config, lock, name, all)
	if err != nil && !errors.Is(err, pin.ErrOther) { // that is to be shown now
		return err
	}
	return errors.Join(err, g.repinLocked(name))
}

// pinnedLists are the lists that are pinned, after what a server says about itself.
var pinnedLists = []string{pin.Tools, pin.Prompts, pin.Resources, pin.Templates}

// Pin compares what all servers say about themselves, and their tools, prompts, resources and
// templates, with those of the file at path, which is a farcall.lock, and returns what has changed,
// to be read by a person: "" when nothing has. With accept it writes the file, also when there was
// none. Then what servers have that are not in the configuration stays pinned, unless that was
// loaded from a file: they have been taken out of it. count is the number of
// definitions. It fails when a server cannot be asked. Upstreams to which each principal signs in
// are left out.
func (g *Gateway) Pin(
	ctx context.Context, path string, accept bool,
) (changes string, count int, err error) {
	lock, err := pin.Load(path)
	if errors.Is(err, fs.ErrNotExist) && accept {
		lock, err = pin.New(), nil
	}
	if err != nil {
		return "", 0, err
	}
	had := len(lock.Sources()) > 0
	var text strings.Builder
	for _, s := range g.plan.Load().mcp {
		if s.signIn != nil {
			continue // it says nothing without a principal
		}
		all, err := s.everything(ctx)
		if err != nil {
			return "", 0, err
		}
		for _, list := range append([]string{pin.Server}, pinnedLists...) {
			count += len(all[list])
			if had {
				_, differ := lock.Check(s.cfg.Name, list, all[list])
				write(&text, differ)
			}
			if err := lock.Accept(s.cfg.Name, list, all[list]); err != nil {
				return "", 0, fmt.Errorf("%s cannot be pinned: %w", s.cfg.Name, err)
			}
		}
	}
	config := g.plan.Load().config
	for _, name := range lock.Sources() {
		if len(config.Files()) > 0 && !slices.ContainsFunc(config.Upstreams, func(u *Upstream) bool {
			return u.Name == name
		}) {
			lock.Remove(name)
		}
	}
	if accept {
		err = lock.Save(path)
	}
	return text.String(), count, err
}

// everything returns all that is pinned of a server, by list.
func (s *server) everything(ctx context.Context) (map[string][]jsonrpc.Raw, error) {
	info, err := s.mcp.Describe(ctx, anybody())
	if err != nil {
		return nil, fmt.Errorf("%s cannot be asked what it is: %w", s.cfg.Name, err)
	}
	all := map[string][]jsonrpc.Raw{
		pin.Server: pin.ServerItems(info.Name, info.Title, info.Version, info.Instructions),
	}
	for _, list := range pinnedLists {
		found, err := s.whole(ctx, anybody(), list)
		if err != nil {
			return nil, fmt.Errorf("the %s of %s cannot be listed: %w", list, s.cfg.Name, err)
		}
		all[list] = found.Items
	}
	return all, nil
}

// Pinned returns the definitions of the tools that the lock file has, by upstream, as JSON. Without
// a lock file there are none.
func (c *Config) Pinned() (map[string][]jsonrpc.Raw, error) {
	if c.Lock == "" {
		return nil, nil //nolint:nilnil // there are none
	}
	lock, err := pin.Load(c.Lock)
	if err != nil {
		return nil, fmt.Errorf("gateway: %w", err)
	}
	tools := map[string][]jsonrpc.Raw{}
	for _, u := range c.Upstreams {
		tools[u.Name] = lock.Items(u.Name, pin.Tools)
	}
	return tools, nil
}

// anybody can be asked everything: there are servers that have more tools for such
// clients.
func anybody() upstream.Caller {
	return upstream.Caller{
		Capabilities: jsonrpc.Raw(
			`{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}`),
	}
}

func write(w *strings.Builder, changes []pin.Change) {
	for _, c := range changes {
		fmt.Fprintf(w, "%s %s %s: %s\n", jsonrpc.AppendString(nil, c.Source), c.What(),
			jsonrpc.AppendString(nil, c.Name), c.Kind)
		for line := range strings.Lines(c.Diff) {
			w.WriteString("  " + line)
		}
		if !strings.HasSuffix(c.Diff, "\n") {
			w.WriteByte('\n')
		}
	}
}
