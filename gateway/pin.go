package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// Pin compares the tools of all servers with those of the file at path, which is
// a farcall.lock, and returns what has changed, to be read by a person: "" when
// nothing has. With accept it writes the file, also when there was none. Then the
// tools of servers that are not in the configuration stay pinned, unless that was
// loaded from a file: they have been taken out of it. count is the number of tools.
// It fails when a server cannot be asked.
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
		name := s.cfg.Name
		list, err := s.whole(ctx, anybody(), route.Tools)
		if err != nil {
			return "", 0, fmt.Errorf("the tools of %s cannot be listed: %w", name, err)
		}
		count += len(list.Items)
		if had {
			write(&text, lock.Check(name, list.Items))
		}
		if err := lock.Accept(name, list.Items); err != nil {
			return "", 0, fmt.Errorf("the tools of %s cannot be pinned: %w", name, err)
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

// Pinned returns the definitions of the tools that the lock file has, by upstream, as JSON. Without a lock file there
// are none.
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
		tools[u.Name] = lock.Tools(u.Name)
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
		fmt.Fprintf(w, "%s %s: %s\n", jsonrpc.AppendString(nil, c.Source), jsonrpc.AppendString(nil, c.Tool), c.Kind)
		for line := range strings.Lines(c.Diff) {
			w.WriteString("  " + line)
		}
		if !strings.HasSuffix(c.Diff, "\n") {
			w.WriteByte('\n')
		}
	}
}
