package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// pinnedLists are the lists that are pinned, after what a server says about itself.
var pinnedLists = []string{pin.Tools, pin.Prompts, pin.Resources, pin.Templates}

// Pin compares what all servers say about themselves, and their tools, prompts, resources and
// templates, with those of the file at path, which is a farcall.lock, and returns what has changed,
// to be read by a person: "" when nothing has. With accept it writes the file, also when there was
// none, or one of version 1. Then what servers have that are not in the configuration stays pinned,
// unless that was loaded from a file: they have been taken out of it. count is the number of
// definitions. It fails when a server cannot be asked. Upstreams to which each principal signs in
// are left out.
func (g *Gateway) Pin(ctx context.Context, path string, accept bool) (changes string, count int, err error) {
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
				write(&text, lock.Check(s.cfg.Name, list, all[list]))
			}
			if err := lock.Accept(s.cfg.Name, list, all[list]); err != nil {
				return "", 0, fmt.Errorf("%s cannot be pinned: %w", s.cfg.Name, err)
			}
		}
	}
	config := g.plan.Load().config
	for _, name := range lock.Sources() {
		if len(config.Files()) > 0 && !slices.ContainsFunc(config.Upstreams, func(u *Upstream) bool { return u.Name == name }) {
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
	all := map[string][]jsonrpc.Raw{pin.Server: pin.ServerItems(info.Name, info.Title, info.Version, info.Instructions)}
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
	return upstream.Caller{Capabilities: jsonrpc.Raw(`{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}`)}
}

func write(w *strings.Builder, changes []pin.Change) {
	for _, c := range changes {
		fmt.Fprintf(w, "%s %s %s: %s\n", jsonrpc.AppendString(nil, c.Source), c.What(), jsonrpc.AppendString(nil, c.Name), c.Kind)
		for line := range strings.Lines(c.Diff) {
			w.WriteString("  " + line)
		}
		if !strings.HasSuffix(c.Diff, "\n") {
			w.WriteByte('\n')
		}
	}
}
