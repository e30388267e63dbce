package upstream

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// guarded are the types that the lock of an upstream guards. They have no way to it: their methods
// are called by those who hold it.
var guarded = []string{
	"pool", "queue", "connection", "holder", "breaker", "health", "pendingCalls",
	"departed",
}

// guardedFields are the fields of Upstream that are read and changed with the lock held only.
var guardedFields = []string{"watching", "sweeping", "closing", "over", "idle", "stats"}

// TestLocks reads the source. A function with a name that ends in Locked needs the lock of the
// upstream: it does not touch it, and is called by those who hold it. So are the methods of pool,
// queue and connection. An Upstream is known by the name u, and a connection by l.
func TestLocks(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	found, functions := checkLocks(fset, files)
	for _, text := range found {
		t.Error(text)
	}
	if functions < 100 {
		t.Errorf("%d functions were read", functions)
	}
}

// TestLocksFinds shows that checkLocks finds each kind of mistake.
func TestLocksFinds(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`func (u *Upstream) aLocked() { u.mu.Lock() ` +
			`}`: "touches the lock",
		`func (p *pool) a(u *Upstream) { u.mu.Lock() ` +
			`}`: "touches the lock",
		`func (u *Upstream) a() { ` +
			`u.bLocked() }`: "calls bLocked without the lock",
		`func (u *Upstream) a() { ` +
			`u.pool.b() }`: "uses u.pool without the lock",
		`func (u *Upstream) a() { l.b() }; func (l *connection) b() ` +
			`{}`: "calls b of a connection without the lock",
		`func (u *Upstream) a() bool { return ` +
			`u.closing }`: "uses u.closing without the lock",
		`func (u *Upstream) a() { u.mu.Lock(); u.mu.Unlock(); ` +
			`u.bLocked() }`: "calls bLocked without the lock",
		`func (u *Upstream) a() { u.mu.Lock(); defer u.mu.Unlock(); go func() { ` +
			`u.bLocked() }() }`: "calls bLocked without the lock",
		`func (u *Upstream) a() { u.mu.Lock() ` +
			`}`: "ends with the lock",
		`func (u *Upstream) a(b bool) { if b { ` +
			`u.mu.Lock() }; u.b() }`: "depends on a branch",
		`func (u *Upstream) aLocked() { u.b() }; func (u *Upstream) b() { u.mu.Lock(); ` +
			`u.mu.Unlock() }`: "calls b, which takes the lock",
		`func (u *Upstream) a() { u.mu.Lock(); defer u.mu.Unlock(); u.pool.b(); if u.over { return }; ` +
			`u.bLocked() }`: "",
		`func (u *Upstream) a() { u.mu.Lock(); if u.over { u.mu.Unlock(); return }; u.bLocked(); ` +
			`u.mu.Unlock(); u.c() }`: "",
	} {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "x.go", "package upstream\n"+body, 0)
		if err != nil {
			t.Fatal(err)
		}
		found, _ := checkLocks(fset, []*ast.File{f})
		if got := strings.Join(found, "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s:\ngot  %q\nwant %q", body, got, want)
		}
	}
}

// lockCheck follows the lock through a function, statement by statement.
type lockCheck struct {
	fset    *token.FileSet
	takes   map[string]bool // functions that take the lock
	methods map[string]bool // of a connection; all need it
	name    string
	inner   bool // the function must not touch the lock
	until   bool // the lock is held until the function returns
	found   []string
}

func checkLocks(fset *token.FileSet, files []*ast.File) (found []string, functions int) {
	c := &lockCheck{fset: fset, takes: map[string]bool{}, methods: map[string]bool{}}
	var all []*ast.FuncDecl
	for _, f := range files {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				all = append(all, fn)
				if receiver(fn) == "connection" {
					c.methods[fn.Name.Name] = true
				}
				ast.Inspect(fn.Body, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok && lockCall(call) == "Lock" {
						c.takes[fn.Name.Name] = true
					}
					return true
				})
			}
		}
	}
	for _, fn := range all {
		c.name, c.until = fn.Name.Name, false
		c.inner = needsLock(c.name) || slices.Contains(guarded, receiver(fn))
		if held, ended := c.block(fn.Body.List, c.inner); held && !ended && !c.inner && !c.until {
			c.report(fn, "ends with the lock")
		}
	}
	return c.found, len(all)
}

func needsLock(name string) bool { return strings.HasSuffix(name, "Locked") }

func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	t := fn.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	return t.(*ast.Ident).Name
}

// lockCall returns "Lock" or "Unlock" when a call is that of a field mu.
func lockCall(call *ast.CallExpr) string {
	if f, ok := call.Fun.(*ast.SelectorExpr); ok {
		if mu, ok := f.X.(*ast.SelectorExpr); ok && mu.Sel.Name == "mu" {
			return f.Sel.Name
		}
	}
	return ""
}

func (c *lockCheck) report(at ast.Node, format string, args ...any) {
	c.found = append(c.found,
		fmt.Sprintf("%s: %s %s", c.fset.Position(at.Pos()), c.name, fmt.Sprintf(format, args...)))
}

// block follows statements. It returns whether the lock is held after them, and whether they leave
// the block: then that says nothing.
func (c *lockCheck) block(list []ast.Stmt, held bool) (after, ended bool) {
	for _, s := range list {
		if held, ended = c.statement(s, held); ended {
			return held, true
		}
	}
	return held, false
}

func (c *lockCheck) statement(s ast.Stmt, held bool) (after, ended bool) {
	switch s := s.(type) {
	case *ast.ExprStmt:
		if call, ok := s.X.(*ast.CallExpr); ok && lockCall(call) != "" {
			if c.inner {
				c.report(s, "touches the lock")
			}
			if want := lockCall(call) == "Lock"; want == held && !c.inner {
				c.report(s, "calls %s twice", lockCall(call))
			}
			return lockCall(call) == "Lock", false
		}
		c.expression(s.X, held)
	case *ast.DeferStmt:
		if lockCall(s.Call) == "Unlock" {
			if c.inner {
				c.report(s, "touches the lock")
			}
			c.until = true
		}
		for _, arg := range s.Call.Args {
			c.expression(arg, held)
		}
	case *ast.GoStmt:
		c.expression(s.Call, false)
	case *ast.ReturnStmt:
		c.expression(s, held)
		if held && !c.inner && !c.until {
			c.report(s, "ends with the lock")
		}
		return held, true
	case *ast.BranchStmt:
		return held, s.Tok != token.FALLTHROUGH
	case *ast.BlockStmt:
		return c.block(s.List, held)
	case *ast.LabeledStmt:
		return c.statement(s.Stmt, held)
	case *ast.IfStmt:
		held = c.optional(s.Init, held)
		c.expression(s.Cond, held)
		bodies := [][]ast.Stmt{s.Body.List, nil}
		if s.Else != nil {
			bodies[1] = []ast.Stmt{s.Else}
		}
		return c.branches(s, bodies, held)
	case *ast.ForStmt:
		held = c.optional(s.Init, held)
		if s.Cond != nil {
			c.expression(s.Cond, held)
		}
		c.optional(s.Post, held)
		return c.branches(s, [][]ast.Stmt{s.Body.List, nil}, held)
	case *ast.RangeStmt:
		c.expression(s.X, held)
		return c.branches(s, [][]ast.Stmt{s.Body.List, nil}, held)
	case *ast.SwitchStmt:
		held = c.optional(s.Init, held)
		if s.Tag != nil {
			c.expression(s.Tag, held)
		}
		return c.clauses(s, s.Body, held)
	case *ast.TypeSwitchStmt:
		return c.clauses(s, s.Body, held)
	case *ast.SelectStmt:
		return c.clauses(s, s.Body, held)
	default:
		c.expression(s, held)
	}
	return held, false
}

func (c *lockCheck) optional(s ast.Stmt, held bool) bool {
	if s != nil {
		held, _ = c.statement(s, held)
	}
	return held
}

func (c *lockCheck) clauses(s ast.Stmt, body *ast.BlockStmt, held bool) (after, ended bool) {
	var bodies [][]ast.Stmt
	whole := false
	for _, clause := range body.List {
		switch clause := clause.(type) {
		case *ast.CaseClause:
			for _, e := range clause.List {
				c.expression(e, held)
			}
			whole = whole || clause.List == nil
			bodies = append(bodies, clause.Body)
		case *ast.CommClause:
			c.optional(clause.Comm, held)
			whole = true
			bodies = append(bodies, clause.Body)
		}
	}
	if !whole {
		bodies = append(bodies, nil)
	}
	return c.branches(s, bodies, held)
}

// branches follows each of several ways, which must agree on the lock.
func (c *lockCheck) branches(s ast.Stmt, bodies [][]ast.Stmt, held bool) (after, ended bool) {
	ended = true
	for _, body := range bodies {
		got, out := c.block(body, held)
		if out {
			continue
		}
		if !ended && got != after {
			c.report(s, "holds the lock or not, which depends on a branch")
		}
		after, ended = got, false
	}
	return after, ended
}

// expression looks for what needs the lock, or must not have it, in a part of the source.
func (c *lockCheck) expression(n ast.Node, held bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			until := c.until
			c.block(n.Body.List, held)
			c.until = until
			return false
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			switch name := f.Sel.Name; {
			case name == "Go" || name == "AfterFunc" || name == "spawnLocked": // another goroutine
				c.expression(f, held)
				for _, arg := range n.Args {
					c.expression(arg, false)
				}
				return false
			case held && c.takes[name] && c.ours(f.X):
				c.report(n, "calls %s, which takes the lock", name)
			}
		case *ast.SelectorExpr:
			inner, _ := n.X.(*ast.SelectorExpr)
			x, _ := n.X.(*ast.Ident)
			switch {
			case held:
			case needsLock(n.Sel.Name):
				c.report(n, "calls %s without the lock", n.Sel.Name)
			case inner != nil && (inner.Sel.Name == "pool" || inner.Sel.Name == "queue"):
				c.report(n, "uses u.%s without the lock", inner.Sel.Name)
			case x != nil && x.Name == "l" && c.methods[n.Sel.Name]:
				c.report(n, "calls %s of a connection without the lock", n.Sel.Name)
			case x != nil && x.Name == "u" && slices.Contains(guardedFields, n.Sel.Name):
				c.report(n, "uses u.%s without the lock", n.Sel.Name)
			}
		}
		return true
	})
}

// ours reports whether an expression is an Upstream, by its name.
func (c *lockCheck) ours(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "u"
	case *ast.SelectorExpr:
		return x.Sel.Name == "u"
	}
	return false
}
