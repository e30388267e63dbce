package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/lock"
	"github.com/farcall-dev/farcall/internal/sandbox"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// checkGuard is the report about a guard.
type checkGuard struct {
	Mode     string   `json:"mode,omitempty"`
	Ways     []string `json:"ways"` // who can get in, and how
	Allows   []string `json:"allows"`
	Denies   []string `json:"denies,omitempty"`
	Local    []string `json:"local,omitempty"` // calls for callers on this machine only
	Cedar    []string `json:"cedar,omitempty"` // where policies in Cedar are
	Scopes   []string `json:"scopes,omitempty"`
	Resource string   `json:"resource,omitempty"`
	Replay   string   `json:"replay,omitempty"`
	Params   []string `json:"params"`
	Limits   []string `json:"limits,omitempty"`
	Locks    []string `json:"locks,omitempty"` // who is locked out, and the file with more
	Audit    string   `json:"audit,omitempty"`
}

func describeGuard(g *guard.Config) *checkGuard {
	if g == nil {
		return nil
	}
	d := &checkGuard{
		Ways: waysIn(g), Allows: rulesText(g.Allow), Denies: rulesText(g.Deny), Local: g.Local,
		Limits: limitsText(g), Audit: auditText(g), Resource: g.Resource.URL,
	}
	if g.Mode == "shadow" {
		d.Mode = "SHADOW: nothing is enforced but authentication; what would be refused passes, and is " +
			"logged and audited"
	}
	if g.Cedar != "" {
		d.Cedar = append(d.Cedar, "in the file")
	}
	d.Cedar = append(d.Cedar, g.CedarFiles...)
	for _, l := range g.Locks {
		d.Locks = append(d.Locks,
			describeLock(
				&lock.Lock{
					Principal: l.Principal, Key: l.Key, JTI: l.JTI, Session: l.Session, Reason: l.Reason,
					Expires: l.Expires,
				}))
	}
	if g.LocksFile != "" {
		d.Locks = append(d.Locks, g.LocksFile)
	}
	switch {
	case len(d.Allows) > 0:
	case len(d.Cedar) > 0:
		d.Allows = []string{"what Cedar permits"}
	case len(d.Denies) > 0:
		d.Allows = []string{"nothing: no rule allows anything"}
	default:
		d.Allows = []string{"everything, for anyone who gets in: there are no rules"}
	}
	for _, pattern := range slices.Sorted(maps.Keys(g.Resource.Scopes)) {
		d.Scopes = append(d.Scopes, pattern+": "+strings.Join(g.Resource.Scopes[pattern], " "))
	}
	if len(g.Signatures)+len(g.JWT) > 0 {
		d.Replay = fmt.Sprintf("a signature is good for %s, and once; %d are remembered",
			brief(cmp.Or(g.Replay.Window, 5*time.Minute)), cmp.Or(g.Replay.Memory, 1_000_000))
	}
	switch g.Params.Schemas {
	case "":
		d.Params = append(d.Params, "as the schemas say (what cannot be judged is left to the servers)")
	case "strict":
		d.Params = append(d.Params,
			"as the schemas say (calls that cannot be judged in full are refused)")
	}
	d.Params = append(d.Params,
		"strings up to "+bytesText(int64(cmp.Or(g.Params.MaxString, 10_000_000))),
		fmt.Sprintf("nested up to %d deep", cmp.Or(g.Params.MaxDepth, 64)))
	if !g.Params.AllowKeys {
		d.Params = append(d.Params, "no key __proto__, constructor, prototype")
	}
	return d
}

// unjudged says which parts of the schemas of pinned tools a guard cannot judge.
func unjudged(c *gateway.Config) (notices []checkProblem) {
	pinned, err := c.Pinned()
	if c.Guard == nil || err != nil { // reported elsewhere
		return nil
	}
	g, err := offlineGuard(c.Guard, nil)
	if err != nil {
		return nil
	}
	defer g.Close() //nolint:errcheck // nothing was written
	effect := "left to the server"
	if c.Guard.Params.Schemas == "strict" {
		effect = "calls that it is about are refused"
	}
	for _, name := range slices.Sorted(maps.Keys(pinned)) {
		for _, raw := range pinned[name] {
			var tool struct {
				Name        string      `json:"name"`
				InputSchema jsonrpc.Raw `json:"inputSchema"`
			}
			if jsonv2.Unmarshal(raw, &tool) != nil {
				continue
			}
			call := &guard.Call{
				Method: spec.MethodToolsCall, Upstream: name, Name: tool.Name,
				Schema: tool.InputSchema,
			}
			for _, part := range g.Explain(&guard.Principal{ID: "anyone"}, nil, call).Unjudged {
				notices = append(notices,
					checkProblem{
						Path:    name,
						Message: "the schema of " + tool.Name + " cannot be judged at " + part + ": " + effect,
					})
			}
		}
	}
	return notices
}

// waysIn says who can get in.
func waysIn(g *guard.Config) (ways []string) {
	for _, k := range g.Keys {
		text := "the key of " + k.ID + withRoles(k.Roles)
		if len(k.Scopes) > 0 {
			text += ", scopes " + strings.Join(k.Scopes, " ")
		}
		switch {
		case k.Expires.IsZero():
		case k.Expires.Before(time.Now()):
			text += ", EXPIRED on " + k.Expires.Format(time.DateOnly)
		default:
			text += ", until " + k.Expires.Format(time.DateOnly)
		}
		ways = append(ways, text)
	}
	for i := range g.JWT {
		ways = append(ways, issuerText(&g.JWT[i], g.Resource.URL))
	}
	for _, c := range g.MTLS {
		text := "the client certificate " + c.SAN
		if c.CA != "" {
			text += "  with a separate authority"
		}
		ways = append(ways, text+withRoles(c.Roles))
	}
	for _, s := range g.Signatures {
		kind := "Ed25519"
		if s.Secret != "" {
			kind = "HMAC-SHA-256"
		}
		ways = append(ways, "what "+s.ID+" signs ("+kind+")"+withRoles(s.Roles))
	}
	switch who := g.Stdio; {
	case who.TokenEnv != "":
		ways = append(ways, "standard input and output: with a key or token in "+who.TokenEnv)
	case who.Trust == nil || *who.Trust:
		ways = append(ways,
			"standard input and output: anyone who starts farcall, as "+cmp.Or(who.ID, "local")+
				withRoles(who.Roles))
	}
	if g.Anonymous {
		ways = append(ways, "anybody else, as anonymous (anonymous)")
	}
	return ways
}

func issuerText(i *guard.Issuer, resource string) string {
	text := "tokens of " + i.Issuer
	audience := i.Audience
	if len(audience) == 0 && resource != "" {
		audience = []string{resource}
	}
	if len(audience) > 0 {
		text += " for " + strings.Join(audience, ", ")
	}
	text += "; roles from " + cmp.Or(i.Roles, "roles")
	if len(i.Algorithms) > 0 {
		text += "; " + strings.Join(i.Algorithms, ", ")
	}
	if i.DPoP != "" && i.DPoP != "allowed" {
		text += "; DPoP " + i.DPoP
	}
	parts := []string{text}
	for _, name := range slices.Sorted(maps.Keys(i.Claims)) {
		parts = append(parts, name+" must be "+i.Claims[name])
	}
	return strings.Join(parts, "; ")
}

func withRoles(roles []string) string {
	if len(roles) == 0 {
		return ""
	}
	return " (" + strings.Join(roles, ", ") + ")"
}

func rulesText(rules []guard.Rule) (list []string) {
	for _, r := range rules {
		who := cmp.Or(strings.Join(slices.Concat(r.Roles, r.Principals), ", "), "everybody")
		text := who + ": " + strings.Join(r.Calls, ", ")
		if r.Destructive != nil && !*r.Destructive {
			text += "; only what does not destroy"
		}
		if r.Mode == "shadow" {
			text += "; SHADOW: not enforced"
		}
		if r.Name != "" {
			text += " [" + r.Name + "]"
		}
		list = append(list, text)
	}
	return list
}

func limitsText(g *guard.Config) (list []string) {
	l := &g.Limits
	for _, r := range l.Rates {
		text := fmt.Sprintf("%s in %s per %s", countOf(r.Limit, "call"), brief(r.Every),
			cmp.Or(r.Per, "principal"))
		if r.Every == 24*time.Hour {
			text = fmt.Sprintf("%s a day per %s", countOf(r.Limit, "call"), cmp.Or(r.Per, "principal"))
		}
		if r.Burst > 0 {
			text += fmt.Sprintf(", %d at once", r.Burst)
		}
		if len(r.Calls) > 0 {
			text += ", of " + strings.Join(r.Calls, ", ")
		}
		if r.Each {
			text += ", each on its own"
		}
		if len(r.Roles) > 0 {
			text += ", for " + strings.Join(r.Roles, ", ")
		}
		list = append(list, text)
	}
	for _, n := range []struct {
		value      int
		noun, rest string
	}{
		{l.Concurrent, "call", " of a principal at once"},
		{l.Total, "call", " of all at once"},
		{l.Connections, "connection", " of an address"},
		{l.Accepted, "connection", ""},
	} {
		if n.value > 0 {
			list = append(list, countOf(n.value, n.noun)+n.rest)
		}
	}
	if l.MaxBody > 0 {
		list = append(list, bytesText(l.MaxBody)+" for a request over HTTP")
	}
	if l.MaxHeader > 0 {
		list = append(list, bytesText(int64(l.MaxHeader))+" for its header")
	}
	if l.BodyTimeout > 0 {
		list = append(list, brief(l.BodyTimeout)+" for a body to arrive")
	}
	if l.Idle > 0 {
		list = append(list, "a connection that is silent for "+brief(l.Idle)+" is closed")
	}
	return list
}

func auditText(g *guard.Config) string {
	a := &g.Audit
	if a.File == "" {
		return ""
	}
	text := a.File
	if text == "-" {
		text = "standard error"
	} else {
		text += fmt.Sprintf(", %d files of up to %s, kept for %s; when they are full, ",
			cmp.Or(a.Keep, 100)+1,
			bytesText(cmp.Or(a.MaxSize, 100_000_000)), daysText(cmp.Or(a.KeepFor, 90*24*time.Hour)))
		if a.OnFull == "rotate" {
			text += "the oldest is deleted"
		} else {
			text += "calls are refused"
		}
	}
	if a.Key != "" {
		text += ", sealed with a key"
	}
	if a.Params {
		text += ", with params"
		if len(a.Redact) > 0 {
			text += " but " + strings.Join(a.Redact, ", ")
		}
	}
	return text
}

// daysText writes a time of days as one would.
func daysText(d time.Duration) string {
	if days := d / (24 * time.Hour); days > 1 && d%(24*time.Hour) == 0 {
		return strconv.Itoa(int(days)) + " days"
	}
	return brief(d)
}

// bytesText writes a size as one would.
func bytesText(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

// rows are the lines of it.
func (d *checkGuard) rows() (rows namedRows) {
	rows.add("mode", d.Mode)
	rows.add("lets in", d.Ways...)
	rows.add("allows", d.Allows...)
	rows.add("denies", d.Denies...)
	rows.add("local only", strings.Join(d.Local, ", "))
	rows.add("Cedar", d.Cedar...)
	rows.add("resource", d.Resource)
	rows.add("scopes", d.Scopes...)
	rows.add("params", strings.Join(d.Params, ", "))
	rows.add("limits", d.Limits...)
	rows.add("replay", d.Replay)
	rows.add("locks", d.Locks...)
	rows.add("audit", d.Audit)
	return rows
}

// sandboxText says what a command may do.
func sandboxText(s *gateway.Sandbox) string {
	if s == nil || s.Mode == "none" {
		return ""
	}
	parts := []string{s.Mode}
	for _, p := range []struct {
		verb  string
		paths []string
	}{{"reads", s.Read}, {"writes", s.Write}, {"executes", s.Execute}} {
		if len(p.paths) > 0 {
			parts = append(parts, p.verb+" "+strings.Join(p.paths, ", "))
		}
	}
	switch {
	case slices.Equal(s.Network, []string{"none"}):
		parts = append(parts, "no network")
	case slices.Equal(s.Network, []string{"all"}):
		parts = append(parts, "all of the network")
	default:
		parts = append(parts, "connects to "+strings.Join(s.Network, ", "))
	}
	parts = append(parts, bytesText(s.Memory)+" of memory", countOf(s.Processes, "process"),
		countOf(s.Files, "file")+" at once")
	if s.CPU > 0 {
		parts = append(parts, brief(s.CPU)+" of the processor")
	}
	return strings.Join(parts, "; ")
}

// credentialsText says how the gateway shows who it is, without secrets.
func credentialsText(u *gateway.Upstream) string {
	c := u.Auth
	if c == nil {
		return ""
	}
	origin := func(key, value string) string {
		if value == "" {
			return ""
		}
		return originOf(u, "auth."+key)
	}
	parts := []string{c.Type}
	for _, p := range [][2]string{
		{"client ", c.ClientID},
		{"secret ", origin("secret", c.Secret)},
		{"key ", origin("key", c.Key)},
		{"from ", c.Issuer},
		{"for ", c.Audience},
		{"scopes ", strings.Join(c.Scopes, " ")},
	} {
		if p[1] != "" {
			parts = append(parts, p[0]+p[1])
		}
	}
	if c.DPoP {
		parts = append(parts, "DPoP")
	}
	for _, who := range slices.Sorted(maps.Keys(c.Principals)) {
		parts = append(parts,
			fmt.Sprintf("%s: %s", who, strings.Join(slices.Sorted(maps.Keys(c.Principals[who])), ", ")))
	}
	return strings.Join(parts, "; ")
}

// sandboxCaveats say what this machine lacks for a sandbox.
func sandboxCaveats(s *gateway.Sandbox) (texts []string) {
	if s.Mode == "none" {
		return nil
	}
	for _, path := range slices.Concat(s.Read, s.Write, s.Execute) {
		if _, err := os.Stat(path); err != nil {
			texts = append(texts, "sandbox: there is no "+path)
		}
	}
	effect := "the command will not start"
	if s.Mode == "best-effort" {
		effect = "the command runs without that"
	}
	for _, part := range sandbox.Missing(&sandbox.Rules{
		Read: s.Read, Write: s.Write, Execute: s.Execute, Network: s.Network, Memory: s.Memory,
		Processes: s.Processes, Files: s.Files, CPU: s.CPU,
	}) {
		texts = append(texts, "sandbox: "+effect+": this machine lacks "+part)
	}
	return texts
}

// checkAPI is what became of the operations of an HTTP API.
type checkAPI struct {
	Tools    []checkOperation `json:"tools"`
	Tokens   int              `json:"tokens"` // that a model takes for all of them, about
	Problems []string         `json:"problems,omitempty"`
}

type checkOperation struct {
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Tokens    int    `json:"tokens"`
	Renamed   string `json:"renamed,omitempty"` // why the name is not that of the document
}

// describeAPI returns nil where the document is at an address, or cannot be read any more.
func describeAPI(u *gateway.Upstream) *checkAPI {
	tools, problems, err := u.Operations()
	if tools == nil || err != nil {
		return nil
	}
	d := &checkAPI{Tools: []checkOperation{}, Problems: problems}
	for _, t := range tools {
		text, _ := jsonv2.Append(nil, t.Tool)
		o := checkOperation{
			Name: t.Name, Operation: t.Operation, Tokens: len(text) / 4,
			Renamed: t.Renamed,
		}
		d.Tokens += o.Tokens
		d.Tools = append(d.Tools, o)
	}
	return d
}

func (e *env) explainAPI(name string, d *checkAPI) error {
	rows := [][]string{}
	for _, t := range d.Tools {
		row := []string{"  " + t.Name, fmt.Sprintf("%d tokens", t.Tokens), t.Operation}
		if t.Renamed != "" {
			row = append(row, "renamed: "+t.Renamed)
		}
		for i := range row {
			row[i] = tame(row[i])
		}
		rows = append(rows, row)
	}
	heading := fmt.Sprintf("Tools of %s: %d, about %d tokens for a model", name, len(d.Tools),
		d.Tokens)
	if err := e.section(heading, rows); err != nil {
		return err
	}
	rows = nil
	for _, p := range d.Problems {
		rows = append(rows, []string{"  " + tame(p)})
	}
	return e.section("Left out of "+name+", or changed", rows)
}

// article puts "a" or "an" before a kind of upstream.
func article(kind string) string {
	if strings.HasPrefix(kind, "HTTP") {
		return "an " + kind
	}
	return "a " + kind
}
