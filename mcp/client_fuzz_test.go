package mcp

import (
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// What a server answers is read by these before anything is decoded.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		`{"resultType":"input_required","requestState":"s",` +
			`"inputRequests":{"k":{"method":"roots/list"}}}`,
		`{"resultType":"task","taskId":"1","status":"working","ttlMs":5}`,
		`{"task":{"taskId":"1","status":"working","ttl":null}}`,
		`{"resultType":7,"ttlMs":"x"}`, `{"properties":{"a":{"default":1},"b":{"default":[]}}}`,
		`{"_meta":{"progressToken":1}}`, `[]`, `"x"`, `{"uri":3}`,
	} {
		f.Add([]byte(seed), []byte(`{"a":"b"}`))
	}
	c, err := newClient(f.Context(), nil)
	if err != nil {
		f.Fatal(err)
	}
	defer c.Close()
	f.Fuzz(func(t *testing.T, raw, args []byte) {
		if jsonrpc.Valid(raw) != nil || jsonrpc.Valid(args) != nil {
			t.Skip() // the peer lets nothing else through
		}
		keepFor(headOf(raw).ttl)
		createdTask(raw)
		c.discovered(raw)
		if e := c.cache.entry(spec.MethodResourcesRead, raw); e != nil {
			c.cache.put(e, raw, headOf(raw).ttl)
			c.cache.get(e)
		}
		if full := withDefaults(args, raw); jsonrpc.Valid(full) != nil {
			t.Errorf("%s", full)
		}
		if params, err := c.modernParams(c.modern[0], args); err != nil || jsonrpc.Valid(params) != nil {
			t.Errorf("%s: %v", params, err)
		}
		known, _ := c.shelf.learn(&spec.Tool{Name: "t", InputSchema: raw})
		for name, values := range arguments.Headers(known.headers, args) {
			for _, r := range name + values[0] {
				if r < ' ' && r != '\t' || r > '~' {
					t.Errorf("header %q: %q", name, values)
				}
			}
		}
	})
}
