package guard

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The values of Config.Params.Schemas.
const (
	schemasOff    = "off"
	schemasStrict = "strict"
)

// looks reports whether the arguments of a call are checked against a schema.
func (s *state) looks(c *Call) bool { return len(c.Schema) > 0 && s.c.Params.Schemas != schemasOff }

// fits checks arguments against their schema. What cannot be judged of the schema is left to the
// server, unless the configuration is strict about that.
func (s *state) fits(c *Call) *refusal {
	if !s.looks(c) {
		return nil
	}
	schema := s.g.schemas.get(c.Schema)
	if s.g.schemas.first(schema, c.name()) {
		effect := "it is left to the server"
		if s.c.Params.Schemas == schemasStrict {
			effect = "calls that it is about are refused, since schemas are strict"
		}
		s.g.opts.Logger.Warn("a part of a schema cannot be judged: "+effect, "call", c.name(), "parts", schema.Unjudged())
	}
	whole, err := schema.Judge(c.Arguments)
	switch {
	case errors.Is(err, validate.ErrTooComplex):
		return invalid(err, "the params cannot be checked against the schema")
	case err != nil:
		return invalid(err, "the params do not fit the schema")
	case !whole && s.c.Params.Schemas == schemasStrict:
		return refuse(jsonrpc.SchemaNotSupported, "the schema has parts that cannot be judged, and schemas are strict: "+strings.Join(schema.Unjudged(), "; "))
	}
	return nil
}

// unjudged lists what of the schema of a call cannot be judged.
func (s *state) unjudged(c *Call) []string {
	if !s.looks(c) {
		return nil
	}
	return s.g.schemas.get(c.Schema).Unjudged()
}

// schemas keeps schemas that were compiled.
type schemas struct {
	mu   sync.RWMutex
	kept map[string]*schema
}

// A schema is a compiled schema. told are the calls for which the log has its unjudged parts.
type schema struct {
	*validate.Schema
	told []string
}

const (
	maxSchemas = 10_000
	maxTold    = 100 // calls that have the same schema
)

func (s *schemas) get(raw jsonrpc.Raw) *schema {
	s.mu.RLock()
	known := s.kept[string(raw)]
	s.mu.RUnlock()
	if known != nil {
		return known
	}
	known = &schema{Schema: validate.CompileForeign(raw, validate.Limits{OptionalNulls: true})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.kept[string(raw)]; other != nil {
		return other
	}
	if s.kept == nil || len(s.kept) >= maxSchemas {
		s.kept = map[string]*schema{}
	}
	s.kept[string(raw)] = known
	return known
}

// first reports, once for each call, that parts of its schema cannot be judged.
func (s *schemas) first(known *schema, call string) bool {
	if len(known.Unjudged()) == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(known.told) >= maxTold || slices.Contains(known.told, call) {
		return false
	}
	known.told = append(known.told, call)
	return true
}
