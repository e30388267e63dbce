package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/gateway/internal/route"
)

// Filled returns a copy in which every default is written out. It is to have
// passed [Config.Check].
func (c *Config) Filled() *Config {
	out := *c
	out.Name = cmp.Or(c.Name, "farcall")
	out.Namespace = cmp.Or(c.Namespace, route.NamespaceAlways)
	out.MaxSuspended = cmp.Or(c.MaxSuspended, 1000)
	out.SuspendTimeout = cmp.Or(c.SuspendTimeout, 5*time.Minute)
	out.DrainTimeout = cmp.Or(c.DrainTimeout, 10*time.Second)
	out.PageSize = cmp.Or(c.PageSize, 100)
	out.Idempotency.TTL = cmp.Or(c.Idempotency.TTL, keptFor)
	out.Sessions.Mode = c.Sessions.mode(c.Cluster.Set())
	out.Sessions.MaxAge = cmp.Or(c.Sessions.MaxAge, sessionAge)
	if c.Tasks.Dir != "" {
		out.Tasks.TTL, out.Tasks.MaxBytes = cmp.Or(c.Tasks.TTL, taskTTL),
			cmp.Or(c.Tasks.MaxBytes, taskSize)
	}
	out.Errors = cmp.Or(c.Errors, "details")
	out.Upstreams = slices.Clone(c.Upstreams)
	for i, u := range c.Upstreams {
		out.Upstreams[i] = u.filled(out.Namespace)
	}
	return &out
}

func (u *Upstream) filled(namespace string) *Upstream {
	out := *u
	out.Profile = u.profile()
	out.Sandbox = u.Sandbox.filled()
	out.Timeout = cmp.Or(u.Timeout, 60*time.Second)
	out.StartTimeout = cmp.Or(u.StartTimeout, 60*time.Second)
	out.QueueTimeout = cmp.Or(u.QueueTimeout, 30*time.Second)
	out.MaxInFlight = cmp.Or(u.MaxInFlight, 1024)
	out.MaxQueue = cmp.Or(u.MaxQueue, 1024)
	out.Breaker.After = cmp.Or(u.Breaker.After, 5)
	out.Breaker.For = cmp.Or(u.Breaker.For, 10*time.Second)
	scheme, _, _ := strings.Cut(u.URL, ":")
	if len(u.Command) > 0 {
		out.Restart.Min = cmp.Or(u.Restart.Min, 100*time.Millisecond)
		out.Restart.Max = cmp.Or(u.Restart.Max, max(30*time.Second, out.Restart.Min))
	}
	if len(u.Command) > 0 || scheme == "tcp" || scheme == "tls" || scheme == "unix" {
		out.Framing = cmp.Or(u.Framing, "line")
	}
	if out.Profile == "raw" {
		if len(u.Command) > 0 {
			out.Lifetime = cmp.Or(u.Lifetime, "session")
		}
		return &out
	}
	out.Lifetime = cmp.Or(u.Lifetime, lifetimeAuto)
	out.Era = cmp.Or(u.Era, "auto")
	out.Namespace = cmp.Or(u.Namespace, namespace)
	out.Label = u.refs().Label
	out.Arguments, out.Web = cmp.Or(u.Arguments, argumentsRewrite), cmp.Or(u.Web, webBare)
	if scheme != "http" && scheme != "https" && u.OpenAPI == nil && out.Lifetime != lifetimeShared {
		out.Pool = cmp.Or(u.Pool, 8)
	}
	return &out
}

// profile is what is found at the server: one of this process is served as MCP.
func (u *Upstream) profile() string {
	if u.Server != nil || u.OpenAPI != nil {
		return profileMCP
	}
	return cmp.Or(u.Profile, profileAuto)
}

// ServesRPC reports whether the server is at /rpc/NAME, where the gateway does not look at what
// is called. With the profile auto it is not when something is to be kept from
// clients, which holds for MCP only: by a lock, by hooks, by allow, deny or rename, or by a
// lifetime.
func (u *Upstream) ServesRPC(locked bool) bool {
	if p := u.profile(); p != profileAuto {
		return p == profileRaw
	}
	for _, f := range []Filter{u.Tools, u.Resources, u.Prompts} {
		if len(f.Allow)+len(f.Deny)+len(f.Rename) > 0 {
			return false
		}
	}
	return !locked && u.forAll()
}

// Origin says where a value came from: "env GITHUB_TOKEN", "file token.txt", or "" when it stands
// in the configuration itself. Keys are "env.NAME", "headers.Name", "auth.secret", "auth.key" and
// "auth.principals.WHO.Header".
func (u *Upstream) Origin(key string) string {
	if key == "url" {
		return ""
	}
	return u.origins[key]
}

// Target is the command or the URL without what may be secret in it: what came
// from elsewhere is shown as it was written, and a query and what looks like a
// password is left out.
func (u *Upstream) Target() string {
	if u.Server != nil {
		return "a server of this process"
	}
	if u.OpenAPI != nil {
		text := "openapi " + publicURL(u.OpenAPI.Document)
		if u.URL != "" {
			text += " at " + u.address()
		}
		return text
	}
	if u.URL != "" {
		return u.address()
	}
	words := u.Command
	if len(u.shown) == len(u.Command) {
		words = u.shown
	}
	return strings.Join(publicWords(words), " ")
}

// address is the URL as it may be shown.
func (u *Upstream) address() string { return publicURL(cmp.Or(u.origins["url"], u.URL)) }

var withDefault = regexp.MustCompile(`(\$\{[^}]*?):-[^}]*\}`)

func publicURL(text string) string {
	text = withDefault.ReplaceAllString(text, "$1}")
	if before, query, ok := strings.Cut(text, "?"); ok && query != "" {
		text = before + "?..."
	}
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		host, path, slash := strings.Cut(rest, "/")
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			text = scheme + "://..." + host[at:]
			if slash {
				text += "/" + path
			}
		}
	}
	return text
}

// publicWords quotes words that need it, and hides those that look secret.
func publicWords(words []string) []string {
	out := make([]string, len(words))
	hide := false
	for i, w := range words {
		flag, value, assigned := strings.Cut(w, "=")
		secret := isSecretFlag(flag)
		switch {
		case hide && !onlyReference.MatchString(w), secretStart.MatchString(w):
			w = "..."
		case secret && assigned && !onlyReference.MatchString(value):
			w = flag + "=..."
		case isURL(w):
			w = publicURL(w)
		}
		hide = secret && !assigned && strings.HasPrefix(flag, "-")
		w = withDefault.ReplaceAllString(w, "$1}")
		if w == "" || strings.ContainsAny(w, " \t\n\"'\\|&;<>`") {
			w = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		out[i] = w
	}
	return out
}

var (
	onlyReference = regexp.MustCompile(`^\$\{[^}]*\}$`)
	// secretStart is how the tokens of well-known services begin.
	secretStart = regexp.MustCompile(
		`^(sk-|sk_|ghp_|gho_|github_pat_|glpat-|xox[a-z]-|AKIA|eyJ|Bearer )`)
)

// isSecretFlag reports whether what is given to a flag is better not shown.
func isSecretFlag(flag string) bool {
	flag = strings.ToLower(flag)
	return slices.ContainsFunc([]string{
		"token", "key", "secret", "password", "passwd", "credential",
		"auth", "header", "bearer",
	},
		func(word string) bool { return strings.Contains(flag, word) })
}

// String names the upstream and its target, without secrets.
func (u *Upstream) String() string { return fmt.Sprintf("%s (%s)", u.Name, u.Target()) }

// GoString is String: nothing that prints an upstream prints its secrets.
func (u *Upstream) GoString() string { return u.String() }

// LogValue implements [slog.LogValuer].
func (u *Upstream) LogValue() slog.Value { return slog.StringValue(u.String()) }
