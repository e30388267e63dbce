package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// explaining is what the flags of explain say.
type explaining struct {
	*env
	config, as, kind, upstream     string
	transport, annotations, schema string
	roles, scopes, claims, audits  []string
	local, asJSON                  bool
	strict                         bool // a principal must be able to get in
}

func newExplainCmd(e *env) *cobra.Command {
	x := &explaining{env: e}
	cmd := command("explain --config FILE [--as PRINCIPAL] CALL [PARAMS] | --replay AUDIT",
		"Say whether a guard allows a call, and why",
		func(_ *cobra.Command, args []string) error { return x.run(args) })
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&x.config, "config", "c", "", "the `file` with the guard")
	f.StringVar(&x.as, "as", "", "who calls, or ISSUER|`ID`")
	f.StringArrayVar(&x.roles, "role", nil,
		"a `role` of the caller, in place of those in the configuration; can be repeated")
	f.StringArrayVar(&x.scopes, "scope", nil,
		"a `scope` of the caller, in place of those in the configuration; can be repeated")
	f.StringVar(&x.kind, "kind", "", "the `kind` of the caller: user, service, agent, process")
	f.StringArrayVar(&x.claims, "claim", nil,
		"a claim of the caller's token, `NAME=VALUE`; can be repeated")
	f.StringVar(&x.transport, "transport", "http", "how the call comes: http, ws, tcp, unix, stdio")
	f.BoolVar(&x.local, "local", false, "the caller is on this machine (stdio and unix always are)")
	f.StringVar(&x.upstream, "upstream", "",
		"the `name` of the upstream, if CALL does not begin with it")
	f.StringVar(&x.annotations, "annotations", "", "the tool's annotations, as `JSON`")
	f.StringVar(&x.schema, "schema", "", "the tool's input schema, as `JSON`")
	f.StringArrayVar(&x.audits, "replay", nil,
		"the `file` of an audit with calls to decide again; can be repeated, the oldest first")
	f.BoolVar(&x.asJSON, "json", false, "print JSON")
	return cmd
}

func (x *explaining) run(args []string) error {
	const example = `For example: farcall explain --config farcall.yaml --as ci "tools/call ` +
		`github/create_issue"`
	switch {
	case x.config == "":
		return usagef(example, "no --config")
	case len(x.audits) > 0:
		return x.replay(args)
	case len(args) == 0:
		return usagef(example, "no CALL")
	}
	config, err := loadGuarded(x.config)
	if err != nil {
		return err
	}
	p, notes, err := x.principal(config.Guard)
	if err != nil {
		return unknownUsage(err)
	}
	call, err := x.call(args, config)
	if err != nil {
		return unknownUsage(err)
	}
	if call.Method == spec.MethodToolsCall && call.Annotations == nil &&
		looksAtAnnotations(config.Guard) {
		notes = append(notes,
			"the tool's annotations are not known, so it is taken for one that may destroy; "+
				"--annotations has them")
	}
	g, err := offlineGuard(config.Guard, nil)
	if err != nil {
		return err
	}
	defer g.Close() //nolint:errcheck // nothing was written
	return x.print(p, call, x.ask(g, p, call), notes)
}

// loadGuarded reads a configuration that has a guard. Its upstreams are for their names and pinned
// tools only: when they cannot be read there are none.
func loadGuarded(file string) (*gateway.Config, error) {
	if c, err := gateway.Load(file); err == nil && c.Guard != nil {
		return c, nil
	}
	c, err := gateway.LoadGuard(file)
	if err != nil {
		return nil, configFailure(err)
	}
	return c, nil
}

// offlineGuard is a guard that writes nothing down.
func offlineGuard(c *guard.Config, o *guard.Options) (*guard.Guard, error) {
	offline := *c
	offline.Audit = guard.Config{}.Audit
	g, err := guard.New(&offline, o)
	if err != nil {
		return nil, &exitError{code: exitUsage, err: plainError{err}}
	}
	return g, nil
}

// pinnedTool completes a call of a tool with what the lock file of a configuration has of it.
func pinnedTool(config *gateway.Config, c *guard.Call) error {
	if c.Method != spec.MethodToolsCall {
		return nil
	}
	pinned, err := config.Pinned()
	if err != nil {
		return &exitError{code: exitUsage, err: plainError{err}}
	}
	for _, raw := range pinned[c.Upstream] {
		var tool struct {
			Name        string      `json:"name"`
			InputSchema jsonrpc.Raw `json:"inputSchema"`
			Annotations jsonrpc.Raw `json:"annotations"`
		}
		if err := jsonv2.Unmarshal(raw, &tool); err == nil && tool.Name == c.Name {
			c.Schema, c.Annotations = tool.InputSchema, tool.Annotations
		}
	}
	return nil
}

// principal is who is asked about. Who is in the configuration has what it says there.
func (x *explaining) principal(c *guard.Config) (p *guard.Principal, notes []string, err error) {
	issuer, id, vouched := strings.Cut(x.as, "|")
	if !vouched {
		issuer, id = "", x.as
	}
	p = &guard.Principal{ID: id, Issuer: issuer, Method: "jwt"}
	key := slices.IndexFunc(c.Keys, func(k guard.Key) bool { return k.ID == id && !vouched })
	signer := slices.IndexFunc(c.Signatures, func(s guard.Signer) bool {
		return s.ID == id && !vouched
	})
	switch {
	case id == "" || id == "anonymous":
		*p = guard.Principal{
			ID: "anonymous", Kind: "anonymous", Method: "none",
			Roles: []string{"anonymous"},
		}
		if !c.Anonymous {
			notes = append(notes,
				"the guard does not let anonymous callers in (anonymous: true would); this is what its "+
					"policies say")
		}
	case key >= 0:
		k := c.Keys[key]
		*p = guard.Principal{
			ID: id, Kind: cmp.Or(k.Kind, "service"), Method: "key", Roles: k.Roles,
			Scopes: k.Scopes, Expires: k.Expires,
		}
		notes = append(notes, expired(&k)...)
	case signer >= 0:
		s := c.Signatures[signer]
		*p = guard.Principal{ID: id, Kind: cmp.Or(s.Kind, "service"), Method: "signature", Roles: s.Roles}
	case x.transport == "stdio" && id == cmp.Or(c.Stdio.ID, "local"),
		id == cmp.Or(c.Stdio.ID, "local") && x.kind == "" && len(x.roles) == 0:
		*p = guard.Principal{ID: id, Kind: "process", Method: "process", Roles: c.Stdio.Roles}
	default:
		if notes, err = x.vouched(p, c, vouched); err != nil {
			return nil, nil, err
		}
	}
	if len(x.roles) > 0 {
		p.Roles = x.roles
	}
	if len(x.scopes) > 0 {
		p.Scopes = x.scopes
	}
	p.Kind = cmp.Or(x.kind, p.Kind)
	p.Claims, err = parseClaims(x.claims)
	return p, notes, err
}

// vouched completes a principal that the configuration does not name: one of an issuer or of a
// client certificate. p has its id and issuer; named says that the issuer was given.
func (x *explaining) vouched(
	p *guard.Principal, c *guard.Config, named bool,
) (notes []string, err error) {
	unknown := admits(c, p.Issuer, p.ID)
	described := len(x.roles) > 0 || len(x.scopes) > 0 || len(x.claims) > 0 || x.kind != ""
	if unknown != nil && (x.strict || !described) {
		return nil, unknown
	}
	switch {
	case len(c.JWT) > 0:
		i := max(0, slices.IndexFunc(c.JWT, func(i guard.Issuer) bool { return i.Issuer == p.Issuer }))
		p.Issuer = cmp.Or(p.Issuer, c.JWT[i].Issuer)
		p.Kind = cmp.Or(c.JWT[i].Kind, "user")
	case len(c.MTLS) > 0:
		p.Kind, p.Method = "service", "mtls"
	default:
		p.Kind = "user"
	}
	switch {
	case unknown != nil:
		notes = append(notes, unknown.Error()+", so it cannot get in; this is what the policies say")
	case !named:
		notes = append(notes, resembles(c, p)...)
	}
	return notes, nil
}

// expired says that a key has expired.
func expired(k *guard.Key) []string {
	if k.Expires.IsZero() || k.Expires.After(time.Now()) {
		return nil
	}
	return []string{
		fmt.Sprintf("the key of %s has expired and is refused; this is what the policies say", k.ID),
	}
}

// parseClaims reads NAME=VALUE; a value that is JSON is taken as JSON.
func parseClaims(words []string) (map[string]any, error) {
	if len(words) == 0 {
		return nil, nil
	}
	claims := map[string]any{}
	for _, word := range words {
		name, text, ok := strings.Cut(word, "=")
		if !ok || name == "" {
			return nil, usagef("Write it as --claim team=core.", "--claim: %q has no name or no value", word)
		}
		var value any
		if err := jsonv2.Unmarshal(appendWord(nil, text), &value); err != nil {
			return nil, usagef("", "--claim: the value of %q cannot be read: %w", name, err)
		}
		claims[name] = value
	}
	return claims, nil
}

// looksAtAnnotations reports whether a policy may go by what a tool says of itself.
func looksAtAnnotations(c *guard.Config) bool {
	return c.Cedar != "" || len(c.CedarFiles) > 0 ||
		slices.ContainsFunc(slices.Concat(c.Allow, c.Deny), func(r guard.Rule) bool {
			return r.Destructive != nil
		})
}

// ask explains the call as one that comes over the transport.
func (x *explaining) ask(g *guard.Guard, p *guard.Principal, call *guard.Call) guard.Explanation {
	local := x.local || x.transport == "stdio" || x.transport == "unix"
	return g.Explain(p, &guard.Conn{Transport: x.transport, Local: local}, call)
}

// explained is the form of --json.
type explained struct {
	Allowed  bool     `json:"allowed"`
	Call     string   `json:"call"`
	As       string   `json:"as"`
	Kind     string   `json:"kind"`
	Roles    []string `json:"roles,omitempty"`
	Policies []string `json:"policies,omitempty"`
	Reason   string   `json:"reason"`
	Scopes   []string `json:"scopes,omitempty"` // that the caller would also need
	Limits   []string `json:"limits,omitempty"`
	Unjudged []string `json:"unjudged,omitempty"` // parts of the schema that are left to the server
	Shadow   string   `json:"shadow,omitempty"`   // what a mode "shadow" changes
	Notes    []string `json:"notes,omitempty"`
}

func (x *explaining) print(
	p *guard.Principal, call *guard.Call, e guard.Explanation, notes []string,
) error {
	out := &explained{
		Allowed: e.Allowed, Call: callText(call), As: p.Name(), Kind: p.Kind, Roles: p.Roles,
		Policies: e.Policies, Reason: e.Reason,
		Scopes: e.Scopes, Limits: e.Limits, Unjudged: e.Unjudged, Shadow: e.Shadow, Notes: notes,
	}
	err := x.show(out)
	if err == nil && !e.Allowed {
		return &exitError{code: exitDenied}
	}
	return err
}

func (x *explaining) show(out *explained) error {
	if x.asJSON {
		return x.printValue(out)
	}
	word := x.paint(colourRed, "denied")
	if out.Allowed {
		word = x.paint(colourGreen, "allowed")
	}
	fmt.Fprintf(x.stdout, "%s  %s\n", word, tame(out.Call))
	var rows namedRows
	rows.add("as", out.As+" ("+strings.Join(slices.Concat([]string{out.Kind}, out.Roles), ", ")+")")
	rows.add("decided by", strings.Join(out.Policies, ", "))
	rows.add("why", out.Reason)
	rows.add("needs scopes", strings.Join(out.Scopes, " "))
	rows.add("shadow", out.Shadow)
	rows.add("counts for", out.Limits...)
	rows.add("not judged", out.Unjudged...)
	rows.add("note", out.Notes...)
	return columns(x.stdout, rows, nil)
}

// callText writes a call as rules see it.
func callText(c *guard.Call) string {
	switch {
	case c.Name != "" && c.Upstream != "":
		return c.Method + " " + c.Upstream + "/" + c.Name
	case c.Name != "":
		return c.Method + " " + c.Name
	case c.Upstream != "":
		return c.Method + " of " + c.Upstream
	}
	return c.Method
}

// named are the methods that go by a name, and where params have it.
var named = map[string]string{
	spec.MethodToolsCall: "name", spec.MethodPromptsGet: "name", spec.MethodResourcesRead: "uri",
	spec.MethodResourcesSubscribe: "uri", spec.MethodResourcesUnsubscribe: "uri",
}

// methodRPC is how a gateway names calls of its upstreams that speak no MCP: rpc UPSTREAM/METHOD.
const methodRPC = "rpc"

// methodAdmin is how changes of a gateway are named: gateway/admin CHANGE, gateway/admin
// UPSTREAM/CHANGE.
const methodAdmin = "gateway/admin"

func goesByName(method string) bool {
	return named[method] != "" || method == methodRPC || method == methodAdmin
}

// call reads CALL [PARAMS].
func (x *explaining) call(args []string, config *gateway.Config) (*guard.Call, error) {
	c, upstreams := &guard.Call{Upstream: x.upstream}, config.Upstreams
	rest := args[1:]
	var name string
	var err error
	if c.Method, name, rest, err = x.method(args[0], rest, upstreams); err != nil {
		return nil, err
	}
	if err := x.place(c, name, upstreams); err != nil {
		return nil, err
	}
	params, err := parseParams(rest, x.stdin)
	if err != nil {
		return nil, err
	}
	if err := pinnedTool(config, c); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name, text, example string
		dst                 *jsonrpc.Raw
	}{
		{"annotations", x.annotations, `{"readOnlyHint":true}`, &c.Annotations},
		{"schema", x.schema, `{"type":"object"}`, &c.Schema},
	} {
		if f.text == "" {
			continue
		}
		if f.text[0] != '{' || jsonrpc.Valid([]byte(f.text)) != nil {
			return nil, usagef(fmt.Sprintf("As in --%s '%s'.", f.name, f.example),
				"--%s is no object in JSON", f.name)
		}
		*f.dst = jsonrpc.Raw(f.text)
	}
	c.Arguments, c.Params, c.MCP = params, paramsOf(c, params), named[c.Method] != ""
	return c, nil
}

// method reads the method of CALL and the name that it goes by, which may be the next word.
func (x *explaining) method(
	word string, rest []string, upstreams []*gateway.Upstream,
) (method, name string, left []string, err error) {
	method, name, hasName := strings.Cut(word, " ")
	switch {
	case hasName && !goesByName(method):
		return "", "", nil, usagef(`As in "tools/call github/create_issue". Other methods have no name.`,
			"%s does not go by a name", method)
	case hasName:
	case goesByName(method) && len(rest) > 0:
		name, rest = rest[0], rest[1:]
	case goesByName(method):
	case x.upstream == "" && ownerOf(method, upstreams) != nil:
		method, name = spec.MethodToolsCall, method
		if ownerOf(name, upstreams).Profile == profileRaw {
			method = methodRPC
		}
	case method != "gateway/status" && isRaw(x.upstream, upstreams):
		method, name = methodRPC, method
	}
	if goesByName(method) && name == "" {
		return "", "", nil, usagef(fmt.Sprintf("Write it as \"%s NAME\".", method), "%s of what?", method)
	}
	return method, name, rest, nil
}

// isRaw reports whether an upstream, or the only one, speaks no MCP.
func isRaw(name string, upstreams []*gateway.Upstream) bool {
	if name == "" && len(upstreams) == 1 {
		name = upstreams[0].Name
	}
	return slices.ContainsFunc(upstreams, func(u *gateway.Upstream) bool {
		return u.Name == name && u.Profile == profileRaw
	})
}

// ownerOf returns the upstream that a word which is not a method of MCP begins with.
func ownerOf(word string, upstreams []*gateway.Upstream) *gateway.Upstream {
	for _, separator := range []string{"/", "__"} { // as in rules, and as clients see it
		head, tail, ok := strings.Cut(word, separator)
		i := slices.IndexFunc(upstreams, func(u *gateway.Upstream) bool { return u.Name == head })
		if ok && tail != "" && i >= 0 {
			return upstreams[i]
		}
	}
	return nil
}

// place finds the upstream of a name.
func (x *explaining) place(c *guard.Call, name string, upstreams []*gateway.Upstream) error {
	c.Name = name
	if len(upstreams) == 0 {
		return nil
	}
	if c.Method == methodAdmin && !strings.Contains(name, "/") { // of the gateway as a whole
		return nil
	}
	if name == "" || c.Upstream != "" {
		return unknownUpstream(c, name, upstreams)
	}
	if u := ownerOf(name, upstreams); u != nil {
		c.Upstream = u.Name
		c.Name = strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(name, u.Name), "__"), "/")
		return nil
	}
	if err := unknownUpstream(c, name, upstreams); err != nil {
		return err
	}
	if len(upstreams) == 1 {
		c.Upstream = upstreams[0].Name
		return nil
	}
	names := namesOf(upstreams)
	return usagef(fmt.Sprintf("Write it as %s/%s. The upstreams are %s.", names[0], name,
		strings.Join(names, ", ")), "which upstream has %s?", name)
}
