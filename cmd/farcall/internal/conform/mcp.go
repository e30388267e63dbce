package conform

import (
	"cmp"
	"context"
	"encoding/json" //nolint:depguard // shares nothing with what it checks
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The headers of Streamable HTTP.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerSession = "Mcp-Session-Id"
)

const (
	unknownRevision = "1999-12-31"
	unknownName     = "farcall-conform-no-such-name"
	unknownURI      = "farcall-conform:///no/such/resource"
	mostPages       = 1000
)

// An mcpCase is one property of MCP servers.
type mcpCase struct {
	name, title string
	page        string // of the specification, and its section
	level       Level  // of what is wrong
	expected    string
	when        []string // properties of the revisions that it is about
	run         mcpRun
}

// An mcpRun returns what is wrong, "" if nothing, or why the case is skipped.
type mcpRun func(ctx context.Context, p *mcpProbe) (finding, skip string)

// MCPCases lists what is checked of a revision, as results without a verdict.
func MCPCases(r *era.Revision) (list []Result) {
	for _, c := range mcpCases() {
		if c.of(r) {
			list = append(list, c.result(r))
		}
	}
	return list
}

func (c *mcpCase) result(r *era.Revision) Result {
	return Result{
		Name: r.Name + "/" + c.name, Title: c.title, Level: c.level, Expected: c.expected,
		Ref: "MCP " + r.Name + ", " + c.page,
	}
}

// RunMCP checks the MCP server that d reaches: each revision that it speaks, over
// separate connections. Nothing is called but lists, reads and names that do not exist.
func RunMCP(ctx context.Context, d Dialer, o *Options) (*Report, error) {
	opts := *cmp.Or(o, &Options{})
	opts.Timeout = cmp.Or(max(opts.Timeout, 0), 10*time.Second)
	if opts.Revisions == nil {
		opts.Revisions = era.Revisions()
	}
	if d.mcp == nil {
		return nil, fmt.Errorf("MCP is not spoken over %s", d.kind)
	}
	r := &runner{report: &Report{Transport: d.kind}, opts: opts}
	spoken := 0
	for _, revision := range opts.Revisions {
		p := &mcpProbe{
			rev: revision, dialer: d, link: d.mcp(), web: d.kind == HTTP, timeout: opts.Timeout,
			session: http.Header{},
		}
		ok, err := p.all(ctx, r, &opts)
		p.link.close()
		if err != nil {
			return r.report, err
		}
		if ok {
			spoken++
		}
	}
	if spoken == 0 {
		r.add(Result{
			Name: "any/revision", Title: "the server speaks a revision of MCP", Level: Must,
			Verdict: Fail, Finding: "it speaks none of those that were tried", Ref: "MCP, Versioning",
			Expected: "an answer to initialize or server/discover",
		})
	}
	return r.report, nil
}

// An mcpProbe checks one revision.
type mcpProbe struct {
	rev      *era.Revision
	dialer   Dialer
	link     mcpLink
	web      bool
	timeout  time.Duration
	session  http.Header // HTTP: what each request of the session has
	hello    mcpReply    // the answer to initialize or server/discover
	can      map[string]json.RawMessage
	ids      int
	sent     []string // for the case that runs
	received []string
}

// all runs the cases. It reports false when the server does not speak the revision.
func (p *mcpProbe) all(ctx context.Context, r *runner, o *Options) (spoken bool, err error) {
	if err := p.link.open(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	why := p.begin(ctx)
	if err := ctx.Err(); err != nil {
		return false, err
	}
	if errors.Is(p.hello.err, ErrConnect) {
		return false, p.hello.err
	}
	sent, received := p.sent, p.received
	if why != "" {
		if p.hello.answer == nil && p.hello.status == 0 && handshake(p.rev) {
			why = "initialize: " + why
		}
		r.add(Result{
			Name: p.rev.Name + "/revision", Title: "the server speaks this revision", Level: Should,
			Verdict: Skip, Finding: why, Ref: "MCP " + p.rev.Name, Sent: sent, Received: received,
		})
		return false, nil
	}
	for _, c := range mcpCases() {
		if !c.chosen(p, o) {
			continue
		}
		res := p.run(ctx, &c)
		if err := ctx.Err(); err != nil {
			return true, err
		}
		if res.Sent == nil { // it looks at the first answer
			res.Sent, res.Received = sent, received
		}
		r.add(res)
	}
	return true, nil
}

// chosen reports whether a case is to be run.
func (c *mcpCase) chosen(p *mcpProbe, o *Options) bool {
	return c.of(p.rev) && (p.web || !strings.HasPrefix(c.name, "http/")) &&
		(c.level == Must || !o.MustOnly) &&
		(o.Only == nil || o.Only.MatchString(c.result(p.rev).Name))
}

// run runs a case.
func (p *mcpProbe) run(ctx context.Context, c *mcpCase) Result {
	p.sent, p.received = nil, nil
	res := c.result(p.rev)
	finding, skip := c.run(ctx, p)
	res.Sent, res.Received = p.sent, p.received
	switch {
	case skip != "":
		res.Verdict, res.Finding = Skip, skip
	case finding != "":
		res.Verdict, res.Finding = Fail, finding
	default:
		res.Verdict = Pass
	}
	return res
}

// begin begins, and returns why the revision is not spoken.
func (p *mcpProbe) begin(ctx context.Context) string {
	if !handshake(p.rev) {
		p.hello = p.call(ctx, spec.MethodServerDiscover, "")
		return p.begun(p.hello, "supportedVersions")
	}
	p.hello = p.initialize(ctx, p.rev.Name)
	if why := p.begun(p.hello, "protocolVersion"); why != "" {
		return why
	}
	if id := p.hello.header.Get(headerSession); id != "" {
		p.session.Set(headerSession, id)
	}
	if p.rev.VersionHeader {
		p.session.Set(headerVersion, p.rev.Name)
	}
	p.notify(ctx, spec.NotificationInitialized)
	return ""
}

// begun reads the first answer. member has the revisions that the server offers.
func (p *mcpProbe) begun(r mcpReply, member string) string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.answer == nil:
		return fmt.Sprintf("HTTP status %d", r.status)
	case r.answer.code != 0:
		return fmt.Sprintf("error %d: %s", r.answer.code, clip(r.answer.message))
	}
	m := object(r.answer.result)
	var capabilities map[string]json.RawMessage
	if json.Unmarshal(m["capabilities"], &capabilities) == nil {
		p.can = capabilities
	}
	if offered := string(m[member]); !strings.Contains(offered, strconv.Quote(p.rev.Name)) {
		return "the server offers " + clip(offered)
	}
	return ""
}

// initialize asks for a revision.
func (p *mcpProbe) initialize(ctx context.Context, revision string) mcpReply {
	return p.raw(ctx, spec.MethodInitialize, fmt.Sprintf(
		`{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"farcall-conform","version":"1"}}`,
		revision,
	), http.Header{headerSession: nil, headerVersion: nil})
}

// meta is the _meta of requests of stateless revisions.
func meta(revision string) string {
	return fmt.Sprintf(`"_meta":{%q:%q,%q:{"name":"farcall-conform","version":"1"},%q:{}}`,
		spec.MetaProtocolVersion, revision, spec.MetaClientInfo, spec.MetaClientCapabilities)
}

// call sends a request with these members of params.
func (p *mcpProbe) call(ctx context.Context, method, params string) mcpReply {
	return p.callWith(ctx, method, params, p.rev.Name, nil)
}

// callWith is call with a revision and headers of the case's own choice.
func (p *mcpProbe) callWith(ctx context.Context, method, params, revision string,
	header http.Header,
) mcpReply {
	if selfDescribed(p.rev) {
		params = strings.TrimSuffix(meta(revision)+","+params, ",")
	}
	h := http.Header{}
	if mirrors(p.rev) {
		h = mirrored(method, params, revision)
	}
	maps.Copy(h, header)
	return p.raw(ctx, method, "{"+params+"}", h)
}

// mirrored are the headers that repeat what is in the body.
func mirrored(method, params, revision string) http.Header {
	h := http.Header{headerVersion: {revision}, headerMethod: {method}}
	member := map[string]string{
		spec.MethodToolsCall: "name", spec.MethodPromptsGet: "name",
		spec.MethodResourcesRead: "uri",
	}[method]
	var name string
	if member != "" && json.Unmarshal(object("{" + params + "}")[member], &name) == nil {
		h.Set(headerName, spec.EncodeHeader(name))
	}
	return h
}

// raw sends a request with exactly these params. A header without values is left out.
func (p *mcpProbe) raw(ctx context.Context, method, params string, header http.Header) mcpReply {
	p.ids++
	id := strconv.Itoa(p.ids)
	if p.ids%2 == 0 {
		id = `"farcall-` + id + `"`
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":%s}`, id, method, params)
	m := mcpMessage{body: body, id: id, header: header}
	if method == spec.MethodSubscriptionsListen {
		m.until = spec.NotificationSubscriptionsAcknowledged
	}
	return p.exchange(ctx, m)
}

// notify sends a notification.
func (p *mcpProbe) notify(ctx context.Context, method string) mcpReply {
	return p.exchange(ctx, mcpMessage{body: fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method)})
}

func (p *mcpProbe) exchange(ctx context.Context, m mcpMessage) mcpReply {
	header := p.session.Clone()
	maps.Copy(header, m.header)
	m.header = header
	p.sent = append(p.sent, printable(strings.TrimSpace(m.verb+" "+m.body)))
	r := p.link.exchange(ctx, m, p.timeout)
	if r.status != 0 {
		p.received = append(p.received, fmt.Sprintf("HTTP %d %s", r.status, r.header.Get("Content-Type")))
	}
	for _, f := range r.frames {
		p.received = append(p.received, printable(f))
	}
	return r
}

// object reads a JSON object; nil: it is not one.
func object(raw string) (m map[string]json.RawMessage) {
	if json.Unmarshal([]byte(raw), &m) != nil {
		return nil
	}
	return m
}

// result returns the members of a result, or what came in its place.
func (r *mcpReply) result() (map[string]json.RawMessage, string) {
	switch {
	case r.err != nil:
		return nil, r.err.Error()
	case r.answer == nil:
		return nil, fmt.Sprintf("there is no answer (HTTP status %d)", r.status)
	case r.answer.code != 0:
		return nil, r.answer.String()
	}
	m := object(r.answer.result)
	if m == nil {
		return nil, "the result is not an object"
	}
	return m, ""
}

// refused returns what is wrong with an answer that must be an error with one of these codes.
func (r *mcpReply) refused(codes ...int) string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.answer == nil:
		return fmt.Sprintf("there is no answer (HTTP status %d)", r.status)
	}
	if slices.Contains(codes, r.answer.code) {
		return ""
	}
	return "the answer is " + r.answer.String()
}

var errNoString = errors.New("it is not a string")

// text reads a JSON string.
func text(raw json.RawMessage) (string, error) {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return "", errNoString
	}
	return *s, nil
}
