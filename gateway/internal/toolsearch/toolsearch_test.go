package toolsearch_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/gateway/internal/toolsearch"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// toolOf makes a tool of a server and a definition.
func toolOf(server, definition string) toolsearch.Tool {
	var d struct{ Name string }
	if err := json.Unmarshal([]byte(definition), &d); err != nil {
		panic(err)
	}
	return toolsearch.Tool{
		Name: server + "__" + d.Name, Own: d.Name, Server: server,
		Raw: jsonrpc.Raw(definition),
	}
}

func office() []toolsearch.Tool {
	return []toolsearch.Tool{
		toolOf("tracker",
			`{"name":"create_issue","title":"Open an issue","description":"Creates an issue in a repository. It needs a title.",
			"inputSchema":{"type":"object","required":["title"],"properties":{"title":{"type":"string"},"labels":{"type":"array","items":{"type":"string"}},"state":{"enum":["open","closed"]}}}}`),
		toolOf("tracker",
			`{"name":"listIssues","description":"Lists the issues of a repository.",`+
				`"annotations":{"readOnlyHint":true}}`),
		toolOf("tracker", `{"name":"deleteIssueComment","description":"Removes a comment."}`),
		toolOf("files",
			`{"name":"read_file","description":"Reads a file.\nBinary files are \u202eencoded.",`+
				`"annotations":{"readOnlyHint":true}}`),
		toolOf("files",
			`{"name":"write-file","description":"Writes a file.","inputSchema":{"type":"object",`+
				`"properties":{"where":{"type":"object","properties":{"volume":{"type":"string",`+
				`"description":"name of a disk"}}}}}}`),
		toolOf("mail", `{"name":"s3Upload","description":"GitHub OAuth2 upload."}`),
		toolOf("mail", `{"name":"search","description":"搜索关键词"}`),
	}
}

// found returns the names of the tools that fit, with a mark for exact and weak results.
func found(x *toolsearch.Index, q *toolsearch.Query) string {
	r := x.Search(q, nil)
	var names []string
	for _, i := range r.Tools {
		names = append(names, x.Tool(i).Name)
	}
	return fmt.Sprintf("%s exact %d more %d weak %v", strings.Join(names, " "), r.Exact,
		r.More, r.Weak)
}

// TestSearch has what queries find.
func TestSearch(t *testing.T) {
	t.Parallel()
	x := toolsearch.New(office())
	for q, want := range map[toolsearch.Query]string{
		{
			Text: "create issue", Limit: 1,
		}: "tracker__create_issue exact 1 more 2 weak false",
		{
			Text: "make an issue", Limit: 1,
		}: "tracker__create_issue exact 0 more 2 weak false",
		{
			Text: "remove comments", Limit: 1,
		}: "tracker__deleteIssueComment exact 0 more 0 weak false",
		{Text: "list issues", ReadOnly: true}: "tracker__listIssues exact 1 more 0 weak false",
		{
			Text: "file", Server: "files",
		}: "files__read_file files__write-file exact 0 more 0 weak false",
		{Text: "file", Server: "tracker"}: " exact 0 more 0 weak true",
		{Text: "READFILE"}:                "files__read_file exact 1 more 0 weak false",
		{
			Text: "write_file, tracker__listissues",
		}: "files__write-file tracker__listIssues exact 2 more 0 weak false",
		{Text: "disk volume"}: "files__write-file exact 0 more 0 weak false",
		{
			Text: "closed", Limit: 1,
		}: "tracker__create_issue exact 0 more 0 weak false",
		{Text: "github", Limit: 1}:  "mail__s3Upload exact 0 more 0 weak false",
		{Text: "git hub", Limit: 1}: "mail__s3Upload exact 0 more 0 weak false",
		{Text: "oauth", Limit: 1}:   "mail__s3Upload exact 0 more 0 weak false",
		{Text: "s3", Limit: 1}:      "mail__s3Upload exact 0 more 0 weak false",
		{Text: "关键", Limit: 1}:      "mail__search exact 0 more 0 weak false",
		{Text: "the of my"}:         " exact 0 more 0 weak true",
		{Text: ""}:                  " exact 0 more 0 weak true",
		{
			Text: "bake a cake with chocolate and a file",
		}: "files__read_file files__write-file exact 0 more 0 weak true",
		{Text: "binary encoded", Server: "files"}: "files__read_file exact 0 more 0 weak false",
		{
			Text: "nothing,write_file",
		}: "files__write-file files__read_file exact 1 more 0 weak false",
	} {
		if got := found(x, &q); got != want {
			t.Errorf("%+v\n got %s\nwant %s", q, got, want)
		}
	}
}

// TestAnswer has an answer in both forms.
func TestAnswer(t *testing.T) {
	t.Parallel()
	x := toolsearch.New(office())
	r := x.Search(&toolsearch.Query{Text: "lists the issues of a repository", Limit: 1}, nil)
	a := x.Answer(&r, &toolsearch.Form{Detail: "signature", Missing: []string{"old"}})
	const structured = `{"tools":[{"name":"tracker__listIssues","server":"tracker","signature":"()",` +
		`"description":"Lists the issues of a repository.","readOnly":true}],"weak":false,"more":3,` +
		`"missing":["old"]}`
	const text = "tracker__listIssues() - Lists the issues of a repository. [read-only]\n" +
		"3 more fit: use other words, or a larger limit.\nThese servers cannot be asked now: old."
	if string(a.Structured) != structured || a.Text != text {
		t.Errorf("%s\n%s", a.Structured, a.Text)
	}
	r = x.Search(&toolsearch.Query{Text: "create_issue"}, nil)
	a = x.Answer(&r, &toolsearch.Form{})
	if want := `tracker__create_issue(title: string, labels?: string[], state?: ` +
		`"open"|"closed")`; !strings.HasPrefix(a.Text, want) ||
		!strings.Contains(string(a.Structured), `"inputSchema":{`) {
		t.Errorf("%s\n%s", a.Structured, a.Text)
	}
	r = x.Search(&toolsearch.Query{Text: "zebra"}, nil)
	if a = x.Answer(&r, &toolsearch.Form{Servers: []string{"a", "b"}}); a.Text !=
		"No tool has these words. There are tools on: a, b." {
		t.Error(a.Text)
	}
}

// many makes a catalogue of n tools from a few words.
func many(n int, random *rand.Rand) (all []toolsearch.Tool) {
	verbs := []string{"create", "list", "delete", "update", "send", "export", "import", "merge"}
	nouns := []string{
		"issue", "comment", "file", "user", "team", "invoice", "mail", "page", "branch",
		"record",
	}
	for i := range n {
		verb, noun, other := verbs[random.IntN(len(verbs))], nouns[random.IntN(len(nouns))],
			nouns[random.IntN(len(nouns))]
		all = append(all,
			toolOf(fmt.Sprint("server", i%7),
				fmt.Sprintf(`{"name":"%s_%s_%d","description":"%ss the %s of a %s. Word%d is here.",
			"inputSchema":{"type":"object","required":["%s"],"properties":{"%s":{"type":"string","description":"%s of it"},"limit":{"type":"integer"}}}}`,
					verb, noun, i, verb, noun, other, i, noun, noun, strings.Repeat(other+" ", i%40))))
	}
	return all
}

// TestHidden: a tool that the caller may not use changes no byte of any answer.
func TestHidden(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		all := many(40, random)
		allowed := map[string]bool{}
		var some []toolsearch.Tool
		for _, tool := range all {
			if random.IntN(3) > 0 {
				allowed[tool.Name] = true
				some = append(some, tool)
			}
		}
		whole, part := toolsearch.New(all), toolsearch.New(some)
		for _, text := range []string{
			"create issue", "list", "word3", "word3 word4 file",
			all[random.IntN(40)].Name, all[0].Name + "," + all[1].Name, "team mails", "no",
		} {
			q := &toolsearch.Query{Text: text, Limit: 1 + random.IntN(20)}
			mine := whole.Search(q, func(i int) bool { return allowed[whole.Tool(i).Name] })
			theirs := part.Search(q, nil)
			a, b := whole.Answer(&mine, &toolsearch.Form{}), part.Answer(&theirs, &toolsearch.Form{})
			if string(a.Structured) != string(b.Structured) || a.Text != b.Text {
				t.Fatalf("%q\n%s\n%s", text, a.Structured, b.Structured)
			}
		}
	}
}

// TestOrder: the order of the tools has no effect.
func TestOrder(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	all := many(300, random)
	x := toolsearch.New(all)
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	y := toolsearch.New(all)
	for _, text := range []string{"create issue", "list", "user of team", "limit"} {
		if q := (&toolsearch.Query{Text: text, Limit: 20}); found(x, q) != found(y, q) {
			t.Errorf("%s\n%s\n%s", text, found(x, q), found(y, q))
		}
	}
}

// TestBudget: no answer is longer than the budget, whatever upstreams write.
func TestBudget(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 5000)
	var all []toolsearch.Tool
	for i := range 30 {
		all = append(all,
			toolOf(strings.Repeat("s", 64),
				fmt.Sprintf(
					`{"name":"%s%d","title":"%s","description":"%s",`+
						`"inputSchema":{"properties":{"a":{"enum":["%s"]},"%s":{},"b":{"description":"%s"}}}}`,
					strings.Repeat("n", 1000), i, long, long, long, long, long)))
	}
	x := toolsearch.New(all)
	servers := slices.Repeat([]string{strings.Repeat("s", 64)}, 500)
	for _, detail := range []string{"", "schema", "signature"} {
		for _, text := range []string{"long", "none"} {
			r := x.Search(&toolsearch.Query{Text: text, Limit: 20}, nil)
			a := x.Answer(&r, &toolsearch.Form{Detail: detail, Missing: servers, Servers: servers})
			if len(a.Structured) > toolsearch.Budget || len(a.Text) > toolsearch.Budget ||
				!json.Valid(a.Structured) {
				t.Errorf("%s %s: %d and %d bytes", detail, text, len(a.Structured), len(a.Text))
			}
		}
	}
}

// TestCosts: an index takes little memory, and a search few allocations.
func TestCosts(t *testing.T) {
	x := toolsearch.New(many(2500, rand.New(rand.NewPCG(5, 6))))
	if per := x.Bytes() / x.Len(); per > 2<<10 {
		t.Errorf("%d bytes for each tool", per)
	}
	q := &toolsearch.Query{Text: "create an issue comment for the team"}
	if n := testing.AllocsPerRun(20, func() { x.Search(q, nil) }); n > 80 {
		t.Errorf("a search makes %.0f allocations", n)
	} else {
		t.Logf("%d bytes a tool, %.0f allocations a search", x.Bytes()/x.Len(), n)
	}
}

// FuzzSearch: whatever a client asks for and a server writes, the answer is valid, within the
// limits, and the same each time.
func FuzzSearch(f *testing.F) {
	f.Add("create issue", "createIssue", "Creates an issue.", 6)
	f.Add("a,b,_", "read_file", "关键 \u202e \xff", -1)
	f.Add("ISSUESes oauth2S3Bucket", "x__y", "...", 100)
	f.Fuzz(func(t *testing.T, text, name, description string, limit int) {
		definition, err := json.Marshal(map[string]any{
			"name": name, "description": description,
			"inputSchema": map[string]any{
				"required":   []string{name},
				"properties": map[string]any{name: map[string]any{"enum": []string{description}}},
			},
		})
		if err != nil {
			t.Skip()
		}
		all := append(office(),
			toolsearch.Tool{Name: "fuzz__" + name, Own: name, Server: "fuzz", Raw: definition})
		x := toolsearch.New(all)
		q := &toolsearch.Query{Text: text, Limit: limit}
		r := x.Search(q, func(i int) bool { return x.Tool(i).Server != "mail" })
		again := x.Search(q, func(i int) bool { return x.Tool(i).Server != "mail" })
		if fmt.Sprint(r) != fmt.Sprint(again) || len(r.Tools) > 20 || r.More < 0 ||
			r.Exact > len(r.Tools) {
			t.Fatalf("%+v, %+v", r, again)
		}
		for _, i := range r.Tools {
			if x.Tool(i).Server == "mail" {
				t.Fatalf("%q finds %s", text, x.Tool(i).Name)
			}
		}
		for _, detail := range []string{"", "schema", "signature"} {
			a := x.Answer(&r, &toolsearch.Form{Detail: detail})
			if !json.Valid(a.Structured) || len(a.Structured) > toolsearch.Budget ||
				len(a.Text) > toolsearch.Budget {
				t.Fatalf("%s\n%s", a.Structured, a.Text)
			}
		}
	})
}

// TestAnswerWholeSchema: a query that names a tool exactly gets its whole schema, also above the
// budget.
func TestAnswerWholeSchema(t *testing.T) {
	t.Parallel()
	var properties strings.Builder
	for i := range 400 {
		fmt.Fprintf(&properties,
			`,"p%d":{"type":"object","properties":{"a":{"type":"string","description":"the part of `+
				`number %d"}}}`, i, i)
	}
	schema := `{"type":"object","properties":{` + properties.String()[1:] + `}}`
	var tools []toolsearch.Tool
	for _, name := range []string{"big_tool", "big_other"} {
		tools = append(tools,
			toolsearch.Tool{
				Name: "s__" + name, Own: name, Server: "s",
				Raw: jsonrpc.Raw(`{"name":"s__` + name + `","inputSchema":` + schema + `}`),
			})
	}
	x := toolsearch.New(tools)
	for _, query := range []string{"s__big_tool", "big_tool", "s__big_tool,s__big_other"} {
		r := x.Search(&toolsearch.Query{Text: query}, nil)
		a := x.Answer(&r, &toolsearch.Form{Detail: toolsearch.DetailSchema})
		if jsonrpc.Valid(a.Structured) != nil || strings.Count(string(a.Structured), schema) != 1 ||
			strings.Count(a.Text, schema) != 1 {
			t.Errorf("%s: %d bytes, and a text of %d, with a schema of %d", query, len(a.Structured),
				len(a.Text), len(schema))
		}
	}
	r := x.Search(&toolsearch.Query{Text: "big things"}, nil)
	if a := x.Answer(&r, &toolsearch.Form{Detail: toolsearch.DetailSchema}); len(a.Structured) >
		toolsearch.Budget || len(a.Text) > toolsearch.Budget {
		t.Errorf("words have an answer of %d bytes, and a text of %d", len(a.Structured), len(a.Text))
	}
}
