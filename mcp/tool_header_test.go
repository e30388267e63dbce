package mcp

import (
	"context"
	"strings"
	"testing"
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
	run, _ := s.tools.get([]byte("run"))
	if got := string(run.spec.InputSchema); len(run.headers) != 1 ||
		strings.Count(got, `"x-mcp-header":"Region"`) != 1 {
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
