package mcp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	identifier = regexp.MustCompile(`^([a-z]\w*\.)?[A-Z]\w*(\.[A-Z]\w*)*$`)
)

// TestMigrationGuides wants each exported name that a guide gives for farcall to be there. The
// first column of the tables has names of the other library, which interop/compare looks up.
func TestMigrationGuides(t *testing.T) {
	packages := map[string]map[string]bool{}
	for name, dir := range map[string]string{
		"mcp": ".", "farcall": "..", "guard": "../guard", "jsonrpc": "../jsonrpc", "mcpauth": "mcpauth",
		"mcphttp": "mcphttp", "mcptest": "mcptest", "rpc": "../rpc", "spec": "spec", "store": "../store",
		"stream": "../stream", "traces": "../observe/traces",
	} {
		packages[name] = exportedNames(t, dir)
	}
	for guide, of := range map[string]struct {
		own   string // the package of names that have none
		least int
	}{
		"../docs/migrate-go-sdk.md": {"mcp", 100},
		"../docs/migrate-jrpc2.md":  {"farcall", 40},
		"../docs/migrate-mcp-go.md": {"mcp", 100},
	} {
		found := 0
		for line := range strings.Lines(readDocument(t, guide)) {
			if columns := strings.Split(line, "|"); len(columns) == 5 {
				line = columns[2] + columns[3]
			}
			for _, span := range codeSpan.FindAllStringSubmatch(line, -1) {
				if !identifier.MatchString(span[1]) {
					continue
				}
				pkg, name := of.own, span[1]
				if before, after, ok := strings.Cut(name, "."); ok && before == strings.ToLower(before) {
					pkg, name = before, after
				}
				found++
				if pkg != "slog" && pkg != "fs" && !packages[pkg][name] {
					t.Errorf("%s: there is no %s in package %s", guide, name, pkg)
				}
			}
		}
		if found < of.least {
			t.Errorf("%s: %d names were found, %d at least are expected", guide, found, of.least)
		}
	}
}

// exportedNames returns the names that a package declares, those of methods and fields after their
// type's.
func exportedNames(t *testing.T, dir string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	parsed, err := parser.ParseDir(token.NewFileSet(), dir, func(f fs.FileInfo) bool { //nolint:staticcheck // build tags do not matter
		return !strings.HasSuffix(f.Name(), "_test.go")
	}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parsed {
		ast.Inspect(p, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if name := n.Name.Name; n.Recv != nil {
					names[baseName(n.Recv.List[0].Type)+"."+name] = true
				} else {
					names[name] = true
				}
				return false
			case *ast.ValueSpec:
				for _, name := range n.Names {
					names[name.Name] = true
				}
			case *ast.TypeSpec:
				names[n.Name.Name] = true
				var members *ast.FieldList
				switch x := n.Type.(type) {
				case *ast.StructType:
					members = x.Fields
				case *ast.InterfaceType:
					members = x.Methods
				default:
					return true
				}
				for _, m := range members.List {
					if len(m.Names) == 0 { // embedded
						names[n.Name.Name+"."+baseName(m.Type)] = true
					}
					for _, name := range m.Names {
						names[n.Name.Name+"."+name.Name] = true
					}
				}
			}
			return true
		})
	}
	return names
}

// baseName returns the name of a receiver's type.
func baseName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return baseName(e.X)
	case *ast.IndexExpr:
		return baseName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
