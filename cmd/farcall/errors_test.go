package main

import (
	"slices"
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestForeignConditionsAreComplete(t *testing.T) {
	counts := map[string]int{}
	type key struct {
		source, name string
		code         jsonrpc.Code
	}
	seen := map[key]bool{}
	for _, row := range erlmcp() {
		k := key{row.Source, row.Name, row.Plain} // two codes have one name
		if counts[row.Source]++; seen[k] || row.Name == "" || row.Category == "" ||
			row.HTTPStatus < 400 || row.HTTPStatus > 599 ||
			!slices.Contains([]string{"info", "warning", "error", "critical"}, row.Severity) {
			t.Errorf("%+v", row)
		}
		seen[k] = true
		if row.Modern >= -32768 && row.Modern <= -32000 && row.Modern != -32022 &&
			row.Modern != jsonrpc.InvalidRequest &&
			row.Modern != jsonrpc.MethodNotFound && row.Modern != jsonrpc.InvalidParams {
			t.Errorf("%s: %d is reserved on MCP 2026-07-28", row.Name, row.Modern)
		}
	}
	if counts["erlmcp"] != 127 || counts["erlmcp refusals"] != 51 {
		t.Errorf("%v", counts)
	}
	for c := jsonrpc.Code(-32099); c <= -32000; c++ { // erlmcp leaves one of the range unused
		if len(meanings(c)) == 0 {
			t.Errorf("%d has no meaning", c)
		}
	}
}

func TestMeanings(t *testing.T) {
	for code, want := range map[jsonrpc.Code][]string{
		jsonrpc.ParseError: {"Parse error"},
		-32001: {
			"Validation failed", "UnknownErrorCode", "RequestTimeout",
			"RESOURCE_NOT_FOUND",
		},
		jsonrpc.Overloaded: {"Overloaded", "RATE_LIMITED"},
		-31010:             {"RATE_LIMITED"},
		-32020:             {"HeaderMismatch", "MEDIA_TYPE_NOT_ACCEPTABLE"},
		-32022: {
			"UnsupportedProtocolVersion", "INVALID_URI", "UNSUPPORTED_PROTOCOL_VERSION",
			"PROTOCOL_VERSION_MISMATCH",
		},
		-32113: {"COMPLETION_FAILED"},
		1001:   {"CONTENT_POLICY", "QUEUE_CAP_EXCEEDED"},
		1099:   {"INVALID_TASK_STATE"},
		0:      nil,
		12345:  nil,
	} {
		var got []string
		for _, row := range meanings(code) {
			got = append(got, row.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", code, got, want)
		}
	}
}
