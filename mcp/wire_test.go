package mcp_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/farcall-dev/farcall/internal/mcptest"
)

// The exchanges are in testdata/wire/REVISION/*.txtar; each file is one
// exchange, and can be read as documentation:
//
//	What it shows.
//	-- server --
//	tools add                   what the server has: see wireServer
//	-- meta --
//	{"k":"v"}                   what <meta> stands for below; common.txtar has what all files share
//	-- stream --
//	# a comment
//	begin {"roots":{}}          the handshake, with these capabilities
//	> {"jsonrpc":"2.0",         the client sends one message …
//	>   "id":1,"method":"ping"}
//	< {"jsonrpc":"2.0",…        … and this is what comes back until nothing moves any more
//	>! {"jsonrpc":"1.0"}        the client sends what is no message of the revision
//	wait 1m                     time passes (it is virtual)
//
// Over http a line that is sent begins a request, and a name before the mark
// tells requests that are open at the same time from each other:
//
//	get> GET /mcp
//	get> Mcp-Session-Id: <session>
//	get< 200 OK
//	get> gone                   the client closes the connection
//
// In the sections client and http client it is the client that is tested: the
// marks stay the same, "! tool add {}" tells it what to do, and "= …" is what it
// made of the answer.
//
// What is random (sessions, states, tasks) has a name: <session>, <state>, <task>.
// go test ./mcp -run TestWire -update writes what comes back into the files.

var update = flag.Bool("update", false, "write what comes back into testdata/wire")

// wireLine is one line of an exchange: the name of a request, who sends,
// whether it is wrong on purpose, and the text.
var wireLine = regexp.MustCompile(`^([a-z0-9]*)([<>])(!?)(?: (.*))?$`)

// wireStatus begins an answer of HTTP.
var wireStatus = regexp.MustCompile(`^\d\d\d [A-Z]`)

// wireWidth is the width beyond which JSON takes several lines.
const wireWidth = 110

// wireFile is a parsed file.
type wireFile struct {
	archive  *txtar.Archive
	revision string
	server   string
	kind     string            // stream, http, client or http client
	text     string            // the exchange
	macros   map[string]string // compact JSON by name
}

func wireFiles(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/wire/*/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal("no exchanges: ", err)
	}
	var files []string
	for _, name := range names {
		if filepath.Base(name) != "common.txtar" {
			files = append(files, name)
		}
	}
	return files
}

func readWire(t *testing.T, name string) *wireFile {
	t.Helper()
	f := &wireFile{revision: filepath.Base(filepath.Dir(name)), macros: map[string]string{}}
	common, err := txtar.ParseFile(filepath.Join(filepath.Dir(name), "common.txtar"))
	if errors.Is(err, fs.ErrNotExist) {
		common = &txtar.Archive{}
	} else if err != nil {
		t.Fatal(err)
	}
	if f.archive, err = txtar.ParseFile(name); err != nil {
		t.Fatal(err)
	}
	for _, section := range append(common.Files, f.archive.Files...) {
		text := string(section.Data)
		switch section.Name {
		case "server":
			f.server = text
		case "stream", "http", "client", "http client":
			f.kind, f.text = section.Name, text
		default:
			f.macros[section.Name] = compactJSON(text)
		}
	}
	if f.kind == "" {
		t.Fatal("no section stream, http, client or http client")
	}
	return f
}

func compactJSON(text string) string {
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}

// TestWire plays the exchanges.
func TestWire(t *testing.T) {
	for _, name := range wireFiles(t) {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(name), "testdata/wire/"), ".txtar"),
			func(t *testing.T) {
				f := readWire(t, name)
				var got string
				synctest.Test(t, func(t *testing.T) { got = playWire(t, f) })
				if got == f.text || t.Failed() {
					return
				}
				if !*update {
					t.Errorf("go test -run TestWire -update writes what came back.\n%s", wireDiff(f.text, got))
					return
				}
				for i := range f.archive.Files {
					if f.archive.Files[i].Name == f.kind {
						f.archive.Files[i].Data = []byte(got)
					}
				}
				if err := os.WriteFile(name, txtar.Format(f.archive), 0o600); err != nil {
					t.Fatal(err)
				}
			})
	}
}

// wireDiff shows the first lines that differ.
func wireDiff(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	part := func(lines []string) string {
		return strings.Join(lines[max(0, min(i-2, len(lines))):min(i+12, len(lines))], "\n\t")
	}
	return fmt.Sprintf("line %d of the exchange:\n\t%s\ngot\n\t%s", i+1, part(a), part(b))
}

// wireEnd is the raw end of an exchange: what stands opposite of the code that
// is tested.
type wireEnd interface {
	begin(capabilities string)      // the handshake
	send(name string, lines []byte) // what is between two other things
	do(command string)
	collect() []wireGot // what has come since, when nothing moves any more
	close()
}

// wireGot is one thing that came. Text that is JSON, or JSON behind "data: ", is
// laid out.
type wireGot struct{ prefix, text string }

// wirePlay is one exchange that is played.
type wirePlay struct {
	t        *testing.T
	file     *wireFile
	end      wireEnd
	captured [][2]string // value and name
	out      strings.Builder
}

func playWire(t *testing.T, f *wireFile) string {
	t.Helper()
	p := &wirePlay{t: t, file: f}
	sends := ">"
	switch f.kind {
	case "stream":
		p.end = newWireStream(p)
	case "http":
		p.end = newWireHTTP(p)
	case "client":
		p.end, sends = newWireClient(p), "<"
	case "http client":
		p.end, sends = newWireHTTPClient(p), "<"
	}
	lines := strings.Split(strings.TrimSuffix(f.text, "\n"), "\n")
	for len(lines) > 0 {
		m := wireLine.FindStringSubmatch(lines[0])
		switch {
		case m != nil && m[2] == sends:
			n := 0
			var block []byte
			for ; n < len(lines); n++ {
				next := wireLine.FindStringSubmatch(lines[n])
				if next == nil || next[1] != m[1] || next[2] != m[2] || next[3] != m[3] && f.kind != "http" ||
					n > 0 && wireStatus.MatchString(next[4]) {
					break
				}
				block = append(append(block, next[4]...), '\n')
				if f.kind == "client" && json.Valid([]byte(p.filled(string(block)))) {
					n++ // a server says one thing after the other
					break
				}
			}
			text := p.filled(string(block))
			p.sent(lines[:n], text)
			p.end.send(m[1], []byte(text))
			p.received()
			lines = lines[n:]
			continue
		case m != nil || strings.HasPrefix(lines[0], "= "): // came, or will not come any more
		default:
			p.line(lines[0])
			p.command(lines[0])
		}
		lines = lines[1:]
	}
	p.end.close()
	return p.out.String()
}

func (p *wirePlay) line(text string) { p.out.WriteString(text + "\n") }

// sent writes down what is sent, JSON as it comes.
func (p *wirePlay) sent(lines []string, filled string) {
	last := wireLine.FindStringSubmatch(lines[len(lines)-1])
	prefix := last[1] + last[2] + last[3]
	start := slices.IndexFunc(strings.Split(filled, "\n"), func(s string) bool {
		return strings.HasPrefix(s, "{") || strings.HasPrefix(s, "[")
	})
	if start < 0 {
		start = len(lines)
	}
	for _, line := range lines[:min(start, len(lines))] {
		p.line(line)
	}
	if start >= len(lines) {
		return
	}
	body := strings.Join(strings.SplitAfter(filled, "\n")[start:], "")
	for _, frame := range wireFrames([]byte(body)) {
		for _, line := range p.layout(frame, len(prefix)+1) {
			p.line(prefix + " " + line)
		}
	}
}

func (p *wirePlay) command(line string) {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "", "#":
		return
	case "begin":
		p.end.begin(rest)
		if got := p.end.collect(); len(got) > 0 && p.file.kind == "stream" {
			p.t.Fatal("after begin:", got)
		}
		return
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			p.t.Fatal(err)
		}
		<-time.After(d) // virtual
	case "!":
		p.end.do(p.filled(rest))
	default:
		p.t.Fatalf("what is %q?", line)
	}
	p.received()
}

// received writes down what has come.
func (p *wirePlay) received() {
	for _, got := range p.end.collect() {
		before := ""
		text := strings.TrimPrefix(got.text, "data: ")
		if text != got.text {
			before = "data: "
		}
		p.learn(text)
		lines := p.layout(text, len(got.prefix+before))
		p.line(strings.TrimRight(got.prefix+" "+before+lines[0], " "))
		for _, line := range lines[1:] {
			p.line(got.prefix + " " + line)
		}
	}
}

// filled replaces the names in what is sent by what they stand for.
func (p *wirePlay) filled(text string) string {
	for name, value := range p.file.macros {
		text = strings.ReplaceAll(text, "<"+name+">", value)
	}
	for _, c := range p.captured {
		text = strings.ReplaceAll(text, c[1], c[0])
	}
	return text
}

// wireRandom finds what is random in what comes.
var wireRandom = []struct {
	name string
	expr *regexp.Regexp
}{
	{"state", regexp.MustCompile(`"requestState": ?"([^"]+)"`)},
	{"cursor", regexp.MustCompile(`"nextCursor": ?"([^"]+)"`)},
	{"elicit", regexp.MustCompile(`"(elicit-[0-9a-f]{8})"`)},
	{"sample", regexp.MustCompile(`"(sample-[0-9a-f]{8})"`)},
	{"roots", regexp.MustCompile(`"(roots-[0-9a-f]{8})"`)},
	{"task", regexp.MustCompile(`"taskId": ?"([^"]+)"`)},
	{"elicitation", regexp.MustCompile(`"elicitationId": ?"([^"]+)"`)},
	{"session", regexp.MustCompile(`(?i)(?:^Mcp-Session-Id: |sessionId=)([A-Za-z0-9_-]{8,})`)},
}

// learn names what is random.
func (p *wirePlay) learn(text string) {
	for _, random := range wireRandom {
		for _, m := range random.expr.FindAllStringSubmatch(text, -1) {
			p.capture(random.name, m[1])
		}
	}
}

func (p *wirePlay) capture(base, value string) {
	n := 1
	for _, c := range p.captured {
		if c[0] == value {
			return
		}
		if strings.TrimRight(c[1], "0123456789>") == "<"+base {
			n++
		}
	}
	name := "<" + base + ">"
	if n > 1 {
		name = fmt.Sprintf("<%s%d>", base, n)
	}
	p.captured = append(p.captured, [2]string{value, name})
}

// layout writes text with names for what has them, JSON on as many lines as it
// needs.
func (p *wirePlay) layout(text string, indent int) []string {
	for _, c := range p.captured {
		text = strings.ReplaceAll(text, c[0], c[1])
	}
	if !json.Valid([]byte(text)) {
		return []string{text}
	}
	for name, value := range p.file.macros {
		text = strings.ReplaceAll(text, value, `"<`+name+`>"`)
	}
	text = layoutJSON([]byte(text), indent, 0)
	for name := range p.file.macros {
		text = strings.ReplaceAll(text, `"<`+name+`>"`, "<"+name+">")
	}
	return strings.Split(text, "\n")
}

// layoutJSON writes what fits on a line on one line, keeping the order of
// members. column is where it begins, indent that of its line.
func layoutJSON(raw []byte, column, indent int) string {
	compact := compactJSON(string(raw))
	if column+len(compact) <= wireWidth || compact[0] != '{' && compact[0] != '[' {
		return compact
	}
	inner := indent + 2
	dec := json.NewDecoder(strings.NewReader(compact))
	_, err := dec.Token()
	var out strings.Builder
	out.WriteString(compact[:1])
	column++
	for n := 0; err == nil && dec.More(); n++ {
		key := ""
		if compact[0] == '{' {
			var name any
			name, err = dec.Token()
			key = fmt.Sprintf("%q:", name)
		}
		var value json.RawMessage
		if err == nil {
			err = dec.Decode(&value)
		}
		if n > 0 {
			out.WriteString(",")
		}
		if n > 0 && column+len(key)+len(value) > wireWidth {
			out.WriteString("\n" + strings.Repeat(" ", inner))
			column = inner
		}
		part := key + layoutJSON(value, column+len(key), inner)
		out.WriteString(part)
		column += len(part) + 1
		if strings.Contains(part, "\n") {
			column = wireWidth // nothing follows on the last line of something long
		}
	}
	if err != nil {
		return compact
	}
	return out.String() + compact[len(compact)-1:]
}

// TestWireSchemas holds the messages of all exchanges against the schemas of
// their revisions.
func TestWireSchemas(t *testing.T) {
	dir := mcptest.Dir(t)
	checks := map[string]*wireSchema{}
	for _, name := range wireFiles(t) {
		t.Run(filepath.ToSlash(strings.TrimPrefix(name, "testdata/wire/")), func(t *testing.T) {
			f := readWire(t, name)
			if checks[f.revision] == nil {
				checks[f.revision] = newWireSchema(t, dir, f.revision)
			}
			checks[f.revision].file(t, f)
		})
	}
}
