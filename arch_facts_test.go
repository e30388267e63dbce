package farcall_test

import (
	"fmt"
	"go/ast"
)

// archFacts bounds how often the code asks for each fact about the lifecycle of a
// revision (mcp/era). A fact that is asked for everywhere stands for several
// questions: split it, rather than raise its bound. Checks of foreign servers
// (cmd/farcall/internal/conform) ask for each once.
var archFacts = map[string]int{
	"Handshake":       15,
	"RequestMeta":     8,
	"InputRounds":     5,
	"ResultTypes":     8,
	"CacheHints":      4,
	"ListenStream":    2,
	"MirroredHeaders": 8,
	"ReservedCodes":   10,
	"LegacyTasks":     12,
	"TasksExtension":  14,
}

// findFacts counts the uses of each fact.
func findFacts(tree *archTree) (found []string) {
	uses := map[string]int{}
	for _, f := range tree.files {
		if f.test || f.foreign {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && archFacts[s.Sel.Name] > 0 {
				uses[s.Sel.Name]++
				if uses[s.Sel.Name] > archFacts[s.Sel.Name] {
					found = append(found, tree.at(s.Pos(),
						"use %d of the fact %s, %d allowed: is it another question?",
						uses[s.Sel.Name], s.Sel.Name, archFacts[s.Sel.Name]))
				}
			}
			return true
		})
	}
	if len(uses) == 0 {
		return found
	}
	for _, fact := range sortedKeys(archFacts) {
		if uses[fact] == 0 {
			found = append(found, fmt.Sprintf("nothing asks for the fact %s: remove it", fact))
		}
	}
	return found
}
