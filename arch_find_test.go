package farcall_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func findImports(tree *archTree) (found []string) {
	for _, f := range tree.files {
		if f.test || f.foreign {
			continue
		}
		row, ok := archLadder[f.pkg]
		if !ok {
			found = append(found, tree.at(f.ast.Package, "package %s has no row in archLadder", f.pkg))
			continue
		}
		for _, spec := range f.ast.Imports {
			imp, _ := strconv.Unquote(spec.Path.Value)
			if reason := row.refuses(f.pkg, imp); reason != "" {
				found = append(found, tree.at(spec.Pos(), "%s", reason))
			}
		}
		if row.pure {
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if g, ok := n.(*ast.GoStmt); ok {
					found = append(found, tree.at(g.Pos(), "%s must not start goroutines", f.pkg))
				}
				return true
			})
		}
	}
	return found
}

// refuses says why pkg must not import imp, or nothing.
func (row archRow) refuses(pkg, imp string) string {
	first, _, _ := strings.Cut(imp, "/")
	under := func(prefix string) bool { return imp == prefix || strings.HasPrefix(imp, prefix+"/") }
	switch {
	case under(archModule):
		rel := path.Clean("." + strings.TrimPrefix(imp, archModule))
		if !slices.Contains(strings.Fields(row.ours), rel) {
			return pkg + " must not import " + rel
		}
	case strings.Contains(first, "."):
		if !slices.ContainsFunc(strings.Fields(row.outside), under) {
			return pkg + " must not import " + imp
		}
	case row.pure && imp != "net/netip" && slices.ContainsFunc(archImpure, under):
		// netip has addresses only, no I/O
		return pkg + " does no I/O: it must not import " + imp
	}
	return ""
}

// findNames counts exported types, functions, variables and constants. The
// constants of an enumerated type count with their type.
func findNames(tree *archTree) (found []string) {
	names := map[string]map[string]bool{}
	for _, f := range tree.files {
		if f.test || archLadder[f.pkg].names == 0 {
			continue
		}
		if names[f.pkg] == nil {
			names[f.pkg] = map[string]bool{}
		}
		for _, decl := range f.ast.Decls {
			for _, name := range exportedNames(decl) {
				names[f.pkg][name] = true
			}
		}
	}
	for _, pkg := range sortedKeys(names) {
		if all := sortedKeys(names[pkg]); len(all) > archLadder[pkg].names {
			found = append(found, fmt.Sprintf("%s: %d exported names, %d allowed: %s",
				pkg, len(all), archLadder[pkg].names, strings.Join(all, " ")))
		}
	}
	return found
}

func exportedNames(decl ast.Decl) (names []string) {
	var idents []*ast.Ident
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			idents = append(idents, d.Name)
		}
	case *ast.GenDecl:
		typed := false // whether the constants of this specification have a type of this package
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				idents = append(idents, s.Name)
			case *ast.ValueSpec:
				if s.Type != nil || len(s.Values) > 0 { // else it repeats the one before
					typed = d.Tok == token.CONST && ofOwnType(s)
				}
				if !typed {
					idents = append(idents, s.Names...)
				}
			}
		}
	}
	for _, id := range idents {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	return names
}

// ofOwnType reports whether a constant is declared as T or as T(value), where T
// is an exported type of the same package.
func ofOwnType(s *ast.ValueSpec) bool {
	typ := s.Type
	if typ == nil {
		call, ok := s.Values[0].(*ast.CallExpr)
		if !ok {
			return false
		}
		typ = call.Fun
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func findSizes(tree *archTree) (found []string) {
	for _, f := range tree.files {
		if f.generated {
			continue
		}
		if f.lines > archFileLines {
			found = append(found,
				tree.at(f.ast.Package, "file has %d lines, %d allowed", f.lines, archFileLines))
		}
		if f.test || f.pkg == "internal/scan" { // a scanner's switch is long and flat
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := tree.fset.Position(fn.Body.Rbrace).Line - tree.fset.Position(fn.Body.Lbrace).Line - 1
			if lines > archFuncLines {
				found = append(found,
					tree.at(fn.Pos(), "function %s has %d lines, %d allowed", fn.Name, lines, archFuncLines))
			}
		}
	}
	return found
}

func findPackageComments(tree *archTree) (found []string) {
	comments := map[string]int{}
	for _, f := range tree.files {
		if f.test {
			continue
		}
		if comments[f.pkg] += 0; f.ast.Doc.Text() == "" { // without directives
			continue
		}
		comments[f.pkg]++
		start := "Package " + f.ast.Name.Name + " "
		if f.ast.Name.Name == "main" {
			start = "Command " + path.Base(f.pkg) + " "
		}
		if !strings.HasPrefix(f.ast.Doc.Text(), start) {
			found = append(found,
				tree.at(f.ast.Doc.Pos(), "the package comment does not start with %q", start))
		}
	}
	for _, pkg := range sortedKeys(comments) {
		if n := comments[pkg]; n != 1 {
			found = append(found, fmt.Sprintf("%s: %d package comments, 1 wanted", pkg, n))
		}
	}
	slices.Sort(found)
	return found
}

func findInit(tree *archTree) (found []string) {
	for _, f := range tree.files {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				found = append(found, tree.at(fn.Pos(), "init function: wire it in main, or make it a table"))
			}
		}
	}
	return found
}

// archContexts are the context types outside package callctx, with what a callctx.Context would
// cost in each.
var archContexts = map[string]string{
	"farcall.serving": "32 bytes a call: the next size class",
	"mcp.call":        "32 bytes a call: the next size class",
}

// findContexts finds the context types outside package callctx that archContexts does not have:
// those with their own methods for values or a deadline, and not those that embed a context.
func findContexts(tree *archTree) (found []string) {
	shapes := map[string]string{"Value": "any", "Deadline": ""}
	for _, f := range tree.files {
		if f.test || f.foreign || f.pkg == "internal/callctx" {
			continue
		}
		for _, decl := range f.ast.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			if archContexts[f.ast.Name.Name+"."+receiver(fn)] != "" {
				continue
			}
			shape, ok := shapes[fn.Name.Name]
			var params []string
			for _, p := range fn.Type.Params.List {
				id, _ := p.Type.(*ast.Ident)
				params = append(params, fmt.Sprint(id))
			}
			if ok && strings.Join(params, " ") == shape && fn.Type.Results != nil {
				found = append(found, tree.at(fn.Pos(), "context type: embed a callctx.Context"))
			}
		}
	}
	return found
}

// receiver returns the name of the type that a method is of.
func receiver(fn *ast.FuncDecl) string {
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	id, _ := t.(*ast.Ident)
	return fmt.Sprint(id)
}

func findSleeps(tree *archTree) (found []string) {
	for _, f := range tree.files {
		if !f.test {
			continue
		}
		clock := "time"
		for _, spec := range f.ast.Imports {
			if spec.Path.Value == `"time"` && spec.Name != nil {
				clock = spec.Name.Name
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && x.Name == clock {
					found = append(found,
						tree.at(sel.Pos(), "test sleeps: use testing/synctest or wait for what it waits for"))
				}
			}
			return true
		})
	}
	return found
}

// archRevision is a revision as a value, in quotation marks or as a constant of mcp/spec; prose may
// speak of one.
var archRevision = regexp.MustCompile("^([\"`]202[4-9]-\\d\\d-\\d\\d[\"`]|Revision202\\d{5})$")

func findRevisions(tree *archTree) (found []string) {
	for _, f := range tree.files {
		if f.test || f.foreign || f.pkg == "mcp/era" || f.pkg == "mcp/spec" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			value := ""
			switch n := n.(type) {
			case *ast.BasicLit:
				value = n.Value
			case *ast.Ident:
				value = n.Name
			}
			if archRevision.MatchString(value) {
				found = append(found,
					tree.at(n.Pos(), "protocol revision %s is named outside mcp/era and mcp/spec", value))
			}
			return true
		})
	}
	return found
}

var archTestName = regexp.MustCompile(`\b(Test|Fuzz|Example|Benchmark)[A-Z]\w*`)

// findSeeds checks that each test that docs/requirements.md names exists.
func findSeeds(tree *archTree) (found []string) {
	if tree.seeds == "" {
		return []string{"docs/requirements.md is missing"}
	}
	exists := map[string]bool{}
	for _, f := range tree.files {
		for _, decl := range f.ast.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				exists[fn.Name.Name] = true
			}
		}
	}
	for i, line := range strings.Split(tree.seeds, "\n") {
		for _, name := range archTestName.FindAllString(line, -1) {
			if !exists[name] {
				found = append(found, fmt.Sprintf("docs/requirements.md:%d: there is no %s", i+1, name))
			}
		}
	}
	return found
}

// findState reports package-level variables that functions change, and those
// of a type that exists to be changed. What remains are errors, tables and pools.
func findState(tree *archTree) (found []string) {
	vars := map[string]bool{} // "package variable"
	for _, f := range tree.files {
		for _, decl := range f.ast.Decls {
			gen, ok := decl.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR || f.test || f.foreign {
				continue
			}
			for _, spec := range gen.Specs {
				v := spec.(*ast.ValueSpec)
				for _, name := range v.Names {
					vars[f.pkg+" "+name.Name] = true
					if isState(v.Type) {
						found = append(found,
							tree.at(name.Pos(), "package-level variable %s is state: put it into a struct", name.Name))
					}
				}
			}
		}
	}
	for _, f := range tree.files {
		if f.test || f.foreign {
			continue
		}
		for _, id := range changed(f.ast) {
			if id.Name != "_" && vars[f.pkg+" "+id.Name] &&
				(id.Obj == nil || id.Obj == f.ast.Scope.Lookup(id.Name)) {
				found = append(found,
					tree.at(id.Pos(), "package-level variable %s is changed: put it into a struct", id.Name))
			}
		}
	}
	return found
}

// isState reports a type of sync or sync/atomic, but for sync.Pool, which has
// no contents that anyone relies on.
func isState(typ ast.Expr) bool {
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && (pkg.Name == "atomic" || pkg.Name == "sync" && sel.Sel.Name != "Pool")
}

// changed returns the variables that a file assigns to, or takes the address of.
func changed(f *ast.File) (ids []*ast.Ident) {
	base := func(e ast.Expr) {
		for {
			switch x := e.(type) {
			case *ast.Ident:
				ids = append(ids, x)
				return
			case *ast.IndexExpr:
				e = x.X
			case *ast.SelectorExpr:
				e = x.X
			case *ast.ParenExpr:
				e = x.X
			default:
				return
			}
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok != token.DEFINE {
				for _, e := range n.Lhs {
					base(e)
				}
			}
		case *ast.IncDecStmt:
			base(n.X)
		case *ast.UnaryExpr:
			if n.Op == token.AND {
				base(n.X)
			}
		}
		return true
	})
	return ids
}
