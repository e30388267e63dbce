package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/toolsearch"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The tools that an address with tool search shows.
const (
	searchTools  = "search_tools"
	callTool     = "call_tool"
	callToolRead = "call_tool_read"
)

// The values of Search.Mode.
const (
	searchAlways = "always"
	searchAuto   = "auto"
)

// With searchAuto a caller gets the list itself while it is not larger than this.
const (
	autoTools = 40
	autoBytes = 40 << 10
)

// maxShown bounds the tools that are shown beside search_tools.
const maxShown = 10

// isSearch reports whether a name is of one of the tools of tool search.
func isSearch(name string) bool {
	return name == searchTools || name == callTool || name == callToolRead
}

// searchOf returns how the tools of the address are searched; nil: they are listed.
func (e *endpoint) searchOf() *Search {
	p := e.g.plan.Load()
	if v := p.virtual[e.name]; v != nil {
		return v.cfg.Search
	}
	if e.name == "" {
		return p.config.Search
	}
	return nil
}

// A catalogue is the tools of an address, and which of them a caller may call.
type catalogue struct {
	*route.Whole

	e      *endpoint
	ctx    context.Context //nolint:containedctx // of one answer
	index  *searchIndex
	hidden map[string]bool // servers with tools that are too old to be shown
}

// A searchIndex is what is made of a list of tools once, for all callers: a query asks the guard
// about each of them, and finds here what that needs.
type searchIndex struct {
	*toolsearch.Index

	tools []listedTool // in the order of the list
	at    []int        // the places of the tools of the Index in it

	mu   sync.Mutex
	seen map[any][]bool // the tools of the Index that a caller may call, by guard.Standing
}

type listedTool struct {
	route.Entry

	annotations jsonrpc.Raw
}

// sizeOfListed is about what a listedTool costs beside its texts, in bytes.
const sizeOfListed = 256

// newSearchIndex makes the index of a list of tools. A name that is there twice calls no tool, and
// is not found.
func newSearchIndex(view *route.View, all []route.Entry) *searchIndex {
	x := &searchIndex{tools: make([]listedTool, 0, len(all))}
	tools, at := make([]toolsearch.Tool, 0, len(all)), make(map[string]int, len(all))
	for i := range all {
		t := &all[i]
		x.tools = append(x.tools, listedTool{*t, scan.Member(t.Item, "annotations")})
		if before, twice := at[t.Shown]; twice {
			at[t.Shown] = -1
			if before >= 0 {
				tools = slices.DeleteFunc(tools, func(o toolsearch.Tool) bool { return o.Name == t.Shown })
			}
			continue
		}
		at[t.Shown] = i
		own := t.Shown
		if r, _ := view.Refs(t.Source); r != nil {
			if name, ok := r.StripName(t.Shown); ok {
				own = name
			}
		}
		tools = append(tools, toolsearch.Tool{Name: t.Shown, Own: own, Server: t.Source, Raw: t.Raw})
	}
	x.Index = toolsearch.New(tools)
	for i := range x.Len() {
		x.at = append(x.at, at[x.Tool(i).Name])
	}
	return x
}

// catalogue returns the tools of the address for the caller in ctx.
func (e *endpoint) catalogue(ctx context.Context) (*catalogue, error) {
	view, _ := e.servers()
	whole, err := view.Whole(ctx, route.Tools)
	for {
		newer, _ := e.servers()
		if newer == view || ctx.Err() != nil {
			break
		}
		view = newer // the other one was closed meanwhile
		whole, err = view.Whole(ctx, route.Tools)
	}
	if err != nil {
		return nil, err
	}
	c := &catalogue{Whole: whole, e: e, ctx: ctx, hidden: whole.Hidden()}
	c.index, _ = whole.Derived(func(all []route.Entry) (any, int) {
		x := newSearchIndex(view, all)
		return x, x.Bytes() + sizeOfListed*len(x.tools)
	}).(*searchIndex)
	return c, nil
}

// allows reports whether the caller may call a tool of the index. It is what filters the list of
// tools.
func (c *catalogue) allows(tool int) bool {
	return c.sees(&c.index.tools[c.index.at[tool]])
}

func (c *catalogue) sees(t *listedTool) bool {
	return !c.hidden[t.Source] && c.e.offers(c.ctx, route.Tools, &t.Target) &&
		c.e.g.shield.shownAs(c.ctx, route.Tools, &t.Target, t.annotations)
}

// entries returns the tools that the caller may call, in the order of the list.
func (c *catalogue) entries() []route.Entry {
	all := make([]route.Entry, 0, len(c.index.tools))
	for i := range c.index.tools {
		if t := &c.index.tools[i]; c.sees(t) {
			all = append(all, t.Entry)
		}
	}
	return all
}

// servers returns the names of the servers with tools that are shown, to any caller.
func (c *catalogue) servers() map[string]bool {
	names := map[string]bool{}
	for i := range c.index.tools {
		if t := &c.index.tools[i]; !c.hidden[t.Source] {
			names[t.Source] = true
		}
	}
	return names
}

// serversOf returns the names of the servers of some tools, each once, in order.
func serversOf(tools []route.Entry) (names []string) {
	for i := range tools {
		if !slices.Contains(names, tools[i].Source) {
			names = append(names, tools[i].Source)
		}
	}
	return names
}

// searchList returns the list of tools in which search_tools and call_tool stand for the others. It
// reports false when the list itself is to be shown.
func (e *endpoint) searchList(
	ctx context.Context, cursor string,
) (raw jsonrpc.Raw, searched bool, err error) {
	s := e.searchOf()
	if s == nil {
		return nil, false, nil
	}
	c, err := e.catalogue(ctx)
	if err != nil {
		return nil, true, err
	}
	servers := c.servers()
	e.announced.Store(&servers)
	out, always, searched := s.appendList(jsonrpc.Raw(`{"resultType":"complete","tools":[`),
		c.entries())
	switch {
	case !searched:
		return nil, false, nil
	case cursor != "":
		return nil, true, errCursor // there is one page
	}
	out = append(out, `],"ttlMs":0,"cacheScope":"private"`...)
	if len(c.Missing) > 0 && always < len(s.Always) {
		out = appendMissing(out, c.Missing, e.g.plain())
	}
	return append(out, '}'), true, nil
}

// appendList appends what is shown in place of a list of tools: those that are always shown, and
// how many these are, and those of tool search. It reports false when the list itself is to be
// shown.
func (s *Search) appendList(
	out jsonrpc.Raw, tools []route.Entry,
) (_ jsonrpc.Raw, always int, searched bool) {
	if s.Mode == searchAuto && len(tools) <= autoTools && sizeOf(tools) <= autoBytes {
		return out, 0, false
	}
	for i := range tools {
		if always < maxShown && s.shows(&tools[i].Target) {
			out = append(append(out, tools[i].Raw...), ',')
			always++
		}
	}
	return appendSearch(out, serversOf(tools), s), always, true
}

// sizeOf is the size of the definitions of tools.
func sizeOf(tools []route.Entry) (bytes int) {
	for i := range tools {
		bytes += len(tools[i].Raw)
	}
	return bytes
}

// announces reports whether the description of search_tools lists a server already: then nothing
// that a client sees changes with the tools of the server.
func (e *endpoint) announces(server string) bool {
	listed := e.announced.Load()
	return listed != nil && (*listed)[server]
}

// shows reports whether a tool is listed beside search_tools.
func (s *Search) shows(t *route.Target) bool {
	return slices.ContainsFunc(s.Always, func(pattern string) bool {
		head, name, _ := strings.Cut(pattern, "/")
		return (head == "*" || head == t.Source) && glob.Match(name, t.Name)
	})
}

// longestQuery bounds a query, in characters.
const longestQuery = 400

// longestInventory bounds the names of servers in the description of search_tools, in bytes.
const longestInventory = 400

// appendSearch appends the definitions of the tools of tool search.
func appendSearch(out jsonrpc.Raw, servers []string, s *Search) jsonrpc.Raw {
	about, left := "", 0
	for _, name := range servers {
		switch {
		case len(about)+len(name) > longestInventory:
			left++
		case about == "":
			about = name
		default:
			about += ", " + name
		}
	}
	if left > 0 {
		about += " and " + strconv.Itoa(left) + " more"
	}
	if about != "" {
		about = " There are tools on: " + about + "."
	}
	const meta = `,"_meta":{"anthropic/alwaysLoad":true}}`
	out = append(out, `{"name":"search_tools","title":"Search tools","description":`...)
	out = jsonrpc.AppendString(out, "Find tools by what they do."+about+
		` Use short keywords that name the action and the object, such as "create issue comment"; `+
		"exact tool names work, too. Call what you find with call_tool. If nothing fits, try other "+
		"words once, then say so.")
	out = append(out, `,"inputSchema":{"type":"object","required":["query"],"properties":{`+
		`"query":{"type":"string","maxLength":`...)
	out = strconv.AppendInt(out, longestQuery, 10)
	out = append(out, `,"description":"Keywords, or exact names separated by commas"},`+
		`"server":{"type":"string","description":"Only this server"},"limit":{"type":"integer",`+
		`"minimum":1,"maximum":20,"default":`...)
	out = strconv.AppendInt(out, int64(s.limit()), 10)
	out = append(out,
		`},"read_only":{"type":"boolean","default":false,"description":"Only tools marked read-only"},`+
			`"detail":{"enum":["auto","signature","schema"],"default":"auto"}}},`+
			`"outputSchema":{"type":"object","required":["tools","weak","more"],`+
			`"properties":{"tools":{"type":"array","items":{"type":"object"}},`+
			`"weak":{"type":"boolean"},"more":{"type":"integer"},"missing":{"type":"array",`+
			`"items":{"type":"string"}}}},`+
			`"annotations":{"readOnlyHint":true,"idempotentHint":true,"destructiveHint":false,`+
			`"openWorldHint":false}`+meta...)
	const schema = `"inputSchema":{"type":"object","required":["name"],` +
		`"properties":{"name":{"type":"string","maxLength":1200},` +
		`"arguments":{"type":"object","additionalProperties":true,"default":{}}}},`
	out = append(out,
		`,{"name":"call_tool","title":"Call a tool","description":"Call a tool found with `+
			`search_tools, by its exact name. The result is the tool's own.",`+
			schema+
			`"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,`+
			`"openWorldHint":true}`+meta...)
	if s.Split {
		out = append(out,
			`,{"name":"call_tool_read","title":"Call a read-only tool","description":"As call_tool, for `+
				`tools that are marked read-only; any other is refused.",`+
				schema+
				`"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":false,`+
				`"openWorldHint":true}`+meta...)
	}
	return out
}

// named returns sources with names that are always qualified, where they are searched: names that a
// search has given must not change when another server has them, too.
func (s *Search) named(sources []route.Source) []route.Source {
	if s == nil {
		return sources
	}
	all := slices.Clone(sources)
	for i := range all {
		all[i].Rules.Namespace = route.NamespaceAlways
	}
	return all
}

// defaultSearchLimit is how many tools an answer has.
const defaultSearchLimit = 6

func (s *Search) limit() int {
	if s.Limit > 0 {
		return s.Limit
	}
	return defaultSearchLimit
}

// search answers a call of search_tools. To the guard it is a list of tools.
func (e *endpoint) search(w *calling, s *Search) (r upstream.Result, err error) {
	done, err := e.g.shield.begin(w, w.Revision,
		&guard.Call{Method: spec.MethodToolsList, Params: w.Params})
	if err != nil {
		return upstream.Result{}, err
	}
	err = errPanicked // until it returns
	defer func() { done(r.Raw, err) }()
	var in struct {
		Query    string `json:"query"`
		Server   string `json:"server"`
		Detail   string `json:"detail"`
		Limit    int    `json:"limit"`
		ReadOnly bool   `json:"read_only"`
	}
	given := scan.Member(w.Params, "arguments")
	if len(given) == 0 {
		given = []byte("{}")
	}
	if err := jsonv2.Unmarshal(given, &in); err != nil || in.Query == "" || in.Limit < 0 {
		return toolError(`search_tools needs a "query" of a few words; "limit" is a number from 1 to 20`),
			nil
	}
	if utf8.RuneCountInString(in.Query) > longestQuery {
		return toolError(
			fmt.Sprintf(`"query" is too long: write a few keywords, of at most %d characters in all`,
				longestQuery)), nil
	}
	if in.Limit == 0 {
		in.Limit = s.limit()
	}
	c, err := e.catalogue(w)
	if err != nil {
		return upstream.Result{}, err
	}
	q := &toolsearch.Query{Text: in.Query, Server: in.Server, ReadOnly: in.ReadOnly, Limit: in.Limit}
	found := c.search(q)
	form := &toolsearch.Form{Detail: in.Detail}
	if len(found.Tools) == 0 {
		form.Servers = serversOf(c.entries())
	}
	if e.g.shield == nil { // which servers there are is not for everybody
		for _, m := range c.Missing {
			if m.State == route.Absent {
				form.Missing = append(form.Missing, m.Source)
			}
		}
	}
	a := c.index.Answer(&found, form)
	out := jsonrpc.AppendString(
		jsonrpc.Raw(`{"resultType":"complete","content":[{"type":"text","text":`), a.Text)
	out = append(append(append(out, `}],"structuredContent":`...), a.Structured...), '}')
	return upstream.Result{Raw: out, Revision: era.Latest()}, nil
}

// toolError is the result of a tool that has failed.
func toolError(text string) upstream.Result {
	out := append(jsonrpc.Raw(`{"resultType":"complete","content":[`), textContent(text)...)
	return upstream.Result{Raw: append(out, `],"isError":true}`...), Revision: era.Latest()}
}

// inner makes the params of call_tool those of the call that it is for: with the name and the
// arguments of that tool, and all else as it is. It returns the name. A text refuses the call.
func inner(w *calling) (name, refused string) {
	given := scan.Member(w.Params, "arguments")
	name, ok := text(given, "name")
	if !ok || name == "" {
		return "", `call_tool needs a "name", which search_tools gives, and "arguments", an object`
	}
	if isSearch(name) {
		return "", name + " is not called with call_tool: call it directly"
	}
	arguments := scan.Member(given, "arguments")
	if len(arguments) > 0 && arguments[0] == '"' { // as some models write it
		arguments = scan.Unquote(arguments)
		if _, fault := scan.Text(arguments, deepestArguments); fault != scan.OK {
			return "", `"arguments" is a text; write an object`
		}
		arguments = arguments[scan.Space(arguments, 0):]
	}
	switch {
	case len(arguments) == 0 || string(arguments) == "null":
		arguments = []byte("{}")
	case arguments[0] != '{':
		return "", `"arguments" must be an object`
	}
	w.Params = withMember(withMember(w.Params, "name", jsonrpc.AppendString(nil, name)), "arguments",
		arguments)
	return name, ""
}

const deepestArguments = 128

// suggest is the error for a tool that does not exist, with tools of similar names that the caller
// may call.
func (e *endpoint) suggest(w *calling, name string, err error) error {
	c, failed := e.catalogue(w)
	if failed != nil {
		return failed
	}
	text := err.Error()
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		text = wire.Message
	}
	var names []string
	if near := e.nearest(w, route.Tools, name, c.Entries()); near != "" {
		names = append(names, near)
	}
	r := c.search(
		&toolsearch.Query{
			Text:  strings.NewReplacer("_", " ", "-", " ", ",", " ").Replace(name),
			Limit: 3,
		})
	if len(names) > 0 || r.Weak {
		r.Tools = nil
	}
	if len(names)+len(r.Tools) == 0 {
		return jsonrpc.Errorf(jsonrpc.InvalidParams, "%s; find its name with search_tools", text)
	}
	for _, i := range r.Tools {
		names = append(names, c.index.Tool(i).Name)
	}
	return jsonrpc.Errorf(jsonrpc.InvalidParams, "%s; did you mean %s? search_tools finds others",
		text, strings.Join(names, " or "))
}

// runsTask reports whether a call of a tool may be a task of its server.
func (e *endpoint) runsTask(ctx context.Context, t *route.Target) bool {
	support := e.taskSupport(ctx, t)
	return support != "" && support != spec.TaskForbidden
}

// searchTasks says whether a tool of tool search runs as a task: call_tool does where a tool can
// that the caller may call.
func (e *endpoint) searchTasks(ctx context.Context, tool string) string {
	if tool == searchTools {
		return ""
	}
	c, err := e.catalogue(ctx)
	if err != nil {
		return ""
	}
	asked := map[string]bool{} // the servers that decide on their own are asked once
	for _, t := range c.entries() {
		if t.Tool.TaskSupport == "" && asked[t.Source] {
			continue
		}
		asked[t.Source] = asked[t.Source] || t.Tool.TaskSupport == ""
		if e.runsTask(ctx, &t.Target) {
			return spec.TaskOptional
		}
	}
	return ""
}
