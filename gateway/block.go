package gateway

import (
	"context"
	"maps"

	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// A blockedItem is something of a list of a server that is not as it was pinned.
type blockedItem struct{ list, name string }

// pinned returns the items of a list that are as they were pinned, and notes the others.
func (s *server) pinned(lock *pin.Lock, list string, items []jsonrpc.Raw) []jsonrpc.Raw {
	same, changes := lock.Check(s.cfg.Name, list, items)
	s.block(list, changes)
	return same
}

// block notes what of a list is not as it was pinned.
func (s *server) block(list string, changes []pin.Change) {
	s.blocking.Lock()
	defer s.blocking.Unlock()
	blocked := maps.Clone(s.blocked)
	maps.DeleteFunc(blocked, func(at blockedItem, _ pin.Change) bool { return at.list == list })
	for _, c := range changes {
		if c.Kind == pin.Removed {
			continue // or not for everybody
		}
		at := blockedItem{list, c.Name}
		if _, known := s.blocked[at]; !known {
			s.g.log.Warn("a "+c.What()+" is blocked: it is not as it was pinned; see 'farcall pin'",
				"upstream", s.cfg.Name, c.What(), c.Name, "change", c.Kind)
			s.g.pins.note(s.cfg.Name, true)
		}
		if blocked == nil {
			blocked = map[blockedItem]pin.Change{}
		}
		blocked[at] = c
	}
	s.blocked = blocked
}

// blockedAs returns the change for which something is blocked.
func (s *server) blockedAs(list, name string) (pin.Change, bool) {
	s.blocking.Lock()
	defer s.blocking.Unlock()
	c, ok := s.blocked[blockedItem{list, name}]
	return c, ok
}

// errBlocked says why something is not served, and what to do.
func (s *server) errBlocked(name string, c *pin.Change) error {
	return jsonrpc.Errorf(jsonrpc.InvalidParams,
		"The %s %s is blocked: upstream %s has %s it since it was pinned. "+
			"Look at the change on the gateway's page or with 'farcall pin', and accept it with 'farcall "+
			"pin --accept'", c.What(), name, s.cfg.Name, c.Kind)
}

// info returns what the server says about itself, without what is not as it was pinned: then it
// has no instructions, and no other name than that of the configuration.
func (s *server) info(ctx context.Context, who upstream.Caller) (*mcp.ServerInfo, error) {
	if info, err := s.unsigned(ctx); info != nil || err != nil {
		return info, err
	}
	info, err := s.mcp.Describe(ctx, who)
	if callersFault(err) { // the caller can begin all the same
		return s.undescribed(), nil
	}
	if err != nil {
		return nil, err
	}
	lock := s.g.plan.Load().lock
	if lock == nil {
		s.block(pin.Server, nil)
		return info, nil
	}
	own := *info
	_, changes := lock.Check(s.cfg.Name, pin.Server,
		pin.ServerItems(info.Name, info.Title, info.Version, info.Instructions))
	s.block(pin.Server, changes)
	for _, c := range changes {
		if c.Name == pin.Identity {
			own.Name, own.Title, own.Version = s.cfg.Name, "", ""
		} else {
			own.Instructions = ""
		}
	}
	return &own, nil
}

// blockedResource is the error for a resource that is not there because of a pin; nil for any
// other.
func (e *endpoint) blockedResource(uri string) error {
	for _, s := range e.explained() {
		if change, ok := s.blockedAs(pin.Resources, uri); ok {
			return s.errBlocked(uri, &change)
		}
	}
	return nil
}

// blockedTarget is the error for a resource that was found otherwise than in the list, and must not
// be served because of a pin: it has changed, or nothing that is accepted has it while a template
// is blocked.
func (e *endpoint) blockedTarget(uri string, t *route.Target) error {
	s := e.g.plan.Load().byName[t.Source]
	if s == nil || t.Item != nil {
		return nil
	}
	s.blocking.Lock()
	defer s.blocking.Unlock()
	if c, ok := s.blocked[blockedItem{pin.Resources, t.Name}]; ok && c.Kind != pin.Added {
		return s.errBlocked(uri, &c)
	}
	if t.Guessed {
		for at, c := range s.blocked {
			if at.list == pin.Templates {
				return s.errBlocked(at.name, &c)
			}
		}
	}
	return nil
}

// unknown is the error for a tool or prompt that is not there, and says why when
// it is because of a pin.
func (e *endpoint) unknown(kind, word, name string) error {
	_, err := e.absent(kind, word, name)
	return err
}

// absent is unknown that tells what is blocked apart.
func (e *endpoint) absent(kind, word, name string) (blocked bool, err error) {
	for _, s := range e.explained() {
		change, ok := s.blockedAs(kind, name)
		if !ok { // by the name with the qualifier of the server
			r := s.cfg.refs()
			if own, qualified := r.StripName(name); qualified {
				change, ok = s.blockedAs(kind, own)
			}
		}
		if ok {
			return true, s.errBlocked(name, &change)
		}
	}
	return false, jsonrpc.Errorf(jsonrpc.InvalidParams, "Unknown %s: %s", word, name)
}
