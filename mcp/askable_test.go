package mcp

import (
	"testing"

	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
)

// A client that declares more than the revision has, is not taken at its word.
func TestAskable(t *testing.T) {
	const all = `{"extensions":{"x/y":{}},"elicitation":{"form":{},"url":{}},` +
		`"sampling":{"tools":{}},"roots":{}}`
	for revision, want := range map[string]string{
		"2024-11-05": `{"extensions":{"x/y":{}},"roots":{},"sampling":{}}`,
		"2025-03-26": `{"extensions":{"x/y":{}},"roots":{},"sampling":{}}`,
		"2025-06-18": `{"extensions":{"x/y":{}},"roots":{},"elicitation":{},"sampling":{}}`,
		"2025-11-25": all,
	} {
		if got := string(askable(jsonrpc.Raw(all), era.Lookup(revision))); got != want {
			t.Errorf("%s: %s", revision, got)
		}
	}
	if got := string(
		askable(jsonrpc.Raw(`{"elicitation":{"url":{}}}`), era.Lookup("2025-06-18"))); got != `{}` {
		t.Errorf("addresses only: %s", got)
	}
}
