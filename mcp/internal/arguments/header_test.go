package arguments_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const headerSchema = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"n":{"type":"integer","x-mcp-header":"N"},
	"deep":{"type":"object","properties":{"on":{"type":"boolean","x-mcp-header":"Deep-On"}}}}}`

func TestCheckHeaders(t *testing.T) {
	all, err := schema.Headers([]byte(headerSchema))
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, tt := range []struct {
		header, values, args, want string
	}{
		{"Mcp-Param-Region", "us-west1", `{"region":"us-west1"}`, ""},
		{"Mcp-Param-Region", "=?base64?SGVsbG8sIOS4lueVjA==?=", `{"region":"Hello, 世界"}`, ""},
		{
			"Mcp-Param-Region", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", `{"region":"=?base64?literal?="}`,
			"",
		},
		{"Mcp-Param-Region", "", `{}`, ""},
		{"Mcp-Param-Region", "", `{"region":null}`, ""},
		{"Mcp-Param-Region", "", `{"region":"x"}`, "0 times"},
		{"Mcp-Param-Region", "a|b", `{"region":"a"}`, "2 times"},
		{"Mcp-Param-Region", "y", `{"region":"x"}`, "does not have the value"},
		{"Mcp-Param-Region", "y", `{}`, "not in the body"},
		{"Mcp-Param-Region", "世界", `{"region":"世界"}`, "characters"},
		{"Mcp-Param-Region", "=?base64?%%?=", `{"region":"x"}`, "not the Base64"},
		{"Mcp-Param-Region", "eu", `{"region":"eu","region":"us"}`, "more than once"},
		{"Mcp-Param-Region", "us", `{"region":"eu","\u0072egion":"us"}`, "more than once"},
		{"Mcp-Param-Deep-On", "true", `{"deep":{"on":true},"deep":{"on":false}}`, "more than once"},
		{"Mcp-Param-N", "42", `{"n":42}`, ""},
		{"Mcp-Param-N", "42.0", `{"n":42}`, ""},
		{"Mcp-Param-N", "43", `{"n":42}`, "does not have"},
		{"Mcp-Param-N", "9007199254740993", `{"n":9007199254740992}`, "does not have"},
		{"Mcp-Param-N", "x", `{"n":1}`, "does not have"},
		{"Mcp-Param-Deep-On", "true", `{"deep":{"on":true}}`, ""},
		{"Mcp-Param-Deep-On", "True", `{"deep":{"on":true}}`, "does not have"},
	} {
		for i := range all {
			if spec.HeaderParam+all[i].Name != tt.header {
				continue
			}
			var values []string
			if tt.values != "" {
				values = strings.Split(tt.values, "|")
			}
			err := arguments.CheckHeaders(all[i:i+1], http.Header{tt.header: values}, jsonrpc.Raw(tt.args))
			if tt.want == "" && err != nil ||
				tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: %q with %s: %v, want %q", tt.header, tt.values, tt.args, err, tt.want)
			}
		}
	}
}

// The headers that a client makes of any arguments are those that a server accepts for them, and
// relaxed arguments are JSON, whatever the schema is.
func FuzzArguments(f *testing.F) {
	all, err := schema.Headers([]byte(headerSchema))
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(headerSchema), []byte(`{"region":"eu","n":"4e1","deep":{"on":"true"},"x":1}`))
	f.Add(
		[]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"additionalProperties":false,"properties":{"a":{"$ref":"#/$defs/a"}}}}}`), []byte(`{"a":{"a":{"b":1}}}`))
	f.Add([]byte(`{"items":{"type":["null","integer"]}}`), []byte(`["1"," 2 ","x",{}]`))
	f.Fuzz(func(t *testing.T, inputSchema, given []byte) {
		if jsonrpc.Valid(inputSchema) != nil || jsonrpc.Valid(given) != nil {
			return
		}
		relaxed, changed := arguments.Relax(inputSchema, given)
		if err := jsonrpc.Valid(relaxed); err != nil {
			t.Errorf("%s relaxed by %s is %s: %v", given, inputSchema, relaxed, err)
		}
		if _, again := arguments.Relax(inputSchema, relaxed); changed == 0 && again != 0 {
			t.Errorf("%s relaxed by %s: nothing was changed, then %d", given, inputSchema, again)
		}
		for i := range all {
			one := all[i : i+1]
			header := arguments.Headers(one, given)
			if err := arguments.CheckHeaders(one, header, given); err != nil && len(header) > 0 {
				t.Errorf("%v for %s: %v", header, given, err)
			}
		}
	})
}
