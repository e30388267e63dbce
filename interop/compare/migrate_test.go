package compare

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	codeSpan   = regexp.MustCompile("`([^`]+)`")
	identifier = regexp.MustCompile(`^([a-z]\w*\.)?[A-Z]\w*(\.[A-Z]\w*)*$`)
)

// TestMigrationGuides wants each name in the first column of the guides' tables to be there in the
// other library. TestMigrationGuides of package mcp looks up those of farcall.
func TestMigrationGuides(t *testing.T) {
	for guide, library := range map[string]struct {
		module, own, packages string
		least                 int // names in the first column
	}{
		"../../docs/migrate-go-sdk.md": {"github.com/modelcontextprotocol/go-sdk", "mcp", "auth mcp", 80},
		"../../docs/migrate-jrpc2.md": {
			"github.com/creachadair/jrpc2", ".",
			". channel handler jhttp server", 45,
		},
		"../../docs/migrate-mcp-go.md": {
			"github.com/mark3labs/mcp-go", "",
			"client client/transport mcp mcptest server", 80,
		},
	} {
		dir := moduleDir(t, library.module)
		packages := map[string]map[string]bool{}
		for name := range strings.FieldsSeq(library.packages) {
			packages[path.Base(name)] = exportedNames(t, filepath.Join(dir, name))
		}
		text, err := os.ReadFile(guide)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(string(text)) {
			columns := strings.Split(line, "|")
			if len(columns) != 5 {
				continue
			}
			for _, span := range codeSpan.FindAllStringSubmatch(columns[1], -1) {
				if !identifier.MatchString(span[1]) {
					continue
				}
				pkg, name := library.own, span[1]
				if before, after, ok := strings.Cut(name, "."); ok && before == strings.ToLower(before) {
					pkg, name = before, after
				}
				found++
				if !packages[pkg][name] && (pkg != "client" || !packages["transport"][name]) {
					t.Errorf("%s: there is no %s in package %q", guide, name, pkg)
				}
			}
		}
		if found < library.least {
			t.Errorf("%s: %d names were found, %d at least are expected", guide, found, library.least)
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
