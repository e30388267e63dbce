package farcall_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A listener is a function that opens an address for others to connect to. Each has a row in
// docs/invariants.md, which says who can reach it, and names the test that tries it.
//
// A function is taken for one when it names something of archOpeners, or calls Listen of a table of
// schemes. The packages that open addresses for others, internal/port and internal/npipe, are left
// out, and so are examples.

var archOpeners = []string{
	"net.Listen", "net.ListenTCP", "net.ListenUDP", "net.ListenUnix", "net.ListenUnixgram",
	"net.ListenPacket", "net.ListenConfig", "net.FileListener", "net.FilePacketConn", "tls.Listen",
	"http.ListenAndServe", "http.ListenAndServeTLS", "port.Listen", "npipe.Listen", "schemes.Listen",
	"server.NewServer",
}

const (
	archListenerWhy = "listens: it needs a row in docs/invariants.md, with who can reach it and " +
		"the test that tries that"
	archDefaultWhy = "is a flag: it needs a row in docs/invariants.md, with what callers can do by " +
		"its default and the test that tries that"
)

var archListeners = archRule{
	name: "docs/invariants.md, listeners",
	find: findListeners,
	broken: map[string]string{
		"docs/invariants.md": "## Tables\n| `mcp.none` | | |\n## Listeners\n" +
			"| `mcp.listed` | all | `mcp.TestListed` |\n" +
			"| `mcp.gone` | all | not by callers: a list |\n",
		"mcp/a.go": "package mcp\nfunc listed() { net.Listen(a, b) }\n" +
			"func (s *one) open() { new(net.ListenConfig).Listen(ctx) }\n" +
			"func two() { s.schemes.Listen(ctx) }\nfunc three() { s.Listen(ctx) }\n",
		"mcp/a_test.go":       "package mcp\nfunc TestListed() { net.Listen(a, b) }",
		"internal/port/a.go":  "package port\nfunc open() { net.Listen(a, b) }",
		"examples/mcp/x/a.go": "package main\nfunc main() { net.Listen(a, b) }",
		"interop/mcp/x/a.go":  "package main\nfunc main() { net.Listen(a, b) }",
	},
	want: []string{
		"mcp/a.go:3: mcp.one.open " + archListenerWhy,
		"mcp/a.go:4: mcp.two " + archListenerWhy,
		"docs/invariants.md:5: there is no mcp.gone",
	},
}

func findListeners(tree *archTree) []string {
	var needs []archNamed
	there := map[string]bool{}
	for _, f := range tree.files {
		if f.test || f.foreign || f.pkg == "internal/port" || f.pkg == "internal/npipe" ||
			strings.HasPrefix(f.pkg, "examples/") {
			continue
		}
		for _, decl := range f.ast.Decls {
			d, ok := decl.(*ast.FuncDecl)
			if !ok || !opens(d) {
				continue
			}
			name := d.Name.Name
			if d.Recv != nil {
				name = archReceiver(d.Recv.List[0].Type) + "." + name
			}
			name = archName(f.pkg, name)
			there[name] = true
			needs = append(needs, archNamed{name, tree.at(d.Pos(), "")})
		}
	}
	return archRows(tree, "Listeners", needs, there, archListenerWhy)
}

// archReceiver is the name of the type of a receiver.
func archReceiver(e ast.Expr) string {
	if star, ok := e.(*ast.StarExpr); ok {
		e = star.X
	}
	id, _ := e.(*ast.Ident)
	return id.Name
}

// opens reports whether a function opens an address.
func opens(d *ast.FuncDecl) (found bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		var from string
		switch x := s.X.(type) {
		case *ast.Ident:
			from = x.Name
		case *ast.SelectorExpr:
			from = x.Sel.Name
		}
		found = found || slices.Contains(archOpeners, from+"."+s.Sel.Name)
		return true
	})
	return found
}

var archDefaults = archRule{
	name: "docs/invariants.md, defaults",
	find: findDefaults,
	broken: map[string]string{
		"docs/invariants.md": "## Defaults\n| `--one` | off | nothing | `mcp.TestOne` |\n" +
			"| `--two` | 5 | less | `mcp.TestOne` |\n" +
			"| `--gone` | 1 | nothing | not by callers: none |\n",
		"cmd/farcall/serve.go": "package main\nfunc f() { f.BoolVar(&a, \"one\", false, \"usage\")\n" +
			"f.IntVar(&b, \"two\", 0, \"usage (default 6)\")\n" +
			"f.StringVar(&c, \"three\", \"\", \"usage\") }",
		"mcp/a_test.go": "package mcp\nfunc TestOne() {}",
	},
	want: []string{
		"cmd/farcall/serve.go:4: --three " + archDefaultWhy,
		"docs/invariants.md:4: there is no --gone",
		`docs/invariants.md:3: --two has the default "6", not "5"`,
	},
}

// findDefaults compares the flags of farcall serve with their rows: each says what callers can do
// while it is not set, and the test that tries that.
func findDefaults(tree *archTree) []string {
	var needs []archNamed
	there, values := map[string]bool{}, map[string]string{}
	for _, f := range tree.files {
		if f.test || !strings.HasPrefix(f.path, "cmd/farcall/serve") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if name, value := archFlag(n); name != "" && !there[name] {
				there[name], values[name] = true, value
				needs = append(needs, archNamed{name, tree.at(n.Pos(), "")})
			}
			return true
		})
	}
	found := archRows(tree, "Defaults", needs, there, archDefaultWhy)
	lines, first := archSection(tree, "Defaults")
	for i, line := range lines {
		m := archListed.FindStringSubmatch(line)
		if m == nil || !there[m[1]] {
			continue
		}
		given := strings.ReplaceAll(strings.Split(line, " | ")[1], "`", "")
		if want := values[m[1]]; !strings.HasSuffix(given, want) {
			found = append(found, fmt.Sprintf("docs/invariants.md:%d: %s has the default %q, not %q",
				i+first, m[1], want, given))
		}
	}
	return found
}

var archFlagDefault = regexp.MustCompile(`\(default:? (.+)\)`)

// archFlag returns the flag that a call registers, as "--name", and its default in words.
func archFlag(n ast.Node) (name, value string) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", ""
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !strings.HasSuffix(method.Sel.Name, "Var") || len(call.Args) < 3 {
		return "", ""
	}
	var texts []string
	for _, arg := range call.Args {
		literals := archLiterals(arg)
		if sum, ok := arg.(*ast.BinaryExpr); ok && sum.Op == token.ADD {
			literals = []string{strings.Join(literals, "")}
		}
		texts = append(texts, literals...)
	}
	if len(texts) < 2 {
		return "", ""
	}
	switch m := archFlagDefault.FindStringSubmatch(strings.Join(texts, "")); {
	case m != nil:
		value = m[1] // its last part, where the first is a constant
	case len(texts) == 3 && texts[1] != "":
		value = texts[1]
	case method.Sel.Name == "BoolVar":
		value = "off"
	default:
		value = "none"
	}
	return "--" + texts[0], value
}

// archLiterals returns the texts of the literals in an expression.
func archLiterals(x ast.Expr) (texts []string) {
	ast.Inspect(x, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok {
			text, err := strconv.Unquote(lit.Value)
			if err != nil { // a number
				text = lit.Value
			}
			texts = append(texts, text)
		}
		return true
	})
	return texts
}
