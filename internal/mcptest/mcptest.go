// Package mcptest answers one question, for tests: is this what the
// specification calls such a message?
package mcptest

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Dir returns the directory with the specification's schemas, one directory for
// each revision, from the variable FARCALL_SPEC_DIR. Without it the test is
// skipped.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("FARCALL_SPEC_DIR")
	if dir == "" {
		tb.Skip("FARCALL_SPEC_DIR is not set: it names the directory with REVISION/schema.json of the " +
			"MCP specification")
	}
	return dir
}

// Validator returns a function that fails the test when raw is not a def of the
// revision's schema, such as "CallToolResult". The function may be used by
// several goroutines at once.
func Validator(tb testing.TB, revision string) func(tb testing.TB, def string, raw []byte) {
	tb.Helper()
	return validator(tb, revision, func(any) {})
}

// Strict is Validator, but a member that the schema does not name fails the test as well, where the
// schema leaves it open. Two members are let through everywhere, which later revisions have and no
// revision forbids: _meta, and the extensions of capabilities (SEP-2133). A def that is put
// together with allOf has no strict form: do not ask for one.
func Strict(tb testing.TB, revision string) func(tb testing.TB, def string, raw []byte) {
	tb.Helper()
	return validator(tb, revision, func(doc any) {
		for name, def := range definitions(doc) {
			if !strings.HasSuffix(name, "MetaObject") {
				shut(def)
			}
		}
	})
}

func validator(
	tb testing.TB, revision string, prepare func(doc any),
) func(tb testing.TB, def string, raw []byte) {
	tb.Helper()
	file := filepath.Join(Dir(tb), revision, "schema.json")
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		tb.Fatal(file, err)
	}
	prepare(doc)
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(revision, doc); err != nil {
		tb.Fatal(file, err)
	}
	var mu sync.Mutex // the compiler keeps what it has compiled
	compile := func(def string) (*jsonschema.Schema, error) {
		mu.Lock()
		defer mu.Unlock()
		return compiler.Compile(revision + "#/" + section(doc) + "/" + def)
	}
	return func(tb testing.TB, def string, raw []byte) {
		tb.Helper()
		schema, err := compile(def)
		if err != nil {
			tb.Fatalf("%s of %s: %v", def, revision, err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err == nil {
			err = schema.Validate(value)
		}
		if err != nil {
			tb.Errorf("not a %s of %s: %s\n%v", def, revision, raw, err)
		}
	}
}

// section is where a schema has its definitions: it depends on its dialect, which
// is draft-07 up to 2025-06-18.
func section(doc any) string {
	if root, ok := doc.(map[string]any); ok && root["$defs"] != nil {
		return "$defs"
	}
	return "definitions"
}

func definitions(doc any) map[string]any {
	root, _ := doc.(map[string]any)
	defs, _ := root[section(doc)].(map[string]any)
	return defs
}

// shut forbids the members that an object's schema does not name, unless it says
// something about them, and so on inside.
func shut(schema any) {
	switch schema := schema.(type) {
	case map[string]any:
		named, _ := schema["properties"].(map[string]any)
		if named != nil && schema["additionalProperties"] == nil {
			schema["additionalProperties"] = false
			if schema["patternProperties"] == nil {
				schema["patternProperties"] = map[string]any{"^(_meta|extensions)$": true}
			}
		}
		for _, inner := range named {
			shut(inner)
		}
		for _, key := range []string{"items", "anyOf", "oneOf", "additionalProperties"} {
			shut(schema[key])
		}
	case []any:
		for _, inner := range schema {
			shut(inner)
		}
	}
}
