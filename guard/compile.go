package guard

import (
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/limit"
	"github.com/farcall-dev/farcall/guard/internal/policy"
	"github.com/farcall-dev/farcall/guard/internal/sign"
	"github.com/farcall-dev/farcall/guard/internal/token"
	"github.com/farcall-dev/farcall/internal/audit"
	"github.com/farcall-dev/farcall/internal/lock"
)

// state is what a configuration makes of a guard. It is not changed.
type state struct {
	g         *Guard
	c         *Config
	anonymous *known // who calls without credentials, where that is allowed
	keys      map[[sha256.Size]byte]*apiKey
	verifier  *token.Verifier // nil: no tokens
	verify    map[string]*sign.Key
	// authorities are those of each entry of mtls; nil where all of the listener's count.
	authorities [][]*x509.Certificate
	signers     map[string]*known
	policy      *policy.Set
	trial       *policy.Set // with the policies on trial; nil: there are none
	scopes      []scopeRule
	limiter     *limit.Limiter
	refusals    *limit.Limiter // of calls that were refused
	log         *audit.Log     // nil: nothing is written
	locks       *lock.Set      // of the configuration
	file        *lock.File     // of more locks; nil: none
	params      *params
	past        time.Duration
	future      time.Duration
	origin      string // of Resource.URL
	host        string // in that
	metadata    []byte // of the resource; nil: there is none
	location    string // of the metadata
}

type apiKey struct {
	known
	digest [sha256.Size]byte
}

type scopeRule struct {
	pattern string
	scopes  []string
}

// A configError is everything that is wrong with a configuration.
type configError []Problem

func (e configError) Error() string {
	lines := make([]string, len(e))
	for i, p := range e {
		lines[i] = "guard: " + p.Path + ": " + p.Message
		if p.Hint != "" {
			lines[i] += "; " + p.Hint
		}
	}
	return strings.Join(lines, "\n")
}

// compile makes a state. What the old one has unchanged goes on.
func (g *Guard) compile(c *Config, old *state) (*state, error) {
	s, problems := c.compile()
	if bad := slices.DeleteFunc(problems, func(p Problem) bool { return p.Warning }); len(bad) > 0 {
		return nil, configError(bad)
	}
	s.g = g
	var err error
	switch {
	case len(c.JWT) == 0:
	case old != nil && reflect.DeepEqual(old.c.JWT, c.JWT) && old.c.Resource.URL == c.Resource.URL:
		s.verifier = old.verifier
	default:
		s.verifier, err = token.New(c.issuers(),
			&token.Options{
				HTTP: g.opts.HTTP, Logger: g.opts.Logger, Now: g.now,
				Admit: g.admitIntrospection,
			})
		if err != nil {
			return nil, fmt.Errorf("guard: %w", err)
		}
	}
	s.limiter = limit.New(
		&limit.Options{
			Rates: c.rates(), Concurrent: c.Limits.Concurrent, Total: c.Limits.Total,
			Match: policy.Match, Now: g.now, Shared: g.sharedLimits(),
		})
	if old != nil {
		s.limiter.Adopt(old.limiter)
	}
	s.refusals = c.newRefusals(g.now)
	if old != nil {
		s.refusals.Adopt(old.refusals)
	}
	if s.log, err = g.openAudit(c, old); err != nil {
		return nil, err
	}
	if err := s.followLocks(old); err != nil {
		return nil, errors.Join(fmt.Errorf("guard: %w", err), s.close(old))
	}
	return s, nil
}

// close ends what the next state does not go on with.
func (s *state) close(next *state) error {
	if s.verifier != nil && (next == nil || next.verifier != s.verifier) {
		s.verifier.Close()
	}
	if s.file != nil && (next == nil || next.file != s.file) {
		s.file.Close()
	}
	return s.g.settleAudit(s, next)
}

// Check returns what is wrong with a configuration: also rules that never count and
// rules that contradict each other, as warnings. Files that it names are read.
func (c *Config) Check() []Problem {
	_, problems := c.compile()
	return problems
}

// A finder collects problems.
type finder []Problem

func (f *finder) bad(path, message, hint string) {
	*f = append(*f, Problem{Path: path, Message: message, Hint: hint})
}

func (f *finder) warn(path, message, hint string) {
	*f = append(*f, Problem{Path: path, Message: message, Hint: hint, Warning: true})
}

// compile makes the parts that need nothing but the configuration.
func (c *Config) compile() (*state, []Problem) {
	var f finder
	s := &state{
		c: c, anonymous: anonymous(), params: newParams(c),
		past: cmp.Or(c.Replay.Window, 5*time.Minute), future: cmp.Or(c.Replay.Future, 30*time.Second),
	}
	if c.Replay.Window < 0 || c.Replay.Future < 0 || c.Replay.Memory < 0 {
		f.bad("replay", "there is a number less than 0", "leave it out for the default")
	}
	if v := c.Params.Schemas; v != "" && v != schemasOff && v != schemasStrict {
		f.bad("params.schemas", fmt.Sprintf("there is no way %q to use schemas", v),
			"use strict or off, or leave it out for the default")
	}
	f.mode("mode", c.Mode)
	c.compileKeys(s, &f)
	c.compileSigners(s, &f)
	c.compileResource(s, &f)
	c.compileLocks(s, &f)
	c.compilePolicy(s, &f)
	c.checkIssuers(&f)
	c.checkRoles(&f)
	c.checkPrincipals(&f)
	c.checkLimits(&f)
	c.compileMTLS(s, &f)
	c.checkAudit(&f)
	if c.Resource.URL == "" {
		if len(c.Signatures) > 0 {
			f.warn("resource.url", "it is missing: a signature made for another server would be accepted",
				"write the address of this server as clients know it")
		} else if i := slices.IndexFunc(c.JWT, func(i Issuer) bool {
			return i.DPoP == "required"
		}); i >= 0 {
			f.warn("resource.url", "it is missing: a DPoP proof made for another server would be accepted",
				"write the address of this server as clients know it")
		}
	}
	if !c.Anonymous && len(c.Keys)+len(c.JWT)+len(c.MTLS)+len(c.Signatures) == 0 &&
		(c.Stdio.Trust == nil || !*c.Stdio.Trust) && c.Stdio.TokenEnv == "" {
		message := "no authentication method is configured: every request is refused"
		if c.Stdio.Trust == nil {
			message += ", except over standard input"
		}
		f.warn("", message, "add keys, jwt, mtls or signatures, or anonymous: true")
	}
	return s, f
}

func (c *Config) compileKeys(s *state, f *finder) {
	s.keys = map[[sha256.Size]byte]*apiKey{}
	for i := range c.Keys {
		k := &c.Keys[i]
		path := fmt.Sprintf("keys[%d]", i)
		digest, err := readHash(k.Hash)
		switch {
		case err != nil:
			f.bad(path+".hash", err.Error(),
				"make one with 'farcall key new', or 'farcall key hash' of a key that there is")
		case k.ID == "":
			f.bad(path+".id", "it is empty", "name who has the key")
		case s.keys[digest] != nil:
			f.bad(path+".hash", "another entry has the same", "each needs its own key")
		}
		s.keys[digest] = &apiKey{digest: digest, known: *knownAs(&Principal{
			ID: k.ID, Kind: or(k.Kind, "service"), Method: "key", Roles: k.Roles, Scopes: k.Scopes,
			Expires: k.Expires,
			shown:   &shown{secret: digest, keys: []string{hashName(digest[:])}},
		})}
	}
}

func (c *Config) compileSigners(s *state, f *finder) {
	s.verify, s.signers = map[string]*sign.Key{}, map[string]*known{}
	for i := range c.Signatures {
		k := &c.Signatures[i]
		path := fmt.Sprintf("signatures[%d]", i)
		var key *sign.Key
		var err error
		switch {
		case k.ID == "":
			f.bad(path+".id", "it is empty", "name who has the key")
			continue
		case s.verify[k.ID] != nil:
			f.bad(path+".id", "another entry has the same", "each needs its own id")
			continue
		case (k.Secret == "") == (k.Public == ""):
			f.bad(path, "it needs a secret or a public key",
				"give one of them; 'farcall key sign-new' makes either")
			continue
		case k.Secret != "":
			key, err = sign.NewSecret(k.ID, []byte(k.Secret))
		default:
			key, err = sign.NewPublic(k.ID, k.Public)
		}
		if err != nil {
			f.bad(path, err.Error(), "'farcall key sign-new' makes one")
			continue
		}
		s.verify[k.ID] = key
		s.signers[k.ID] = knownAs(&Principal{
			ID: k.ID, Kind: or(k.Kind, "service"), Method: "signature", Roles: k.Roles,
			shown: &shown{secret: sha256.Sum256([]byte(k.Secret + "\n" + k.Public)), keys: []string{k.ID}},
		})
	}
}

func (c *Config) compileResource(s *state, f *finder) {
	if c.Resource.URL == "" {
		if len(c.Resource.Servers) > 0 {
			f.bad("resource.url", "it is missing", "write the address of this server as clients know it")
		}
	} else if u, err := url.Parse(c.Resource.URL); err != nil ||
		strings.ContainsAny(u.Host, "\"<>\\ ") || u.Host == "" ||
		u.Scheme != "https" && u.Scheme != "http" || u.Fragment != "" {
		f.bad("resource.url", "it is no address of http or https without a fragment",
			"write https://host/mcp")
	} else {
		s.origin, s.host = u.Scheme+"://"+u.Host, u.Host
		s.resource(u)
	}
	for pattern, scopes := range c.Resource.Scopes {
		if len(scopes) == 0 {
			f.bad("resource.scopes."+pattern, "it names no scope", "name one, or remove it")
		}
		for _, scope := range scopes {
			if scope == "" || strings.ContainsFunc(scope, notInScope) {
				f.bad("resource.scopes."+pattern, "a scope cannot be written so",
					"use letters, digits and marks but for quotes, backslashes and spaces")
			}
		}
		s.scopes = append(s.scopes, scopeRule{pattern, scopes})
	}
	slices.SortFunc(s.scopes, func(a, b scopeRule) int {
		return strings.Compare(a.pattern, b.pattern)
	})
}

// notInScope reports whether a character cannot be in a scope (RFC 6749, appendix A.4).
func notInScope(r rune) bool { return r <= ' ' || r == '"' || r == '\\' || r > '~' }

func (c *Config) compilePolicy(s *state, f *finder) {
	src := &policy.Source{Local: c.Local}
	for i, list := range [][]Rule{c.Allow, c.Deny} {
		for at, r := range list {
			src.Rules = append(src.Rules, policy.Rule{
				Name: r.Name, Deny: i == 1, Roles: r.Roles, Principals: r.Principals, Calls: r.Calls,
				Destructive: r.Destructive,
				Shadow:      r.Mode == modeShadow,
			})
			f.mode(fmt.Sprintf("%s[%d].mode", []string{"allow", "deny"}[i], at), r.Mode)
		}
	}
	if c.Cedar != "" {
		src.Cedar = append(src.Cedar, policy.Text{Name: "cedar", Text: c.Cedar})
	}
	for i, name := range c.CedarFiles {
		text, err := os.ReadFile(name)
		if err != nil {
			if why, ok := errors.AsType[*fs.PathError](err); ok {
				err = why.Err
			}
			f.bad(fmt.Sprintf("cedar_files[%d]", i), "cannot read "+name+": "+err.Error(),
				"paths are relative to the configuration")
			continue
		}
		src.Cedar = append(src.Cedar, policy.Text{Name: name, Text: string(text)})
	}
	set, problems := policy.Compile(src)
	if s.policy = set.Enforced(); s.policy != set {
		s.trial = set
	}
	for _, p := range problems {
		if p.Line > 0 {
			p.Message = fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Message)
		}
		*f = append(*f, Problem{Path: p.Path, Message: p.Message, Hint: p.Hint, Warning: p.Warning})
	}
}

// issuers are those of the configuration with what they take from elsewhere.
func (c *Config) issuers() []token.Issuer {
	list := make([]token.Issuer, len(c.JWT))
	for i, j := range c.JWT {
		if len(j.Audience) == 0 && c.Resource.URL != "" {
			j.Audience = []string{c.Resource.URL}
		}
		list[i] = token.Issuer(j)
	}
	return list
}

func (c *Config) checkIssuers(f *finder) {
	for i, one := range c.issuers() {
		v, err := token.New([]token.Issuer{one}, nil)
		if err != nil {
			f.bad(fmt.Sprintf("jwt[%d]", i), strings.TrimPrefix(err.Error(), "token: "), "")
			continue
		}
		v.Close()
		for _, other := range c.JWT[:i] {
			if other.Issuer == one.Issuer {
				f.bad(fmt.Sprintf("jwt[%d].issuer", i), "another entry has the same", "put them together")
			}
		}
	}
}

// checkRoles finds rules that are for roles that no principal has. Tokens may have any.
func (c *Config) checkRoles(f *finder) {
	roles := slices.Clone(c.Stdio.Roles)
	for _, k := range c.Keys {
		roles = append(roles, k.Roles...)
	}
	for _, m := range c.MTLS {
		roles = append(roles, m.Roles...)
	}
	for _, k := range c.Signatures {
		roles = append(roles, k.Roles...)
	}
	if len(c.JWT) > 0 || len(roles) == 0 && len(c.Keys)+len(c.MTLS)+len(c.Signatures) == 0 {
		return // who calls may be found out by the program
	}
	roles = append(roles, "anonymous")
	find := func(what string, rules []Rule) {
		for i, r := range rules {
			for _, role := range r.Roles {
				if !slices.Contains(roles, role) {
					f.warn(fmt.Sprintf("%s[%d].roles", what, i), fmt.Sprintf("no principal has the role %q", role),
						"give it to a key, certificate, signature or stdio, or correct its name")
				}
			}
		}
	}
	find("allow", c.Allow)
	find("deny", c.Deny)
}

func (c *Config) rates() []limit.Rate {
	list := make([]limit.Rate, len(c.Limits.Rates))
	for i, r := range c.Limits.Rates {
		list[i] = limit.Rate(r)
	}
	return list
}

func (c *Config) checkLimits(f *finder) {
	for i, r := range c.Limits.Rates {
		path := fmt.Sprintf("limits.rates[%d]", i)
		if !slices.Contains([]string{"", "principal", "address", "all"}, r.Per) {
			f.bad(path+".per", "there is no such kind", "use principal, address or all")
		}
		if r.Limit < 1 || r.Every < 0 || r.Burst < 0 {
			f.bad(path+".limit", "it lets no call through", "write 10/s, 100/min, 1000/h or 5000/day")
		}
	}
	if r := &c.Limits.Refusals; r.Limit < 0 || r.Every < 0 || r.Burst < 0 ||
		r.Limit == 0 && (r.Every > 0 || r.Burst > 0) {
		f.bad("limits.refusals", "it lets no call through",
			"write 60/min, or {limit: 60/min, burst: 1000}")
	}
	l := &c.Limits
	for path, n := range map[string]int64{
		"concurrent": int64(l.Concurrent), "total": int64(l.Total), "connections": int64(l.Connections),
		"accepted": int64(l.Accepted),
		"max_body": l.MaxBody, "max_header": int64(l.MaxHeader), "body_timeout": int64(l.BodyTimeout),
		"idle": int64(l.Idle),
	} {
		if n < 0 {
			f.bad("limits."+path, "it is less than 0", "leave it out for the default")
		}
	}
}

func (c *Config) checkAudit(f *finder) {
	a := &c.Audit
	if a.MaxSize < 0 || a.Keep < 0 || a.KeepFor < 0 {
		f.bad("audit", "there is a number less than 0", "leave it out for the default")
	}
	if a.OnFull != "" && a.OnFull != "refuse" && a.OnFull != "rotate" {
		f.bad("audit.on_full", fmt.Sprintf("%q is neither refuse nor rotate", a.OnFull),
			"refuse (the default) refuses calls when the store is full, rotate deletes the oldest file")
	}
	if a.Key != "" && len(a.Key) < 32 {
		f.bad("audit.key", "it has fewer than 32 bytes",
			"write file:PATH if the key is in a file; 'openssl rand -base64 32' makes one")
	}
	if a.File == "" && !reflect.DeepEqual(*a, Config{}.Audit) {
		f.warn("audit.file", "it is missing: nothing is written", "name a file, or - for standard error")
	}
}

// compileMTLS checks the entries of client certificates and reads their authorities.
func (c *Config) compileMTLS(s *state, f *finder) {
	s.authorities = make([][]*x509.Certificate, len(c.MTLS))
	for i, m := range c.MTLS {
		path := fmt.Sprintf("mtls[%d]", i)
		if m.SAN == "" {
			f.bad(path+".san", "it is empty",
				"write a name such as spiffe://example.org/agent/* or *.example.org")
		}
		if m.CA == "" {
			if slices.ContainsFunc(c.MTLS, func(other Certificate) bool { return other.CA != "" }) {
				f.warn(path+".ca",
					"it is missing: every authority of the listener may sign for "+m.SAN+
						", those of other entries included", "name the authority of this entry")
			}
			continue
		}
		var err error
		if s.authorities[i], err = readAuthorities(m.CA); err != nil {
			f.bad(path+".ca", err.Error(), "name a file with certificates in PEM")
		}
	}
}

// readAuthorities reads certificates in PEM.
func readAuthorities(text string) (list []*x509.Certificate, err error) {
	rest := []byte(text)
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("it has a certificate that cannot be read: %w", err)
		}
		list = append(list, cert)
	}
	if len(list) == 0 {
		return nil, errors.New("there is no certificate in PEM")
	}
	return list, nil
}

// signedFor reports whether a chain that the listener has checked leads to an authority of an
// entry. Without authorities the listener's are good for it. The certificate of the client itself
// is none of them.
func (s *state) signedFor(entry int, c *tls.ConnectionState) bool {
	if s.authorities[entry] == nil {
		return true
	}
	for _, chain := range c.VerifiedChains {
		for _, above := range chain[1:] {
			if slices.ContainsFunc(s.authorities[entry], above.Equal) {
				return true
			}
		}
	}
	return false
}
