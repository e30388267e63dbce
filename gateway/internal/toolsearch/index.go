package toolsearch

import (
	"cmp"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Tool is what an [Index] takes of a tool.
type Tool struct {
	Name   string // by which it is called
	Own    string // Name without what stands for the server; it is what the name says about the tool
	Server string
	Raw    jsonrpc.Raw // its definition as it is shown; the Index keeps it
}

// The fields of a tool.
const (
	fieldServer = iota
	fieldName
	fieldTitle
	fieldFirst // sentence of the description
	fieldRest  // of the description
	fieldParameters
	fieldTexts // descriptions and values of parameters
	fields
)

// layout has what the fields differ in: their weights, how much a longer one counts less, and how
// many terms are read.
var layout = [fields]struct {
	weight, length float32
	longest        int
}{
	fieldServer:     {1.5, 0, 8},
	fieldName:       {4, .7, 24},
	fieldTitle:      {2, .4, 24},
	fieldFirst:      {2, .6, 40},
	fieldRest:       {1, .6, 120},
	fieldParameters: {.7, .7, 80},
	fieldTexts:      {.25, .7, 120},
}

// An Index has the tools of a catalogue. It does not change.
type Index struct {
	tools    []entry
	ids      map[string]int32 // of the terms
	postings [][]posting      // by the id of the term, in the order of the tools
	names    map[string][]int32
	bytes    int
}

type entry struct {
	Tool

	title, description string
	schema             jsonrpc.Raw
	readOnly           bool
	folded             string  // Own
	own                []int32 // the terms of Own, each once
	lengths            [fields]uint8
}

// A posting says how often a term is in the fields of a tool.
type posting struct {
	tool   int32
	counts [fields]uint8
}

// New makes an index of the tools. Their order has no effect.
func New(tools []Tool) *Index {
	x := &Index{ids: map[string]int32{}, names: map[string][]int32{}}
	x.tools = make([]entry, 0, len(tools))
	for _, t := range tools {
		x.tools = append(x.tools, entry{Tool: t})
	}
	slices.SortStableFunc(x.tools, func(a, b entry) int { return cmp.Compare(a.Name, b.Name) })
	for i := range x.tools {
		x.add(int32(i))
	}
	x.bytes += 24*len(x.postings) + 160*len(x.tools)
	return x
}

// Bytes is how much memory the index needs, about, without the definitions.
func (x *Index) Bytes() int { return x.bytes }

// Len is how many tools there are.
func (x *Index) Len() int { return len(x.tools) }

// Tool returns a tool by its number, in the order of the names.
func (x *Index) Tool(i int) *Tool { return &x.tools[i].Tool }

func (x *Index) add(i int32) {
	t := &x.tools[i]
	var parameters, texts strings.Builder
	for key, value := range scan.Members(t.Raw) {
		switch string(key) {
		case "title":
			t.title = plain(textOf(value))
		case "description":
			t.description = plain(textOf(value))
		case "inputSchema":
			t.schema = value
			describe(value, &parameters, &texts, 0)
		case "annotations":
			t.readOnly = string(scan.Member(value, "readOnlyHint")) == "true"
			if title := textOf(scan.Member(value, "title")); t.title == "" {
				t.title = plain(title)
			}
		}
	}
	first := sentence(t.description)
	for f, text := range [fields]string{
		fieldServer: t.Server, fieldName: t.Own, fieldTitle: t.title, fieldFirst: first,
		fieldRest:       t.description[len(first):],
		fieldParameters: parameters.String(), fieldTexts: texts.String(),
	} {
		x.read(i, f, text)
	}
	t.folded = fold(t.Own)
	for _, name := range []string{t.folded, fold(t.Name)} {
		if all := x.names[name]; len(all) == 0 || all[len(all)-1] != i {
			x.names[name] = append(all, i)
			x.bytes += len(name) + 40
		}
	}
}

// read adds the terms of a field.
func (x *Index) read(i int32, field int, text string) {
	t := &x.tools[i]
	terms(text, func(term string) bool {
		id, known := x.ids[term]
		if !known {
			id = int32(len(x.postings))
			term = strings.Clone(term)
			x.ids[term], x.postings = id, append(x.postings, nil)
			x.bytes += len(term) + 40
		}
		of := x.postings[id]
		if len(of) == 0 || of[len(of)-1].tool != i {
			of = append(of, posting{tool: i})
			x.postings[id] = of
			x.bytes += 12
		}
		if last := &of[len(of)-1]; last.counts[field] < 255 {
			last.counts[field]++
		}
		if field == fieldName && !slices.Contains(t.own, id) {
			t.own = append(t.own, id)
		}
		t.lengths[field]++
		return int(t.lengths[field]) < layout[field].longest
	})
}

// deepest is how far into a schema parameters are read.
const deepest = 3

// describe adds the names of the properties of a schema, and their descriptions.
func describe(schema []byte, names, texts *strings.Builder, depth int) {
	if depth > deepest || texts.Len()+names.Len() > 8<<10 {
		return
	}
	for key, value := range scan.Members(schema) {
		switch string(key) {
		case "properties":
			for name, property := range scan.Members(value) {
				names.Write(name)
				names.WriteByte(' ')
				describe(property, names, texts, depth+1)
			}
		case "items":
			describe(value, names, texts, depth+1)
		case "description":
			if depth > 0 {
				texts.WriteString(textOf(value))
				texts.WriteByte(' ')
			}
		case "enum":
			for one := range scan.Elements(value) {
				texts.WriteString(textOf(one))
				texts.WriteByte(' ')
			}
		}
	}
}

// textOf returns the characters of a JSON string, "" for any other value.
func textOf(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	return string(scan.Unquote(raw))
}

// sentence returns the beginning of a text up to the end of its first sentence.
func sentence(text string) string {
	for i := range len(text) {
		if (text[i] == '.' || text[i] == '!' || text[i] == '?') && i > 8 &&
			(i+1 == len(text) || text[i+1] == ' ') {
			return text[:i+1]
		}
	}
	return text
}
