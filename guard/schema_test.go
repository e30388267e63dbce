package guard_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// notSupported is the code for what cannot be judged, where schemas are strict.
const notSupported = jsonrpc.Code(-32040)

// TestSchemaThatCannotBeJudged: a part of a schema that cannot be judged is left to the server, and
// the rest is enforced. It is never an outage.
func TestSchemaThatCannotBeJudged(t *testing.T) {
	const ok, invalid = "anonymous anonymous by none", jsonrpc.InvalidParams
	schemas := map[string]string{
		"lookahead": `{"properties":{"name":{"type":"string","pattern":"^(?!admin)[a-z]+$"},` +
			`"n":{"type":"integer"}}}`,
		"lookbehind": `{"properties":{"name":{"type":"string","pattern":"(?<=a)b"},` +
			`"n":{"type":"integer"}}}`,
		"back reference": `{"properties":{"name":{"type":"string","pattern":"(a)\\1"},` +
			`"n":{"type":"integer"}}}`,
		"any character": `{"properties":{"name":{"type":"string","pattern":"^[^]*$"},` +
			`"n":{"type":"integer"}}}`,
		"repeat": `{"properties":{"name":{"type":"string","pattern":"a{1001}"},` +
			`"n":{"type":"integer"}}}`,
		"remote": `{"properties":{"name":{"type":"string","$ref":"https://json-schema.org/x"},` +
			`"n":{"type":"integer"}}}`,
		"mistake": `{"properties":{"name":{"type":"string","required":true},` +
			`"n":{"type":"integer"}}}`,
	}
	var log bytes.Buffer
	c := &guard.Config{Anonymous: true}
	s := newSite(t, c, &guard.Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Schema: func(_ context.Context, _, tool string) jsonrpc.Raw { return jsonrpc.Raw(schemas[tool]) },
	})
	call := func(tool, arguments string) *reply {
		return s.call("tools/call", `{"name":"`+tool+`","arguments":`+arguments+`}`)
	}
	for tool := range schemas {
		call(tool, `{"name":"ada"}`).wants(t, ok)
		call(tool, `{"name":"ada","n":1}`).wants(t, ok)
		call(tool, `{"name":"ada","n":"1"}`).wants(t, invalid)
		call(tool, `{"name":1}`).wants(t, invalid)
		if n := strings.Count(log.String(), `"tools/call `+tool+`"`); n != 1 {
			t.Errorf("%s: said %d times: %s", tool, n, log.String())
		}
		x := s.Explain(&guard.Principal{ID: "ada"}, nil, &guard.Call{
			Method: "tools/call", Name: tool, Schema: jsonrpc.Raw(schemas[tool]),
			Arguments: jsonrpc.Raw(`{"name":"ada"}`),
		})
		if !x.Allowed || len(x.Unjudged) != 1 || !strings.HasPrefix(x.Unjudged[0], "/properties/name/") {
			t.Errorf("%s: %+v", tool, x)
		}
	}
	c.Params.Schemas = "strict"
	if err := s.Reload(c); err != nil {
		t.Fatal(err)
	}
	for tool := range schemas {
		a := call(tool, `{"name":"ada"}`)
		if a.wants(t, notSupported); !strings.Contains(a.body, "Schema not supported") ||
			a.data["retryable"] != nil {
			t.Errorf("%s: %s", tool, a.body)
		}
		call(tool, `{"n":"1"}`).wants(t, invalid)
		if tool != "mistake" { // what is wrong there may be about any value
			call(tool, `{"n":1}`).wants(t, ok) // all that is about it was judged
		}
		x := s.Explain(&guard.Principal{ID: "ada"}, nil, &guard.Call{
			Method: "tools/call", Name: tool, Schema: jsonrpc.Raw(schemas[tool]),
			Arguments: jsonrpc.Raw(`{"name":"ada"}`),
		})
		if x.Allowed || !strings.Contains(x.Reason, "Schema not supported: ") ||
			!strings.Contains(x.Reason, "/properties/name/") {
			t.Errorf("%s: %+v", tool, x)
		}
	}
	if found := jsonrpc.Lookup(notSupported); len(found) == 0 ||
		found[0].Name != "Schema not supported" || found[0].Retryable {
		t.Errorf("%+v", found)
	}
}
