package farcall_test

import (
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"strings"
)

// A table is a struct that holds something for each of many callers. Each has a row in
// docs/invariants.md, which says what bounds it and names the test that tries it with two owners:
// neither sees what is the other's, and when one fills it the other still works.
//
// A struct is taken for a table when one of its fields is a part of internal/share, or a map by
// owner or by address, or a map with a name, key or comment that mentions who calls.

var (
	archWhose    = regexp.MustCompile(`(?i)owner|session|principal|nonce|address|caller|client`)
	archTableRow = regexp.MustCompile("^\\| `([\\w./]+)` \\|")
)

// archTables are the rows: the line of each, by "package.Type".
func archTables(tree *archTree) (rows map[string]int, lines []string) {
	rows = map[string]int{}
	lines = strings.Split(tree.invariants, "\n")
	for i, line := range lines {
		if m := archTableRow.FindStringSubmatch(line); m != nil {
			rows[m[1]] = i
		}
	}
	return rows, lines
}

func findTables(tree *archTree) (found []string) {
	rows, lines := archTables(tree)
	tests, there := map[string]bool{}, map[string]bool{}
	for _, f := range tree.files {
		for _, decl := range f.ast.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if f.test && d.Recv == nil {
					tests[archName(f.pkg, d.Name.Name)] = true
				}
			case *ast.GenDecl:
				if f.test || f.foreign {
					continue
				}
				for _, spec := range d.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok {
						name := archName(f.pkg, t.Name.Name)
						there[name] = true
						if _, listed := rows[name]; !listed && f.pkg != "internal/share" && isTable(t) {
							found = append(found, tree.at(t.Pos(), "%s holds something for each caller: it needs a row in docs/invariants.md, with the test that tries two owners", name))
						}
					}
				}
			}
		}
	}
	for _, name := range sortedKeys(rows) {
		at := fmt.Sprintf("docs/invariants.md:%d: ", rows[name]+1)
		if !there[name] {
			found = append(found, at+"there is no "+name)
		}
		cells := strings.Split(strings.TrimSpace(lines[rows[name]]), " | ")
		last := cells[len(cells)-1]
		named := archTest.FindAllStringSubmatch(last, -1)
		if len(named) == 0 && !strings.HasPrefix(last, "not by callers: ") {
			found = append(found, at+name+" names no test, nor why callers cannot fill it")
		}
		for _, m := range named {
			if !tests[m[1]] {
				found = append(found, at+"there is no "+m[1])
			}
		}
	}
	return found
}

// archName is "package.Name", with "farcall" for the root.
func archName(pkg, name string) string {
	if pkg == "." {
		pkg = "farcall"
	}
	return pkg + "." + name
}

var archTest = regexp.MustCompile("`([a-z0-9/]+\\.Test\\w+)`")

// isTable reports whether a type is a struct that holds something for each of many callers.
func isTable(t *ast.TypeSpec) bool {
	s, ok := t.Type.(*ast.StructType)
	if !ok {
		return false
	}
	for _, field := range s.Fields.List {
		var about strings.Builder
		about.WriteString(field.Comment.Text())
		for _, name := range field.Names {
			about.WriteString(" " + name.Name)
		}
		table := false
		ast.Inspect(field.Type, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.MapType:
				key := types.ExprString(n.Key)
				table = table || key == "netip.Addr" || archWhose.MatchString(key+" "+about.String())
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "share" {
					switch n.Sel.Name {
					case "Ledger", "Table", "Places", "Queue":
						table = true
					}
				}
			}
			return true
		})
		if table {
			return true
		}
	}
	return false
}
