package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxColumns is how long a line of Go or Markdown may be. A tab is one column.
const maxColumns = 100

// A span is a text in which sentences are looked for: a comment, a string, a paragraph. Its lines
// are joined by a space each.
type span struct {
	kind   kind
	text   string
	starts []start // ascending
}

// A start is where a line of the file begins in the text of a span.
type start struct{ offset, line int }

// lineOf returns the line of the file that the byte at an offset of the text is in.
func (s *span) lineOf(offset int) int {
	byOffset := func(e start, at int) int { return cmp.Compare(e.offset, at) }
	i, found := slices.BinarySearchFunc(s.starts, offset, byOffset)
	if !found {
		i--
	}
	return s.starts[i].line
}

// add appends a line of the file.
func (s *span) add(text string, line int) {
	if s.text != "" {
		s.text += " "
	}
	s.starts = append(s.starts, start{len(s.text), line})
	s.text += strings.TrimSpace(text)
}

// unescape makes spaces of the escapes that end words.
var unescape = strings.NewReplacer(`\n`, "  ", `\t`, "  ")

// goSpans returns the comments, the string literals and the declared names of a Go file.
func goSpans(name string, src []byte) ([]*span, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse Go: %w", err)
	}
	var spans []*span
	for _, group := range file.Comments {
		s := &span{kind: comment}
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:") || strings.HasPrefix(c.Text, "//line ") {
				continue
			}
			body := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(c.Text, "//"), "/*"), "*/")
			for i, l := range strings.Split(body, "\n") {
				s.add(l, set.Position(c.Pos()).Line+i)
			}
		}
		if len(s.starts) > 0 {
			spans = append(spans, s)
		}
	}
	imports := map[*ast.BasicLit]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			imports[n.Path] = true
		case *ast.BasicLit:
			if n.Kind == token.STRING && !imports[n] {
				s := &span{kind: literal}
				for i, l := range strings.Split(n.Value[1:len(n.Value)-1], "\n") {
					s.add(unescape.Replace(l), set.Position(n.Pos()).Line+i)
				}
				spans = append(spans, s)
			}
		}
		for _, id := range declared(n) {
			s := &span{kind: identifier}
			s.add(strings.Join(words(id.Name), " "), set.Position(id.Pos()).Line)
			spans = append(spans, s)
		}
		return true
	})
	return spans, nil
}

// declared returns the names that a node declares.
func declared(n ast.Node) []*ast.Ident {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		return n.Names
	case *ast.Field:
		return n.Names
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return nil
		}
		var ids []*ast.Ident
		for _, e := range n.Lhs {
			if id, ok := e.(*ast.Ident); ok {
				ids = append(ids, id)
			}
		}
		return ids
	}
	return nil
}

// words splits a name in camel case.
func words(name string) []string {
	var all []string
	from, runes := 0, []rune(name)
	for i := 1; i < len(runes); i++ {
		lowerBefore := !unicode.IsUpper(runes[i-1])
		lowerAfter := i+1 < len(runes) && unicode.IsLower(runes[i+1])
		if runes[i] == '_' || unicode.IsUpper(runes[i]) && (lowerBefore || lowerAfter) {
			all = append(all, strings.Trim(string(runes[from:i]), "_"))
			from = i
		}
	}
	return append(all, strings.Trim(string(runes[from:]), "_"))
}

// pageSpans returns the paragraphs of a text file: what stands between blank lines.
func pageSpans(src string) []*span {
	var spans []*span
	s := &span{kind: page}
	for i, l := range strings.Split(src, "\n") {
		if strings.TrimSpace(l) == "" {
			if len(s.starts) > 0 {
				spans = append(spans, s)
			}
			s = &span{kind: page}
			continue
		}
		s.add(l, i+1)
	}
	if len(s.starts) > 0 {
		spans = append(spans, s)
	}
	return spans
}

// hashSpans returns the comments of a file where # or // begins one.
func hashSpans(src string) []*span {
	var b strings.Builder
	for l := range strings.Lines(src) {
		l = strings.TrimSpace(l)
		if rest, ok := strings.CutPrefix(l, "#"); ok {
			b.WriteString(rest)
		} else if rest, ok := strings.CutPrefix(l, "//"); ok {
			b.WriteString(rest)
		} else if _, rest, ok := strings.Cut(l, " # "); ok {
			b.WriteString(rest)
		} else if _, rest, ok := strings.Cut(l, " // "); ok {
			b.WriteString(rest)
		}
		b.WriteByte('\n')
	}
	return pageSpans(b.String())
}

// notWrapped are the lines of Go and Markdown that cannot be broken, or that a break would change:
// tables, headings, code in a comment, directives, tags of members. A link in a text is another,
// linked; in code, a literal with one can be broken.
var (
	notWrapped = regexp.MustCompile("^\\s*(?:\\||#+ |\\[|//\t)|^//go:|//nolint:|`json:")
	linked     = regexp.MustCompile("https?://")
)

// longLines returns the lines of a Go or Markdown file of more than maxColumns. Code blocks, lines
// of literals of several lines, the output of examples and those of notWrapped do not count.
func longLines(src []byte, markdown bool) []int {
	var lines []int
	within := map[int]bool{}
	if !markdown {
		within = literalLines(src)
	}
	fenced := false
	output := false
	for i, l := range strings.Split(string(src), "\n") {
		if markdown && strings.HasPrefix(strings.TrimSpace(l), "```") {
			fenced = !fenced
		}
		comment := strings.HasPrefix(strings.TrimSpace(l), "//")
		output = !markdown && comment && (output || strings.HasSuffix(strings.ToLower(l), "output:"))
		if !fenced && !output && !within[i+1] && utf8.RuneCountInString(l) > maxColumns &&
			!notWrapped.MatchString(l) && !((markdown || comment) && linked.MatchString(l)) {
			lines = append(lines, i+1)
		}
	}
	return lines
}

// literalLines returns the lines of literals that have several of them.
func literalLines(src []byte) map[int]bool {
	within := map[int]bool{}
	set := token.NewFileSet()
	file := set.AddFile("", -1, len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	for {
		pos, t, text := s.Scan()
		if t == token.EOF {
			return within
		}
		if n := strings.Count(text, "\n"); t == token.STRING && n > 0 {
			for i := range n + 1 {
				within[file.Line(pos)+i] = true
			}
		}
	}
}
