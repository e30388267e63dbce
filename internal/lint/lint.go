// Package lint answers one question: which definitions of tools do models and clients misread, or
// refuse?
package lint

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Severity says how bad a finding is.
type Severity string

// The severities, the worst first: the specification is violated, or a client refuses the
// tool; some
// clients or models do; it could be better.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	Note    Severity = "note"
)

// A Finding is one problem of a definition.
type Finding struct {
	Severity Severity `json:"severity"`
	Tool     string   `json:"tool,omitzero"` // "": all of them together
	Rule     string   `json:"rule"`          // a name to look for
	Pointer  string   `json:"pointer,omitzero"`
	Message  string   `json:"message"` // what is wrong, and what to do
}

// A Cost is about how many tokens a definition takes of a model's context.
type Cost struct {
	Tool   string `json:"tool"`
	Tokens int    `json:"tokens"`
}

// A Report is what is found in a list of tools.
type Report struct {
	Findings []Finding `json:"findings"` // the worst first, in the order of the tools
	Costs    []Cost    `json:"costs"`    // the largest first
	Tokens   int       `json:"tokens"`   // of all
}

const (
	maxFindings  = 5000
	maxDepth     = 24
	toolTokens   = 1000
	allTokens    = 20_000
	manyTools    = 100
	manyParams   = 20
	longText     = 1024 // bytes of a description; OpenAI takes no more
	shortText    = 12
	deepNesting  = 5
	tokenBytes   = 4 // about so many bytes of JSON are a token
	manyChoices  = 100
	maxParamName = 64
	maxSpecName  = 128 // 2025-11-25, "Tool Names"
	maxModelName = 64  // the APIs of OpenAI and Anthropic
)

// Lengths are not in the patterns: each repetition would be compiled at the start of the program.
var (
	specName  = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	modelName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// Tools looks at the tools of a list, each as the server defines it.
func Tools(tools []jsonrpc.Raw) *Report {
	r := &Report{Findings: []Finding{}, Costs: []Cost{}}
	seen, alike := map[string]bool{}, map[string]string{}
	for _, raw := range tools {
		t := tool{r: r, raw: raw, name: text(raw, "name")}
		n := len(raw) / tokenBytes
		r.Costs = append(r.Costs, Cost{t.name, n})
		r.Tokens += n
		switch key := strings.NewReplacer("-", "_", ".", "_").Replace(strings.ToLower(t.name)); {
		case seen[t.name]:
			t.add(Error, "duplicate-name", "", "Another tool has the same name; give each its own.")
		case alike[key] != "":
			t.add(
				Warning,
				"similar-name",
				"",
				fmt.Sprintf(
					"The name differs from %q only in case or punctuation; models confuse them.",
					alike[key],
				),
			)
		default:
			alike[key] = t.name
		}
		seen[t.name] = true
		t.look(n)
	}
	if len(tools) > manyTools {
		r.add(
			Finding{
				Warning,
				"",
				"many-tools",
				"",
				fmt.Sprintf(
					"There are %d tools; models choose worse among more than %d. Offer fewer, or a search.",
					len(tools), manyTools,
				),
			},
		)
	}
	if r.Tokens > allTokens {
		r.add(
			Finding{
				Warning,
				"",
				"tokens",
				"",
				fmt.Sprintf(
					"The definitions take about %d tokens of a model's context; more than %d is much.",
					r.Tokens, allTokens,
				),
			},
		)
	}
	rank := map[Severity]int{Error: 0, Warning: 1, Note: 2}
	slices.SortStableFunc(
		r.Findings,
		func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) },
	)
	slices.SortStableFunc(r.Costs, func(a, b Cost) int { return cmp.Compare(b.Tokens, a.Tokens) })
	return r
}

func (r *Report) add(f Finding) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, f)
	}
}

// Count returns how many findings have a severity.
func (r *Report) Count(s Severity) (n int) {
	for i := range r.Findings {
		if r.Findings[i].Severity == s {
			n++
		}
	}
	return n
}

// A tool is a definition that is looked at.
type tool struct {
	r    *Report
	raw  jsonrpc.Raw
	name string
}

func (t *tool) add(s Severity, rule, pointer, message string) {
	t.r.add(Finding{s, t.name, rule, pointer, message})
}

// look applies all rules to a tool of n tokens.
func (t *tool) look(n int) {
	switch {
	case len(t.name) > maxSpecName || !specName.MatchString(t.name):
		t.add(Error, "name", "/name",
			"The name must be 1 to 128 letters, digits, _, - and . (MCP 2025-11-25, Tool Names).")
	case len(t.name) > maxModelName || !modelName.MatchString(t.name):
		t.add(Warning, "name-of-models", "/name",
			"The APIs of models take only names of 1 to 64 letters, digits, _ and -; clients must "+
				"rename this one.")
	}
	t.description(text(t.raw, "description"), "/description", "tool")
	t.input(scan.Member(t.raw, "inputSchema"))
	t.output(scan.Member(t.raw, "outputSchema"))
	t.annotations(scan.Member(t.raw, "annotations"))
	if n > toolTokens {
		t.add(Warning, "tool-tokens", "",
			fmt.Sprintf("The definition takes about %d tokens; more than %d is much for one tool.",
				n, toolTokens))
	}
}

func (t *tool) description(d, pointer, of string) {
	switch {
	case strings.TrimSpace(d) == "":
		t.add(Warning, "no-description", pointer,
			"There is no description; a model must guess from the name what the "+of+" is for.")
	case len(d) < shortText:
		t.add(Note, "short-description", pointer,
			"The description is very short; say what it does, and when to use it.")
	case len(d) > longText:
		t.add(Warning, "long-description", pointer,
			fmt.Sprintf("The description has %d bytes; some APIs take %d at most.", len(d),
				longText))
	}
	t.hidden(d, pointer)
}

// hidden finds characters that people do not see but models read.
func (t *tool) hidden(d, pointer string) {
	i := strings.IndexFunc(d, func(r rune) bool {
		return r != '\n' && r != '\t' && r != '\r' &&
			(unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Cc, r))
	})
	if i >= 0 {
		r := []rune(d[i:])[0]
		t.add(Error, "hidden-text", pointer,
			fmt.Sprintf("The text has %U, which people do not see and models read.", r))
	}
}

func (t *tool) input(schema jsonrpc.Raw) {
	const at = "/inputSchema"
	if len(schema) == 0 || schema[0] != '{' {
		t.add(
			Error, "no-schema", at,
			`There is no inputSchema; use {"type":"object","properties":{}} for a tool without arguments.`,
		)
		return
	}
	if text(schema, "type") != "object" {
		t.add(Error, "schema-type", at+"/type", `The type of an inputSchema must be "object".`)
	}
	t.compile(schema, at)
	for _, keyword := range []string{"oneOf", "anyOf", "allOf"} {
		if scan.Member(schema, keyword) != nil {
			t.add(
				Warning,
				"top-level-choice",
				at+"/"+keyword,
				"The APIs of models refuse "+keyword+" at the top of a schema; put the variants into "+
					"a property.",
			)
		}
	}
	t.node(schema, schema, at, 0)
}

// compile reports a schema that cannot be enforced.
func (t *tool) compile(schema jsonrpc.Raw, at string) {
	switch _, err := validate.Compile(schema, validate.Limits{}); {
	case err == nil:
	case errors.Is(err, validate.ErrUnsupported):
		t.add(Warning, "unsupported-schema", at,
			"Not all of the schema can be checked here: "+err.Error()+".")
	default:
		t.add(Error, "invalid-schema", at, "The schema is not valid: "+err.Error()+".")
	}
}

// node looks at a schema and those in it.
func (t *tool) node(root, schema jsonrpc.Raw, at string, depth int) {
	if len(schema) == 0 || schema[0] != '{' || depth > maxDepth {
		return
	}
	if depth == deepNesting {
		t.add(Note, "deep-schema", at, "The schema is deeply nested; models fill in flat ones better.")
	}
	if ref := text(schema, "$ref"); ref != "" && !strings.HasPrefix(ref, "#") {
		t.add(Error, "foreign-reference", at+"/$ref",
			"The reference leads to another document, which clients do not fetch.")
	}
	if text(schema, "type") == "array" && scan.Member(schema, "items") == nil &&
		scan.Member(schema, "prefixItems") == nil {
		t.add(
			Warning, "no-items", at,
			"An array without items: some APIs refuse it, and a model does not know what to put in.",
		)
	}
	choices := 0
	for range scan.Elements(scan.Member(schema, "enum")) {
		choices++
	}
	if choices > manyChoices {
		t.add(Note, "many-choices", at+"/enum",
			fmt.Sprintf("The enum has %d values, and a model must read them all.", choices))
	}
	if d := scan.Member(schema, "default"); d != nil {
		if err := validate.CompileForeign(schema, validate.Limits{}).
			Validate(d); err != nil &&
			scan.Member(schema, "$ref") == nil {
			t.add(Warning, "wrong-default", at+"/default",
				"The default does not fit its own schema: "+err.Error()+".")
		}
	}
	t.properties(root, schema, at, depth)
	t.node(root, scan.Member(schema, "items"), at+"/items", depth+1)
	for _, keyword := range []string{"oneOf", "anyOf", "allOf"} {
		i := 0
		for v := range scan.Elements(scan.Member(schema, keyword)) {
			t.node(root, v, fmt.Sprintf("%s/%s/%d", at, keyword, i), depth+1)
			i++
		}
	}
}

// typing are the keywords that say of what type a parameter is.
var typing = []string{"type", "$ref", "enum", "const", "oneOf", "anyOf", "allOf"}

func (t *tool) properties(root, schema jsonrpc.Raw, at string, depth int) {
	names := map[string]bool{}
	for key, value := range scan.Members(scan.Member(schema, "properties")) {
		name := string(key)
		names[name] = true
		where := at + "/properties/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
		if len(name) > maxParamName || !specName.MatchString(name) { // the API of Anthropic
			t.add(Warning, "parameter-name", where,
				fmt.Sprintf("Some APIs take only names of 1 to %d letters, digits, _, . and -.", maxParamName))
		}
		if len(value) == 0 || value[0] != '{' {
			continue
		}
		if !slices.ContainsFunc(typing, func(k string) bool { return scan.Member(value, k) != nil }) {
			t.add(Warning, "no-type", where, "The parameter has no type, so that a model may send anything.")
		}
		d := text(value, "description")
		if d == "" && scan.Member(value, "$ref") == nil && text(value, "title") == "" {
			t.add(Note, "no-parameter-description", where, "The parameter has no description.")
		}
		t.hidden(d, where+"/description")
		t.node(root, value, where, depth+1)
	}
	if depth == 0 && len(names) > manyParams {
		t.add(Note, "many-parameters", at,
			fmt.Sprintf("There are %d parameters; models fill in few better.", len(names)))
	}
	for v := range scan.Elements(scan.Member(schema, "required")) {
		if len(v) > 0 && v[0] == '"' && !names[string(scan.Unquote(v))] &&
			scan.Member(schema, "properties") != nil {
			t.add(Warning, "unknown-required", at+"/required",
				fmt.Sprintf("%s is required but is not among the properties.", v))
		}
	}
}

func (t *tool) output(schema jsonrpc.Raw) {
	switch {
	case schema == nil:
		t.add(Note, "no-output-schema", "",
			"There is no outputSchema; with one, clients and code know what comes back.")
	case text(schema, "type") != "object":
		t.add(Warning, "output-type", "/outputSchema/type",
			`Revisions up to 2025-11-25 allow only "object" as the type of an outputSchema.`)
	default:
		t.compile(schema, "/outputSchema")
	}
}

func (t *tool) annotations(a jsonrpc.Raw) {
	is := func(name string) string { return string(scan.Member(a, name)) }
	switch {
	case a == nil:
		t.add(
			Note, "no-annotations", "",
			"There are no annotations; clients must take the tool for destructive and ask before each call.",
		)
	case is("readOnlyHint") == "true" && is("destructiveHint") == "true":
		t.add(Warning, "contradicting-hints", "/annotations",
			"The tool says that it only reads, and that it is destructive.")
	}
}

// text returns the string that a member of an object is, "" when it is not a string.
func text(object []byte, member string) string {
	if len(object) == 0 || object[0] != '{' {
		return ""
	}
	v := scan.Member(object, member)
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return string(scan.Unquote(v))
}
