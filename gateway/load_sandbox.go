package gateway

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/sandbox"
)

// maxMemory bounds what a command may have.
const maxMemory = 1 << 50

// sandboxNone is the mode that starts a command as it is.
const sandboxNone = "none"

// sandbox reads a map, or the mode alone.
func (r *reader) sandbox(n *node, path string) *Sandbox {
	s := &Sandbox{}
	r.mapOr("mode", n, path, map[string]take{
		"mode": r.text(&s.Mode), "read": r.paths(&s.Read), "write": r.paths(&s.Write),
		"execute": r.paths(&s.Execute), "network": r.oneOrMore(&s.Network),
		"memory": r.sizeTo(&s.Memory, maxMemory, "1PiB"), "processes": r.count(&s.Processes),
		"files": r.count(&s.Files), "cpu": r.duration(&s.CPU),
	})
	return s
}

// paths reads paths that are relative to the file.
func (r *reader) paths(dst *[]string) take {
	return func(n *node, path string) {
		var list []string
		r.oneOrMore(&list)(n, path)
		for _, name := range list {
			*dst = append(*dst, r.beside(name))
		}
	}
}

// filled has every default written out.
func (s *Sandbox) filled() *Sandbox {
	if s == nil {
		return nil
	}
	out := *s
	out.Mode = cmp.Or(s.Mode, "strict")
	if s.Mode == sandboxNone {
		return &out
	}
	if len(s.Network) == 0 {
		out.Network = []string{"none"}
	}
	out.Memory = cmp.Or(s.Memory, 1<<30)
	out.Processes = cmp.Or(s.Processes, 64)
	out.Files = cmp.Or(s.Files, 256)
	return &out
}

// credentials reads a map, or the type alone.
func (r *reader) credentials(u *Upstream, n *node, path string) {
	c := &Credentials{}
	u.Auth = c
	secret := func(dst *string, key string) take {
		return func(n *node, path string) { put(&u.origins, "auth."+key, r.hidden(dst, n, path)) }
	}
	r.mapOr("type", n, path, map[string]take{
		"type": r.text(&c.Type), "client_id": r.text(&c.ClientID), "secret": secret(&c.Secret, "secret"),
		"key":          secret(&c.Key, "key"),
		"metadata_url": r.text(&c.MetadataURL), "issuer": r.text(&c.Issuer),
		"audience": r.text(&c.Audience), "scopes": r.oneOrMore(&c.Scopes),
		"dpop": r.flag(&c.DPoP), "store": func(n *node, path string) {
			if r.text(&c.Store)(n, path); c.Store != "" && c.Store != keyringStore {
				c.Store = r.beside(c.Store)
			}
		},
		"assertion_file": r.path(&c.AssertionFile),
		"principals": func(n *node, path string) {
			r.each(n, path, func(m member, path string) { r.principal(u, m, path) })
		},
	})
}

// principal reads the headers for a principal.
func (r *reader) principal(u *Upstream, m member, path string) {
	if u.Auth.Principals == nil {
		u.Auth.Principals = map[string]map[string]string{}
	}
	headers := map[string]string{}
	r.each(m.value, path, func(header member, path string) {
		value, ok := r.private(header.value, path)
		if !ok {
			return
		}
		headers[header.key] = value
		put(&u.origins, "auth.principals."+m.key+"."+header.key, r.origin)
		if r.inClear(value) && isSecretFlag(header.key) {
			r.advise(path, "it is secret and stands in the file itself",
				"write ${NAME} for a variable of the environment, or file:PATH")
		}
	})
	u.Auth.Principals[m.key] = headers
}

// String is the kind of the credentials. It has no secrets.
func (c Credentials) String() string { return c.Type }

// GoString is String: nothing that prints credentials prints their secrets.
func (c Credentials) GoString() string { return c.String() }

// LogValue implements [slog.LogValuer].
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.String()) }

// confinement checks what a command may do.
func (c *checker) confinement(u *Upstream, path string) {
	s := u.Sandbox
	if s == nil {
		return
	}
	path += ".sandbox"
	if len(u.Command) == 0 && u.URL != "" {
		c.problem(path, "only a command has it", "remove it")
		return
	}
	c.choice(path+".mode", "sandbox", s.Mode, "strict", "best-effort", sandboxNone)
	if s.Mode == sandboxNone && !reflect.DeepEqual(s, &Sandbox{Mode: sandboxNone}) {
		c.problem(path, "mode none confines nothing", "remove everything else, or the mode")
	}
	for i, network := range s.Network {
		at := path + ".network"
		if len(s.Network) > 1 {
			at += "[" + strconv.Itoa(i) + "]"
		}
		_, notPort := strconv.ParseUint(network, 10, 16)
		switch {
		case network == "none" && len(s.Network) > 1:
			c.problem(at, network+" stands alone", "remove it, or everything else")
		case notPort == nil && network != "0" && slices.Contains(s.Network, "all"):
			c.problem(at, "all has every port", "remove it, or all")
		case sandbox.CheckNetwork(network) != nil:
			c.problem(at, c.quote(at, network)+" is neither a port nor a destination nor none nor all",
				"write none, all, the TCP ports of public addresses: [443], or destinations: "+
					"[db.internal:5432, 10.0.0.0/8:443]")
		}
	}
	for _, list := range [][]string{s.Read, s.Write, s.Execute} {
		if slices.ContainsFunc(list, func(p string) bool { return p == "" || hasNUL(p) }) {
			c.problem(path, "a path is empty or has a NUL byte", "remove it")
		}
	}
	c.notNegative(path+".memory", int(s.Memory))
	c.notNegative(path+".processes", s.Processes)
	c.notNegative(path+".files", s.Files)
	c.notBefore(path+".cpu", s.CPU)
}

// credentials checks how the gateway shows who it is.
func (c *checker) credentials(u *Upstream, path string) {
	if u.Auth == nil {
		return
	}
	path += ".auth"
	scheme, _, _ := strings.Cut(strings.ToLower(u.URL), ":")
	if scheme != "http" && scheme != "https" {
		c.problem(path, "only http and https have it", "remove it")
		return
	}
	types := []string{
		"oauth", "client_credentials", "workload_identity", "token_exchange",
		"principals", "passthrough", authSignIn,
	}
	if u.Auth.Type == "" {
		c.problem(path, "it has no type", "use "+either(types...))
		return
	}
	c.choice(path+".type", "type", u.Auth.Type, types...)
	for _, name := range sortedKeys(u.Headers) {
		if strings.EqualFold(name, "Authorization") {
			c.problem(path, "headers has Authorization as well", "remove one")
		}
	}
	if !slices.Contains(types, u.Auth.Type) || c.said != nil && c.said(path) {
		return
	}
	if message, hint := u.checkAuth(); message != "" {
		c.problem(path, c.asWritten(path, message), hint)
	}
}

// asksWho reports whether the credentials depend on who calls.
func (c *Credentials) asksWho() bool {
	return c != nil &&
		slices.Contains([]string{"token_exchange", "principals", "passthrough", authSignIn}, c.Type)
}

// Private are the files and directories of the gateway that hold secrets or evidence: the
// configuration and what it refers to, the audit, locks, stored tasks, keys and tokens. No command
// that [Options.Sandbox] starts can read them, unless its sandbox names the file itself or is
// "none".
func (c *Config) Private() []string {
	out := slices.Clone(c.files)
	if c.Guard != nil {
		for _, file := range []string{c.Guard.Audit.File, c.Guard.LocksFile} {
			if file != "" && file != "-" {
				out = append(out, file)
			}
		}
	}
	for _, path := range []string{
		c.Capture.File, c.Capture.Dumps, c.Tasks.Dir, c.Cluster.Dir, c.SignIn.Dir, c.TLS.Key,
	} {
		if path != "" {
			out = append(out, path)
		}
	}
	for _, u := range c.Upstreams {
		if u.TLS.Key != "" && !slices.Contains(out, u.TLS.Key) {
			out = append(out, u.TLS.Key)
		}
		if u.Auth == nil {
			continue
		}
		for _, file := range []string{u.Auth.Store, u.Auth.AssertionFile} {
			if file != "" && file != keyringStore && !slices.Contains(out, file) {
				out = append(out, file)
			}
		}
	}
	return out
}

// absolute makes paths independent of where a command runs.
func absolute(files []string) []string {
	out := make([]string, 0, len(files))
	for _, file := range files {
		if full, err := filepath.Abs(file); err == nil {
			file = full
		}
		out = append(out, file)
	}
	return out
}

// confined is the command that runs the upstream's in its sandbox, or, if it has none, without a
// way to read the gateway: see [sandbox.Rules]. The launcher hands the environment on, where
// secrets may be: none is on its command line.
func (c *Upstream) confined(launcher, private []string, never func() []string) ([]string, error) {
	switch {
	case c.Sandbox == nil &&
		(len(launcher) == 0 || runtime.GOOS != "linux" || len(private) == 0 && os.Geteuid() != 0):
		return c.Command, nil
	case c.Sandbox == nil:
		return sandbox.Command(launcher, &sandbox.Rules{Open: true, Hide: private}, c.Command), nil
	case c.Sandbox.Mode == sandboxNone:
		return c.Command, nil
	}
	if len(launcher) == 0 {
		return nil,
			fmt.Errorf(
				`gateway: upstream %s has a sandbox, and nothing to run it with: set Options.Sandbox to a `+
					`command like "farcall sandbox", or remove the sandbox`, c.Name)
	}
	r := c.Sandbox.rules(private)
	if never != nil {
		r.Never = never()
	}
	if c.Cwd != "" {
		r.Read = append([]string{"."}, r.Read...) // where the launcher is started
	}
	return sandbox.Command(launcher, r, c.Command), nil
}

// rules are those of a sandbox that is not "none".
func (s *Sandbox) rules(private []string) *sandbox.Rules {
	return &sandbox.Rules{
		BestEffort: s.Mode == "best-effort",
		Read:       s.Read, Write: s.Write, Execute: s.Execute, Network: s.Network,
		Memory: s.Memory, Processes: s.Processes, Files: s.Files, CPU: s.CPU,
		Hide: private,
	}
}

// Loose returns those of some private files that a command of the upstream reads when something
// replaces them while it runs, because they are in a directory with other files, or in its working
// directory.
func (c *Upstream) Loose(private []string) []string {
	dir := cmp.Or(c.Cwd, ".")
	switch {
	case len(c.Command) == 0 || c.Disabled:
		return nil
	case c.Sandbox == nil:
		return (&sandbox.Rules{Open: true, Hide: private}).Loose(dir)
	case c.Sandbox.Mode == sandboxNone:
		return nil
	}
	r := c.Sandbox.rules(private)
	if c.Cwd != "" {
		r.Read = append([]string{c.Cwd}, r.Read...)
	}
	return r.Loose(dir)
}
