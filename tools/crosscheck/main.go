// Command crosscheck finds out whether the packages of the module in the working directory, and
// their tests, compile for each TARGET (GOOS/GOARCH). It only checks types, from the sources of all
// that they import, without the bodies of functions of other modules: go build would compile the
// standard library and all modules for each.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck GOOS/GOARCH…")
		os.Exit(2)
	}
	failed := false
	for _, target := range os.Args[1:] {
		n, errs := check(target)
		for _, err := range errs {
			fmt.Fprintf(os.Stderr, "%s: %v\n", target, err)
			failed = true
		}
		fmt.Printf("%s: %d packages\n", target, n)
	}
	if failed {
		os.Exit(1)
	}
}

// check returns how many packages and tests of the module there are for target, and what is wrong
// with them.
func check(target string) (n int, errs []error) {
	system, arch, ok := strings.Cut(target, "/")
	if !ok {
		return 0, []error{fmt.Errorf("a target is GOOS/GOARCH, as in linux/amd64")}
	}
	here, err := os.Getwd()
	if err != nil {
		return 0, []error{err}
	}
	here += string(filepath.Separator)
	own, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles |
			packages.NeedImports | packages.NeedDeps | packages.NeedTypes |
			packages.NeedTypesSizes | packages.NeedSyntax | packages.NeedModule,
		Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0"),
		Tests: true,
		ParseFile: func(set *token.FileSet, name string, src []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
			// The programs that run tests are written into the build cache, without a suffix.
			if file != nil && !strings.HasPrefix(name, here) && strings.HasSuffix(name, ".go") {
				dropBodies(file)
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		return 0, []error{err}
	}
	if len(own) == 0 {
		return 0, []error{errors.New("there are no packages in the working directory")}
	}
	seen := map[string]bool{}
	packages.Visit(own, nil, func(p *packages.Package) {
		if p.Module == nil || !p.Module.Main {
			return
		}
		for _, err := range p.Errors {
			if !seen[err.Error()] { // a package and its variant for tests have the same errors
				seen[err.Error()] = true
				errs = append(errs, err)
			}
		}
	})
	return len(own), errs
}

// dropBodies removes what only the compiler of another module needs to know: what functions do.
func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}
