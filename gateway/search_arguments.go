package gateway

import (
	"fmt"
	"slices"
	"sync"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// An unfitError refuses a call by the result of its tool, so that the model can correct it.
type unfitError struct{ text string }

func (e *unfitError) Error() string { return e.text }

// longestFitted bounds the arguments that are fitted to a schema. Longer ones, such as the contents
// of files, go to the tool as they are, which checks them.
const longestFitted = 256 << 10

// longestSchema bounds the input schema in such a result.
const longestSchema = 2 << 10

// fitted returns the arguments of a call by call_tool as they fit the input schema that is shown,
// or an *unfitError. Models that have seen a signature only write numbers in quotation marks. Those
// of a tool that the caller does not see stay as they are: the guard refuses most of these calls,
// at no cost of a validation, and decides the others by the arguments.
func (w *calling) fitted(target *route.Target, shown, given jsonrpc.Raw) (jsonrpc.Raw, error) {
	if w.via == callToolRead &&
		string(scan.Member(scan.Member(target.Item, "annotations"), "readOnlyHint")) != "true" {
		return given, &unfitError{"the tool is not marked read-only: call it with call_tool"}
	}
	if w.hidden || len(shown) == 0 || len(given) > longestFitted {
		return given, nil
	}
	schema := w.schemas.of(shown)
	err := schema.Validate(given)
	if err == nil {
		return given, nil
	}
	if relaxed := unquoted(shown, given); schema.Validate(relaxed) == nil {
		return relaxed, nil
	}
	reason := fmt.Sprintf("The arguments do not fit the tool: %v", err)
	if len(shown) <= longestSchema {
		reason += "\nIts input schema: " + string(shown)
	} else {
		reason += "\nSearch for its exact name with detail \"schema\"."
	}
	return given, &unfitError{reason}
}

// maxSchemas bounds the texts of the schemas that are kept compiled, in bytes.
const maxSchemas = 4 << 20

// compiled keeps the schemas of tools that call_tool has called, so that each is compiled once.
type compiled struct {
	mu   sync.Mutex
	all  map[string]*validate.Schema // by their text
	size int                         // of the texts
}

// of returns a schema that is enforced as far as it can be judged. When there is no room for
// another one, all are dropped: those in use come back with their next call.
func (c *compiled) of(text jsonrpc.Raw) *validate.Schema {
	if c == nil {
		return validate.CompileForeign(text, validate.Limits{})
	}
	c.mu.Lock()
	s := c.all[string(text)]
	c.mu.Unlock()
	if s != nil {
		return s
	}
	s = validate.CompileForeign(text, validate.Limits{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || c.size+len(text) > maxSchemas {
		c.all, c.size = map[string]*validate.Schema{}, 0
	}
	if _, there := c.all[string(text)]; !there && len(text) <= maxSchemas {
		c.all[string(text)] = s
		c.size += len(text)
	}
	return s
}

// unquoted returns arguments in which texts are the values that they hold, where the schema takes
// no text.
func unquoted(schema, given jsonrpc.Raw) jsonrpc.Raw {
	held := map[string]bool{} // the properties that are no texts
	for key, property := range scan.Members(scan.Member(schema, "properties")) {
		kind, _ := text(property, "type")
		held[string(key)] = slices.Contains([]string{"integer", "number", "boolean", "array", "object"},
			kind)
	}
	out := jsonrpc.Raw{'{'}
	for key, value := range scan.Members(given) {
		if value[0] == '"' && held[string(key)] {
			if inside := scan.Unquote(value); len(inside) > 0 {
				if _, fault := scan.Text(inside, deepestArguments); fault == scan.OK {
					value = inside
				}
			}
		}
		out = appendMember(out, string(key), value)
	}
	return append(out, '}')
}
