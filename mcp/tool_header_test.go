package mcp

import (
	"context"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const headerSchema = `{"type":"object","properties":{
	"region":{"type":"string","x-mcp-header":"Region"},
	"n":{"type":"integer","x-mcp-header":"N"},
	"deep":{"type":"object","properties":{"on":{"type":"boolean","x-mcp-header":"Deep-On"}}}}}`

// The tags of a struct mark arguments, too, and are checked as marks are.
func TestHeaderTag(t *testing.T) {
	s := NewServer("test", "1", nil)
	AddTool(s, Tool{Name: "run"}, func(_ context.Context, in struct {
		Region string `json:"region" header:"Region"`
		Other  string `json:"other,omitempty"`
	},
	) (string, error) {
		return in.Region, nil
	})
	all := s.tools.now.Load().items
	if got := string(all[0].value.spec.InputSchema); len(all[0].value.headers) != 1 || strings.Count(got, `"x-mcp-header":"Region"`) != 1 {
		t.Errorf("the schema is %s", got)
	}
	defer func() {
		if v := recover(); v == nil {
			t.Error("a mark on a list is accepted")
		}
	}()
	AddTool(s, Tool{Name: "bad"}, func(_ context.Context, in struct {
		Regions []string `header:"Region"`
	},
	) (string, error) {
		return "", nil
	})
}

func TestCheckHeader(t *testing.T) {
	all, err := schema.Headers([]byte(headerSchema))
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
			argument, err := mirrored(&all[i], jsonrpc.Raw(tt.args))
			if err == nil {
				err = checkHeader(&all[i], values, argument)
			}
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s: %q with %s: %v, want %q", tt.header, tt.values, tt.args, err, tt.want)
			}
		}
	}
}
