package mcp

import (
	"bytes"

	"github.com/farcall-dev/farcall/internal/permit"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A Tolerance says what becomes of arguments that do not fit the input schema of
// their tool.
type Tolerance int

const (
	// Lenient also takes what models write: a number or a boolean in quotation marks,
	// where the schema has no text, and members that the schema does not have, which
	// are dropped. The log says so once for each tool and kind. A guard with policies that look at
	// arguments decides about those that the tool gets as well as about those that came.
	Lenient Tolerance = iota
	// Strict refuses them.
	Strict
)

// arguments returns the arguments of a call as they fit the input schema, or the
// reason why they do not.
func (t *tool) arguments(c *call) (jsonrpc.Raw, error) {
	given := object.OrEmpty(c.in.arguments)
	err := t.input.Validate(given)
	if err == nil || c.strict() {
		return given, err
	}
	relaxed, changed := arguments.Relax(t.spec.InputSchema, given)
	if changed == 0 || t.input.Validate(relaxed) != nil {
		return nil, err
	}
	if before := t.relaxed.Or(changed); before&changed != changed {
		c.srv.logger().WarnContext(c, "mcp: arguments do not fit the tool's input schema and were taken all the same; ServerOptions.Arguments: Strict refuses them",
			"tool", t.spec.Name, "reason", err.Error())
	}
	return relaxed, nil
}

// permitted asks the guard in front, if any, about arguments that it has not seen: a policy that
// forbids true must not be passed by "true".
func (t *tool) permitted(c *call, given, relaxed jsonrpc.Raw) error {
	if bytes.Equal(given, relaxed) {
		return nil
	}
	permitted := permit.From(c)
	if permitted == nil {
		return nil
	}
	params := jsonrpc.AppendString([]byte(`{"_meta":{"`+spec.MetaProtocolVersion+`":"`+era.Latest().Name+`"},"name":`), c.shownName(t))
	params = append(append(params, `,"arguments":`...), relaxed...)
	return permitted(c, spec.MethodToolsCall, append(params, '}'))
}
