package mcp

import (
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

const headerSchema = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"n":{"type":"integer","x-mcp-header":"N"},
	"deep":{"type":"object","properties":{"on":{"type":"boolean","x-mcp-header":"Deep-On"}}}}}`

func TestParamHeaders(t *testing.T) {
	all, err := paramHeaders(jsonrpc.Raw(headerSchema))
	if err != nil || len(all) != 3 {
		t.Fatal(all, err)
	}
	for _, tt := range []struct {
		header, values, args, want string
	}{
		{"Mcp-Param-Region", "us-west1", `{"region":"us-west1"}`, ""},
		{"Mcp-Param-Region", "=?base64?SGVsbG8sIOS4lueVjA==?=", `{"region":"Hello, 世界"}`, ""},
		{"Mcp-Param-Region", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?=", `{"region":"=?base64?literal?="}`, ""},
		{"Mcp-Param-Region", "", `{}`, ""},
		{"Mcp-Param-Region", "", `{"region":null}`, ""},
		{"Mcp-Param-Region", "", `{"region":"x"}`, "0 times"},
		{"Mcp-Param-Region", "a|b", `{"region":"a"}`, "2 times"},
		{"Mcp-Param-Region", "y", `{"region":"x"}`, "does not have the value"},
		{"Mcp-Param-Region", "y", `{}`, "not in the body"},
		{"Mcp-Param-Region", "世界", `{"region":"世界"}`, "characters"},
		{"Mcp-Param-Region", "=?base64?%%?=", `{"region":"x"}`, "not base64"},
		{"Mcp-Param-N", "42", `{"n":42}`, ""},
		{"Mcp-Param-N", "42.0", `{"n":42}`, ""},
		{"Mcp-Param-N", "43", `{"n":42}`, "does not have"},
		{"Mcp-Param-N", "9007199254740993", `{"n":9007199254740992}`, "does not have"},
		{"Mcp-Param-N", "x", `{"n":1}`, "does not have"},
		{"Mcp-Param-Deep-On", "true", `{"deep":{"on":true}}`, ""},
		{"Mcp-Param-Deep-On", "True", `{"deep":{"on":true}}`, "does not have"},
	} {
		for i := range all {
			if all[i].header != tt.header {
				continue
			}
			var values []string
			if tt.values != "" {
				values = strings.Split(tt.values, "|")
			}
			err := all[i].check(values, all[i].argument(jsonrpc.Raw(tt.args)))
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: %q with %s: %v, want %q", tt.header, tt.values, tt.args, err, tt.want)
			}
		}
	}
}

func TestParamHeadersRefused(t *testing.T) {
	property := func(s string) string { return `{"type":"object","properties":{"a":` + s + `}}` }
	for _, schema := range []string{
		property(`{"type":"number","x-mcp-header":"A"}`),
		property(`{"type":"string","x-mcp-header":""}`),
		property(`{"type":"string","x-mcp-header":"a b"}`),
		property(`{"type":"string","x-mcp-header":"a\r\nb"}`),
		property(`{"type":"string","x-mcp-header":7}`),
		property(`{"type":"array","items":{"type":"string","x-mcp-header":"A"}}`),
		property(`{"anyOf":[{"type":"string","x-mcp-header":"A"}]}`),
		`{"type":"object","x-mcp-header":"A"}`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
	} {
		if all, err := paramHeaders(jsonrpc.Raw(schema)); err == nil {
			t.Errorf("%s: accepted: %v", schema, all)
		}
	}
	if all, err := paramHeaders(jsonrpc.Raw(property(`{"type":"string"}`))); all != nil || err != nil {
		t.Error(all, err)
	}
}

func FuzzHeaderValue(f *testing.F) {
	f.Add("=?base64?SGVsbG8=?=")
	f.Add("plain")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := headerValue(s)
		if err == nil && !strings.HasPrefix(s, "=?base64?") && v != s {
			t.Errorf("%q became %q", s, v)
		}
	})
}
