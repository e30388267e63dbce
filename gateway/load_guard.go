package gateway

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// LoadGuard reads the guard of a configuration. Nothing else in the file counts but the documents
// of HTTP APIs (rules may name their operations), and it may have no upstreams: what it returns has
// Guard, Files and Notices. What is wrong in it is a *[ConfigError].
func LoadGuard(path string) (*Config, error) {
	data, err := readBounded(path, maxConfig)
	if err != nil {
		return nil, fmt.Errorf("gateway: cannot read the configuration: %w", err)
	}
	return parseAs(path, data, (*reader).guardOnly)
}

// guardOnly reads the guard and nothing else.
func (r *reader) guardOnly(n *node) *Config {
	c := &Config{}
	r.spots[""] = n.at
	r.stopped = true // the rest need not be in order
	r.twice(n, "", map[*node]bool{})
	if n.kind != mapNode {
		r.wrongKind(n, "", "a map with the key guard is wanted")
		return c
	}
	if isPolicyTest(n) {
		r.problemAt(n.at, "tests", "this is a file of calls, and a configuration is wanted",
			"run farcall policy test "+filepath.Base(r.file))
		return c
	}
	table := map[string]take{}
	for key := range r.ownKeys(n, c) {
		table[key] = func(*node, string) {}
	}
	table["guard"] = func(n *node, path string) { c.Guard = r.guard(n, path) }
	if n.get("guard") == nil {
		hint := "add guard, with who may call what"
		for _, key := range []string{
			"keys", "jwt", "mtls", "signatures", "anonymous", "allow", "deny",
			"cedar", "limits",
		} {
			if n.get(key) != nil {
				table[key] = func(*node, string) {}
				hint = "begin the file with guard: and indent what is there"
			}
		}
		r.fields(n, "", table)
		r.problemAt(n.at, "", "there is no guard", hint)
		return c
	}
	r.fields(n, "", table)
	check := checker{
		problem: r.problem, notice: r.advise, said: r.said, written: r.written,
		values: r.values,
	}
	upstreams, apis := r.apisOf(n)
	check.apis = apis
	check.operations(c.Guard, upstreams)
	check.guard(c.Guard)
	return c
}

// guard reads who may call what.
func (r *reader) guard(n *node, path string) *guard.Config {
	g := &guard.Config{}
	l := &g.Limits
	r.fields(n, path, map[string]take{
		"anonymous": r.flag(&g.Anonymous),
		"mode":      r.text(&g.Mode),
		"keys":      r.items(func(n *node, path string) { g.Keys = append(g.Keys, r.key(n, path)) }),
		"jwt":       r.items(func(n *node, path string) { g.JWT = append(g.JWT, r.issuer(n, path)) }),
		"mtls": r.items(func(n *node, path string) {
			g.MTLS = append(g.MTLS, r.certificate(n, path))
		}),
		"signatures": r.items(func(n *node, path string) {
			g.Signatures = append(g.Signatures, r.signer(n, path))
		}),
		"stdio": r.section(map[string]take{
			"trust": r.option(&g.Stdio.Trust), "id": r.text(&g.Stdio.ID),
			"roles": r.oneOrMore(&g.Stdio.Roles), "token_env": r.text(&g.Stdio.TokenEnv),
		}),
		"locks":      r.items(func(n *node, path string) { g.Locks = append(g.Locks, r.lock(n, path)) }),
		"locks_file": r.path(&g.LocksFile),
		"resource":   func(n *node, path string) { r.resource(g, n, path) },
		"replay": r.section(map[string]take{
			"window": r.duration(&g.Replay.Window), "future": r.duration(&g.Replay.Future),
			"memory": r.count(&g.Replay.Memory),
		}),
		"allow":       r.rules(&g.Allow),
		"deny":        r.rules(&g.Deny),
		"local":       r.oneOrMore(&g.Local),
		"cedar":       r.text(&g.Cedar),
		"cedar_files": r.policies(&g.CedarFiles),
		"params": r.section(map[string]take{
			"schemas": r.schemas(g), "max_string": r.smallSize(&g.Params.MaxString),
			"max_depth":  r.count(&g.Params.MaxDepth),
			"allow_keys": r.flag(&g.Params.AllowKeys),
		}),
		"limits": r.section(map[string]take{
			"rates":      r.items(func(n *node, path string) { l.Rates = append(l.Rates, r.rate(n, path)) }),
			"refusals":   func(n *node, path string) { r.refusals(g, n, path) },
			"concurrent": r.count(&l.Concurrent), "total": r.count(&l.Total),
			"connections": r.count(&l.Connections),
			"accepted":    r.count(&l.Accepted), "accept_rate": r.count(&l.AcceptRate),
			"max_body":   r.size(&l.MaxBody),
			"max_header": r.smallSize(&l.MaxHeader), "body_timeout": r.duration(&l.BodyTimeout),
			"idle": r.duration(&l.Idle),
		}),
		"audit": func(n *node, path string) { r.audit(g, n, path) },
	})
	return g
}

func (r *reader) key(n *node, path string) (k guard.Key) {
	r.fields(n, path, map[string]take{
		"id": r.text(&k.ID), "hash": r.text(&k.Hash), "kind": r.text(&k.Kind),
		"roles": r.oneOrMore(&k.Roles), "scopes": r.oneOrMore(&k.Scopes), "expires": r.date(&k.Expires),
	})
	return k
}

func (r *reader) lock(n *node, path string) (l guard.Lock) {
	r.fields(n, path, map[string]take{
		"principal": r.text(&l.Principal), "key": r.text(&l.Key), "jti": r.text(&l.JTI),
		"session": r.text(&l.Session),
		"reason":  r.text(&l.Reason), "expires": r.date(&l.Expires),
	})
	return l
}

// issuer reads a map, or the address alone.
func (r *reader) issuer(n *node, path string) (i guard.Issuer) {
	c := &i.Introspection
	r.mapOr("issuer", n, path, map[string]take{
		"issuer": r.text(&i.Issuer), "jwks": r.keySet(&i.JWKS), "audience": r.oneOrMore(&i.Audience),
		"algorithms": r.oneOrMore(&i.Algorithms),
		"skew":       r.duration(&i.Skew), "max_age": r.duration(&i.MaxAge), "id": r.text(&i.ID),
		"roles": r.text(&i.Roles), "kind": r.text(&i.Kind),
		"claims": r.table(&i.Claims), "dpop": r.text(&i.DPoP), "private": r.flag(&i.Private),
		"refresh":      r.duration(&i.Refresh),
		"keys_max_age": r.duration(&i.KeysMaxAge),
		"introspection": r.section(map[string]take{
			"url": r.text(&c.URL), "client_id": r.text(&c.ClientID), "auth": r.text(&c.Auth),
			"client_secret": func(n *node, path string) { r.hidden(&c.ClientSecret, n, path) },
			"opaque":        r.flag(&c.Opaque), "any_audience": r.flag(&c.AnyAudience),
			"ttl": r.duration(&c.TTL), "timeout": r.duration(&c.Timeout),
		}),
	})
	return i
}

// keySet reads a URL, JSON, or the path of a file: of that, what is in it.
func (r *reader) keySet(dst *string) take {
	return r.scalar(func(n *node, path, text string) {
		if !isURL(text) && !strings.HasPrefix(strings.TrimSpace(text), "{") {
			var ok bool
			if text, ok = r.secret(n, path, strings.TrimPrefix(text, "file:")); ok &&
				!strings.HasPrefix(text, "{") {
				r.problemAt(n.at, path, "the file has no set of keys in JSON", `it begins with {"keys":`)
			}
			r.written[path] = n.text
			put(&r.values, path, text)
		}
		*dst = text
	})
}

func (r *reader) certificate(n *node, path string) (c guard.Certificate) {
	r.fields(n, path, map[string]take{
		"san": r.text(&c.SAN), "ca": r.authority(&c.CA),
		"id": r.text(&c.ID), "kind": r.text(&c.Kind), "roles": r.oneOrMore(&c.Roles),
	})
	return c
}

// authority reads certificates in PEM, or the path of a file: of that, what is in it.
func (r *reader) authority(dst *string) take {
	return r.scalar(func(n *node, path, text string) {
		if !strings.Contains(text, "-----BEGIN") {
			var ok bool
			if text, ok = r.secret(n, path, strings.TrimPrefix(text, "file:")); !ok {
				return
			}
			r.written[path] = n.text
			put(&r.values, path, text)
		}
		*dst = text
	})
}

func (r *reader) signer(n *node, path string) (s guard.Signer) {
	r.fields(n, path, map[string]take{
		"id":     r.text(&s.ID),
		"secret": func(n *node, path string) { r.hidden(&s.Secret, n, path) },
		"public": func(n *node, path string) {
			if text, ok := r.private(n, path); ok {
				s.Public = text
			}
		},
		"kind": r.text(&s.Kind), "roles": r.oneOrMore(&s.Roles),
	})
	return s
}

// option reads a flag that may be absent.
func (r *reader) option(dst **bool) take {
	return func(n *node, path string) {
		var on bool
		before := len(r.problems)
		r.flag(&on)(n, path)
		if len(r.problems) == before {
			*dst = &on
		}
	}
}

// resource reads a map, or the URL alone.
func (r *reader) resource(g *guard.Config, n *node, path string) {
	r.mapOr("url", n, path, map[string]take{
		"url": r.text(&g.Resource.URL), "servers": r.oneOrMore(&g.Resource.Servers),
		"scopes": func(n *node, path string) {
			r.each(n, path, func(m member, path string) {
				var list []string
				r.oneOrMore(&list)(m.value, path)
				if g.Resource.Scopes == nil {
					g.Resource.Scopes = map[string][]string{}
				}
				g.Resource.Scopes[m.key] = list
			})
		},
	})
}

// policies reads paths of files that must be there.
func (r *reader) policies(dst *[]string) take {
	return func(n *node, path string) {
		var list []string
		r.oneOrMore(&list)(n, path)
		for i, name := range list {
			full := r.beside(name)
			at := fmt.Sprintf("%s[%d]", path, i)
			if _, err := readBounded(full, maxYAML); err != nil {
				r.problem(at, fmt.Sprintf("cannot read the file: %v", pathless(err)),
					"the path is relative to "+r.dir)
				continue
			}
			if !slices.Contains(r.read, full) {
				r.read = append(r.read, full)
			}
			*dst = append(*dst, full)
		}
	}
}

// schemas reads how params are checked against schemas.
func (r *reader) schemas(g *guard.Config) take {
	return r.scalar(func(n *node, path, text string) {
		schemas, known := map[string]string{"true": "", "false": "off", "strict": "strict"}[text]
		if g.Params.Schemas = schemas; !known {
			r.problemAt(n.at, path, fmt.Sprintf("%q is neither true, false nor strict", n.text),
				"write true, false or strict")
		}
	})
}

// maxBudget bounds the memory of messages.
const maxBudget = 1 << 40

// refusals reads a map, or the limit alone.
func (r *reader) refusals(g *guard.Config, n *node, path string) {
	var rate guard.Rate
	limit := func(n *node, path string) { r.frequency(&rate, n, path) }
	r.mapOr("limit", n, path, map[string]take{"limit": limit, "burst": r.count(&rate.Burst)})
	if n.kind == mapNode && n.get("limit") == nil {
		r.problem(path, "it has no limit", "add limit: 60/min")
	}
	to := &g.Limits.Refusals
	to.Limit, to.Every, to.Burst = rate.Limit, rate.Every, rate.Burst
}

// maxLog bounds the file of an audit.
const maxLog = 1 << 40

// audit reads a map, or the file alone.
func (r *reader) audit(g *guard.Config, n *node, path string) {
	r.mapOr("file", n, path, map[string]take{
		"file": r.scalar(func(_ *node, _, text string) {
			if g.Audit.File = text; text != "" && text != "-" {
				g.Audit.File = r.beside(text)
			}
		}),
		"max_size": r.sizeTo(&g.Audit.MaxSize, maxLog, "1TiB"), "keep": r.count(&g.Audit.Keep),
		"keep_for": r.days(&g.Audit.KeepFor), "on_full": r.text(&g.Audit.OnFull),
		"key":    func(n *node, path string) { r.hidden(&g.Audit.Key, n, path) },
		"params": r.flag(&g.Audit.Params), "redact": r.oneOrMore(&g.Audit.Redact),
	})
}

// guard checks who may call what.
func (c *checker) guard(g *guard.Config) {
	for _, p := range g.Check() {
		path, message := "guard", p.Message
		if i := slices.Index(g.CedarFiles, p.Path); i >= 0 {
			path, message = fmt.Sprintf("guard.cedar_files[%d]", i), filepath.Base(p.Path)+": "+message
		} else if p.Path != "" {
			path += "." + p.Path
		}
		message = c.asWritten(path, message)
		switch {
		case c.said != nil && c.said(path): // what could not be read is missing
		case !p.Warning:
			c.problem(path, message, p.Hint)
		case c.notice != nil:
			c.notice(path, message, p.Hint)
		}
	}
}

// patterns warns of patterns that match no call, as no upstream has the name that they begin with.
func (c *checker) patterns(g *guard.Config, upstreams []*Upstream) {
	if c.notice == nil || len(upstreams) == 0 {
		return
	}
	names := namesOf(upstreams)
	eachPattern(g, func(path, pattern string) { c.pattern(path, pattern, names) })
}

// eachPattern yields the patterns of calls that a guard has, with their paths.
func eachPattern(g *guard.Config, yield func(path, pattern string)) {
	for path, patterns := range patternsOf(g) {
		for i, p := range *patterns {
			yield(fmt.Sprintf("%s[%d]", path, i), p)
		}
	}
	for _, p := range sortedKeys(g.Resource.Scopes) {
		yield(join("guard.resource.scopes", p), p)
	}
}

// patternsOf yields the lists of patterns of calls that a guard has, with their paths.
func patternsOf(g *guard.Config) iter.Seq2[string, *[]string] {
	return func(yield func(string, *[]string) bool) {
		for n, rules := range [][]guard.Rule{g.Allow, g.Deny} {
			for i := range rules {
				path := fmt.Sprintf("guard.%s[%d].calls", []string{"allow", "deny"}[n], i)
				if !yield(path, &rules[i].Calls) {
					return
				}
			}
		}
		for i := range g.Limits.Rates {
			if !yield(fmt.Sprintf("guard.limits.rates[%d].calls", i), &g.Limits.Rates[i].Calls) {
				return
			}
		}
		yield("guard.local", &g.Local)
	}
}

// namesOf returns the names of upstreams; some may be nil.
func namesOf(upstreams []*Upstream) (names []string) {
	for _, u := range upstreams {
		if u != nil {
			names = append(names, u.Name)
		}
	}
	return names
}

// namedByUpstream are the methods with names that begin with an upstream in rules: tools/call
// UPSTREAM/NAME.
var namedByUpstream = []string{
	"rpc", spec.MethodToolsCall, spec.MethodPromptsGet, spec.MethodResourcesRead,
	spec.MethodResourcesSubscribe, spec.MethodResourcesUnsubscribe,
}

func (c *checker) pattern(path, pattern string, upstreams []string) {
	method, name, _ := strings.Cut(pattern, " ")
	head, _, named := strings.Cut(name, "/")
	if !slices.Contains(namedByUpstream, method) && (method != methodAdmin || !named) || head == "" ||
		strings.ContainsAny(head, "*?") || named && slices.Contains(upstreams, head) {
		return
	}
	hint := "the upstreams are " + strings.Join(upstreams, ", ")
	switch near := nearest(head, upstreams); {
	case !named:
		hint = "write the upstream before it, as in " + method + " " + upstreams[0] + "/" + name
	case near != "":
		hint = "did you mean " + near + "?"
	}
	message := fmt.Sprintf("the pattern %s matches no call: no upstream is called %q",
		c.quote(path, pattern), head)
	if !named {
		message = fmt.Sprintf("the pattern %s matches no call: it names no upstream",
			c.quote(path, pattern))
	}
	c.notice(path, c.asWritten(path, message), c.asWritten(path, hint))
}

// said reports whether there is a problem with an item already.
func (r *reader) said(path string) bool {
	return slices.ContainsFunc(r.problems, func(p Problem) bool {
		return itemOf(p.Path) == itemOf(path)
	})
}

// itemOf returns the path of what a part belongs to: guard.keys[0] of guard.keys[0].hash.
func itemOf(path string) string {
	if i := strings.IndexByte(path, ']'); i >= 0 {
		return path[:i+1]
	}
	parts := strings.SplitN(path, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

// asWritten takes values that came from elsewhere out of a message about a path.
func (c *checker) asWritten(path, message string) string {
	for at, value := range c.values {
		if value != "" && (strings.HasPrefix(at, path) || strings.HasPrefix(path, at)) {
			message = strings.ReplaceAll(message, value, c.written[at])
		}
	}
	return message
}

// auditAlone refuses an audit in a file that is something else: lines would be written to it, and
// it would be renamed. The same goes for the names of files before the audit, which are renamed and
// deleted.
func (r *reader) auditAlone(c *Config) {
	if c.Guard == nil || c.Guard.Audit.File == "" || c.Guard.Audit.File == "-" {
		return
	}
	bare := *c
	bare.Guard = nil
	for _, other := range slices.Concat(r.read, bare.Private(),
		[]string{c.Guard.LocksFile, c.Lock, c.TLS.Cert, c.TLS.ClientCA}) {
		if other != "" && ofAudit(c.Guard.Audit.File, other) {
			r.problem("guard.audit.file",
				other+" is another file of the configuration, or would be taken for one before the audit",
				"write the audit to its own file")
			return
		}
	}
}

// ofAudit reports whether a file is that of an audit, or has the name of one before it: FILE.1,
// FILE.2 and so on.
func ofAudit(audit, other string) bool {
	a, errA := filepath.Abs(audit)
	b, errB := filepath.Abs(other)
	if errA != nil || errB != nil {
		return false
	}
	if number, is := strings.CutPrefix(b, a+"."); is && number != "" &&
		strings.Trim(number, "0123456789") == "" {
		return true
	}
	first, errA := os.Stat(a)
	second, errB := os.Stat(b)
	return a == b || errA == nil && errB == nil && os.SameFile(first, second)
}
