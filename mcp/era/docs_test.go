package era

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/markdown"
	"github.com/farcall-dev/farcall/jsonrpc"
)

var update = flag.Bool("update", false, "write docs/eras.md")

// TestDocs holds docs/eras.md to the table. go test ./mcp/era -update writes it.
func TestDocs(t *testing.T) {
	const file = "../../docs/eras.md"
	old, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := append(page(t), matrix(old)...)
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/eras.md is stale: go test ./mcp/era -update")
	}
}

// The matrix stands between these two lines; package gateway tries and writes it.
const (
	matrixBegin = "<!-- matrix: go test ./gateway -run TestMatrix -update -->\n"
	matrixEnd   = "<!-- end of the matrix -->\n"
)

// matrix returns that part of the page as it is.
func matrix(page []byte) []byte {
	_, rest, _ := bytes.Cut(page, []byte(matrixBegin))
	inside, _, _ := bytes.Cut(rest, []byte(matrixEnd))
	return slices.Concat([]byte("\n"+matrixBegin), inside, []byte(matrixEnd))
}

const preface = `# The revisions of MCP

What differs between them, as ` + "`mcp/era`" + ` has it: one table of facts, and translators between
neighbours, which are composed for all other pairs. No other code names a revision.
` + "`go test ./mcp/era -update`" + ` writes this page from the table.

farcall works with messages in the form of the newest revision. They are translated where they come
in and go out.

- All that a translation does not change keeps its bytes, and a message without anything to change
  is not copied.
- Custom methods and members that no revision defines pass untouched. Of a custom method only what
  the protocol itself put there is taken out: its ` + "`resultType`" + ` and the protocol's own keys of
  ` + "`_meta`" + `.
- A message that the other revision cannot have at all is refused with an error that names it.
- Going up, members that the newer revision no longer knows are kept: it ignores them, and on the
  way back nothing is lost. Requests that only the older revision has pass untouched: to answer them
  is up to the session. The ` + "`_meta`" + ` of a modern request is not added: only the sender knows its
  capabilities.
`

const codes = `
### Error codes, between a revision with a handshake and one without

- -32002 (resource not found) becomes -32602 going up. Going down, -32602 with the member uri in its
  data becomes -32002.
- -32602 with the member supported in its data becomes -32022 (unsupported protocol version) going
  up, and -32022 becomes -32602 going down.
- -32020 (header mismatch) and -32021 (missing client capability) become -32600 going down.
- Other codes from -32099 to -32020, which the newest revision has for itself, are a thousand higher
  there: -32042 is -31042.
`

// groups are the headings of the facts, which stand in groups in the struct.
var groups = []string{
	"Handshake", "Transport", "Methods and capabilities",
	"Tools, resources, prompts and content", "Asking the client; tasks", "Error codes",
}

func page(t *testing.T) []byte {
	var b bytes.Buffer
	b.WriteString(preface)
	b.WriteString("\n## Facts\n")
	group, last := -1, 0
	for _, f := range facts(t) {
		if f.first > last+1 {
			group++
			fmt.Fprintf(&b, "\n### %s\n\n| fact |", groups[group])
			for _, r := range revisions {
				fmt.Fprintf(&b, " %s |", r.Name)
			}
			b.WriteString("\n|---|" + strings.Repeat("---|", len(revisions)) + "\n")
		}
		last = f.last
		fmt.Fprintf(&b, "| **%s**: %s |", f.name, f.text)
		for _, r := range revisions {
			fmt.Fprintf(&b, " %s |", cell(reflect.ValueOf(*r).FieldByName(f.name).Interface()))
		}
		b.WriteByte('\n')
	}
	if group != len(groups)-1 {
		t.Errorf("%d groups of facts, %d headings", group+1, len(groups))
	}
	b.WriteString("\n## Translations\n")
	for i := len(revisions) - 1; i > 0; i-- {
		list(&b, revisions[i], revisions[i-1], steps[i].down)
	}
	for i := 1; i < len(revisions); i++ {
		list(&b, revisions[i-1], revisions[i], steps[i].up)
	}
	b.WriteString(codes)
	return b.Bytes()
}

func list(b *bytes.Buffer, from, to *Revision, d *direction) {
	fmt.Fprintf(b, "\n### %s to %s\n\n", from.Name, to.Name)
	if len(d.gone) > 0 {
		b.WriteString(markdown.Item("- ", "Refused: `"+strings.Join(d.gone, "`, `")+"`."))
	}
	for _, r := range d.rules {
		b.WriteString(markdown.Item("- ", r.what))
	}
	if len(d.gone)+len(d.rules) == 0 {
		b.WriteString("Nothing changes: all of it is valid as it is.\n")
	}
}

func cell(v any) string {
	switch v := v.(type) {
	case bool:
		if v {
			return "yes"
		}
	case jsonrpc.Code:
		if v != 0 {
			return fmt.Sprint(int(v))
		}
	}
	return "–"
}

type fact struct {
	name, text  string
	first, last int // lines
}

// facts returns the fields of Revision with their comments.
func facts(t *testing.T) (all []fact) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "era.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); !ok || spec.Name.Name != "Revision" {
			return true
		} else if fields, ok := spec.Type.(*ast.StructType); ok {
			for _, f := range fields.Fields.List[1:] { // after Name
				name := f.Names[0].Name
				text := strings.Join(strings.Fields(f.Doc.Text()), " ")
				short, ok := strings.CutPrefix(text, name+": ")
				if !ok {
					if short, ok = strings.CutPrefix(text, name+" is "); !ok {
						t.Errorf("the comment of %s does not begin with its name", name)
					}
				}
				all = append(all,
					fact{
						name, strings.ReplaceAll(short, "_meta", "`_meta`"), fset.Position(f.Doc.Pos()).Line,
						fset.Position(f.End()).Line,
					})
			}
		}
		return false
	})
	return all
}
