package gateway_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/markdown"
	"github.com/farcall-dev/farcall/mcp/era"
)

var update = flag.Bool("update", false, "write the matrix into docs/eras.md")

// The matrix stands between these two lines; mcp/era writes the rest of the page.
const (
	matrixBegin = "<!-- matrix: go test ./gateway -run TestMatrix -update -->\n"
	matrixEnd   = "<!-- end of the matrix -->\n"
)

// document holds docs/eras.md to what was tried.
func (m *matrix) document() {
	const file = "../docs/eras.md"
	page, err := os.ReadFile(file)
	if err != nil {
		m.t.Fatal(err)
	}
	head, rest, ok := bytes.Cut(page, []byte(matrixBegin))
	_, tail, ended := bytes.Cut(rest, []byte(matrixEnd))
	if !ok || !ended {
		m.t.Fatal("docs/eras.md has no place for the matrix: go test ./mcp/era -update makes one")
	}
	want := slices.Concat(head, []byte(matrixBegin), m.page(), []byte(matrixEnd), tail)
	if bytes.Equal(page, want) {
		return
	}
	if !*update {
		m.t.Error("docs/eras.md is stale: go test ./gateway -run TestMatrix -update")
		return
	}
	if err := os.WriteFile(file, want, 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *matrix) page() []byte {
	var b bytes.Buffer
	revisions := era.Revisions()
	var names []string
	for _, r := range revisions {
		names = append(names, r.Name)
	}
	fmt.Fprintf(&b, `
## The matrix

What a client gets of a server of another revision through a gateway. `+
		"`make full`"+` tries all of it,
with real sockets and real processes: clients of %d revisions over each of their transports at
servers of %d revisions over each of theirs, %d pairs, and %d features with each pair: %d cells.
`+"`go test ./gateway`"+` tries %d of the pairs, in which each end is a client and a server, each revision
meets each revision, and each transport each transport. What happens depends on the two revisions
alone, and is the same over all transports. HTTP is the transport with one address, which farcall
speaks in the first revision, too.

A field has a mark for each revision of the server, in the order
%s.
✓: it works. A number: it cannot be as it is elsewhere, and the note says what happens instead; that
was tried, too.

`, len(names), len(names), len(everyPair(ends())), len(m.features),
		len(everyPair(ends()))*len(m.features), len(covering(ends())), strings.Join(names, ", "))
	b.WriteString("| with a client of |")
	for _, name := range names {
		fmt.Fprintf(&b, " %s |", name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(names)) + "\n")
	var notes []*note
	for _, f := range m.features {
		fmt.Fprintf(&b, "| %s |", f.name)
		for _, client := range revisions {
			for _, server := range revisions {
				b.WriteByte(' ')
				b.WriteString(markOf(f.what(client, server), &notes))
			}
			b.WriteString(" |")
		}
		b.WriteByte('\n')
	}
	b.WriteString("\nNotes:\n\n")
	for i, n := range notes {
		b.WriteString(markdown.Item(fmt.Sprintf("%d. ", i+1), n.text))
	}
	b.WriteString(
		"\nHow many cells there are for each pair of transports; HTTP+SSE is that of one revision.\n\n")
	m.transports(&b)
	b.WriteByte('\n')
	return b.Bytes()
}

// markOf numbers a note when it is met for the first time.
func markOf(n *note, notes *[]*note) string {
	if n == nil {
		return "✓"
	}
	i := slices.Index(*notes, n)
	if i < 0 {
		i = len(*notes)
		*notes = append(*notes, n)
	}
	return fmt.Sprint(i + 1)
}

func (m *matrix) transports(b *bytes.Buffer) {
	count := map[[2]string]int{}
	for pair := range everyPair(ends()) {
		count[[2]string{pair[0].transport, pair[1].transport}] += len(m.features)
	}
	all := []string{overStdio, overHTTP, overSSE, overWS, overTCP, overUnix}
	b.WriteString("| client over | server over " + strings.Join(all, " | ") + " |\n|---|" +
		strings.Repeat("---|", len(all)) + "\n")
	for _, client := range all {
		fmt.Fprintf(b, "| %s |", client)
		for _, server := range all {
			fmt.Fprintf(b, " %d |", count[[2]string{client, server}])
		}
		b.WriteByte('\n')
	}
}
