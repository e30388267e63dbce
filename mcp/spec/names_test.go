package spec_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp/spec"
)

// IsMethod knows each constant for a method or notification, and nothing else.
func TestIsMethod(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	methods := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Names) != 1 || len(v.Values) != 1 {
			return true
		}
		lit, ok := v.Values[0].(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		value, err := strconv.Unquote(lit.Value)
		if err != nil {
			t.Fatal(err)
		}
		name := v.Names[0].Name
		want := strings.HasPrefix(name, "Method") || strings.HasPrefix(name, "Notification")
		if spec.IsMethod(value) != want {
			t.Errorf("IsMethod(%q) is %v: %s", value, !want, name)
		}
		if want {
			methods++
		}
		return true
	})
	if methods < 30 || spec.IsMethod("") || spec.IsMethod("tools/call ") {
		t.Errorf("%d methods found: the test looks in the wrong place", methods)
	}
}
