package gateway

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestLoadPolicyTest(t *testing.T) {
	dir := t.TempDir()
	load := func(text string) (*PolicyTest, error) {
		file := filepath.Join(dir, "test.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadPolicyTest(file)
	}
	got, err := load(`guard: farcall.yaml
tests:
  - {title: one, principal: ci, method: tools/call, name: a/b, arguments: {n: 1, "s": "1", f: 1.50, t: true, x: null, l: [a, 0x10]}, expect: allowed, policies: "allow[0]", reason: because}
  - principal: {id: ada, kind: user, roles: [dev, ops], scopes: s, claims: {team: core}}
    method: math/add
    upstream: u
    annotations: {readOnlyHint: true}
    schema: {type: object}
    transport: stdio
    remote: 10.0.0.1
    local: true
    at: 2026-01-31T12:00:00Z
    times: 3
    expect: limited
`)
	if err != nil {
		t.Fatal(err)
	}
	want := &PolicyTest{Guard: filepath.Join(dir, "farcall.yaml"), Cases: []PolicyCase{
		{
			Line: 3, Column: 6, Title: "one", Principal: "ci", Method: "tools/call", Name: "a/b", Times: 1,
			Expect: "allowed", Policies: []string{"allow[0]"}, Reason: "because",
			Arguments: []byte(`{"n":1,"s":"1","f":1.50,"t":true,"x":null,"l":["a","0x10"]}`),
		},
		{
			Line: 4, Column: 5, Principal: "ada", Kind: "user", Roles: []string{"dev", "ops"},
			Scopes: []string{"s"}, Claims: []byte(`{"team":"core"}`), Method: "math/add", Upstream: "u",
			Annotations: []byte(`{"readOnlyHint":true}`), Schema: []byte(`{"type":"object"}`),
			Transport: "stdio", Remote: "10.0.0.1", Local: true,
			At: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC), Times: 3, Expect: "limited",
		},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	for text, want := range map[string]string{
		"tests: []":                           "1:1: guard: it is missing",
		"guard: x":                            "1:1: tests: there are none",
		"guard: x\ntests: [{method: a}]":      "2:10: tests[0].expect: it is missing",
		"guard: x\ntests: [{expect: denied}]": "2:10: tests[0].method: it is missing",
		"guard: x\ntests: [{method: a, expect: refused}]": `2:29: tests[0].expect: there ` +
			`is no decision "refused"; write allowed, denied or limited`,
		"guard: x\ntests: [{method: a, expct: denied}]": `there is no key "expct" here; ` +
			`did you mean expect?`,
		"guard: x\ntests: [{method: a, expect: denied, times: never}]": `"never" is not a number from 1`,
		"guard: x\ntests: [5]": "a map of keys and " +
			"values is wanted",
		"- a": "a map of keys and " +
			"values is wanted",
		"guard: [": "this is not YAML",
	} {
		_, err := load(text)
		if bad := (*ConfigError)(nil); !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}
