package farcall_test

import (
	"go/ast"
	"go/token"
	"strconv"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// archNumbers are the packages and files that write codes as numbers: the registry, and those who
// have the numbers of others, which may be equal to ours.
var archNumbers = map[string]string{
	"jsonrpc":                         "the registry",
	"mcp/era":                         "what each revision of MCP defines",
	"mcp/spec":                        "what MCP defines",
	"cmd/farcall/internal/playground": "an application, with its own codes",
	"cmd/farcall/internal/conform":    "a judge reads nothing of the judged",
}

// findCodes looks for numbers that are codes of ours: package jsonrpc has names for them.
func findCodes(tree *archTree) (found []string) {
	names := ownCodes()
	for _, f := range tree.files {
		if f.test || f.foreign || archNumbers[f.pkg] != "" || archNumbers[f.path] != "" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			minus, ok := n.(*ast.UnaryExpr)
			if !ok || minus.Op != token.SUB {
				return true
			}
			if lit, ok := minus.X.(*ast.BasicLit); ok {
				code, _ := strconv.Atoi(lit.Value)
				if name := names[jsonrpc.Code(-code)]; name != "" {
					found = append(found, tree.at(n.Pos(), "%d is %s: name it", -code, name))
				}
			}
			return true
		})
	}
	return found
}

// ownCodes returns how the codes of the conditions that farcall sends are named.
func ownCodes() map[jsonrpc.Code]string {
	names := map[jsonrpc.Code]string{}
	for _, row := range jsonrpc.Conditions() {
		if row.Plain == 0 || row.Plain.Condition() != row || row.Source == "JSON-RPC 2.0" {
			continue
		}
		name := `jsonrpc's "` + row.Name + `"`
		names[row.Legacy], names[row.Modern] = name+" on MCP up to 2025-11-25", name+" on MCP 2026-07-28"
		names[row.Plain] = name
	}
	delete(names, 0)
	return names
}
