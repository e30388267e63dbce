package farcall_test

import (
	"fmt"
	"go/ast"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// A table is a struct that holds something for each of many callers. Each has a row in
// docs/invariants.md, which says what bounds it and names the test that tries it with two owners:
// neither sees what is the other's, and when one fills it the other still works.
//
// A struct is taken for a table when one of its fields is a part of internal/share, or a map by
// owner or by address, or a map with a name, key or comment that mentions who calls.

var (
	archWhose  = regexp.MustCompile(`(?i)owner|session|principal|nonce|address|caller|client`)
	archListed = regexp.MustCompile("^\\| `([\\w./-]+)` \\|")
)

func findTables(tree *archTree) []string {
	var needs []archNamed
	there := map[string]bool{}
	for _, f := range tree.files {
		if f.test || f.foreign {
			continue
		}
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range d.Specs {
				if t, ok := spec.(*ast.TypeSpec); ok {
					name := archName(f.pkg, t.Name.Name)
					there[name] = true
					if f.pkg != "internal/share" && isTable(t) {
						needs = append(needs, archNamed{name, tree.at(t.Pos(), "")})
					}
				}
			}
		}
	}
	return archRows(tree, "Tables", needs, there,
		"holds something for each caller: it needs a row in docs/invariants.md, with the test that "+
			"tries two owners")
}

// An archNamed is something of the source that needs a row.
type archNamed struct{ name, at string }

// archSection returns the lines of docs/invariants.md under a heading, and the number of the first.
func archSection(tree *archTree, heading string) (lines []string, first int) {
	all := strings.Split(tree.invariants, "\n")
	at := slices.Index(all, "## "+heading)
	if at < 0 {
		return nil, 0
	}
	lines = all[at+1:]
	end := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "## ") })
	if end >= 0 {
		lines = lines[:end]
	}
	return lines, at + 2
}

// archRows compares the rows of a section of docs/invariants.md with what needs one. there has all
// that may have one. Each row names a test that is there, or why callers do not matter.
func archRows(
	tree *archTree, heading string, needs []archNamed, there map[string]bool, why string,
) (found []string) {
	lines, first := archSection(tree, heading)
	rows := map[string]int{}
	for i, line := range lines {
		if m := archListed.FindStringSubmatch(line); m != nil {
			rows[m[1]] = i
		}
	}
	for _, n := range needs {
		if _, listed := rows[n.name]; !listed {
			found = append(found, n.at+n.name+" "+why)
		}
	}
	tests := archTests(tree)
	for _, name := range sortedKeys(rows) {
		at := fmt.Sprintf("docs/invariants.md:%d: ", rows[name]+first)
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

// archTests are the functions of tests, by "package.Name".
func archTests(tree *archTree) map[string]bool {
	tests := map[string]bool{}
	for _, f := range tree.files {
		for _, decl := range f.ast.Decls {
			if d, ok := decl.(*ast.FuncDecl); ok && f.test && d.Recv == nil {
				tests[archName(f.pkg, d.Name.Name)] = true
			}
		}
	}
	return tests
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
