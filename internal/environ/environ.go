// Package environ answers one question: which variables of our environment may a
// child process have?
//
// An MCP server is a foreign program. It gets what programs need to run
// and to reach the network, and nothing that looks like a secret, unless its
// configuration names it.
package environ

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Child returns the environment of a child process, made of from, which is that of
// this process as os.Environ returns it: what programs need to run (HOME, PATH …), what
// they need to reach the network and their packages ("plumbing": proxies, certificates,
// registries, caches; see docs/gateway.md), what a pattern of inherit matches (* stands
// for any text), and then the variables of own in the order of their names, which replace
// those of from. Plumbing that looks like a secret is left out: see [Withheld].
func Child(from, inherit []string, own map[string]string) []string {
	var out []string
	for _, entry := range from {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		if _, given := own[name]; given {
			continue
		}
		if matchesAny(harmless(), name) || matchesAny(inherit, name) ||
			matchesAny(plumbing(), name) && !secret(name, value) {
			out = append(out, entry)
		}
	}
	names := make([]string, 0, len(own))
	for name := range own {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		out = append(out, name+"="+own[name])
	}
	return out
}

// Withheld returns the names of the plumbing that [Child] leaves out because it looks like
// a secret, sorted.
func Withheld(from, inherit []string, own map[string]string) (names []string) {
	for _, entry := range from {
		name, value, _ := strings.Cut(entry, "=")
		_, given := own[name]
		if !given && matchesAny(plumbing(), name) && secret(name, value) && !matchesAny(inherit, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// harmless are the variables that every command gets: programs need them, and
// they hold no secrets.
func harmless() []string {
	if filepath.Separator == '\\' {
		return []string{
			"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "Path",
			"PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "SystemRoot",
			"TEMP", "TMP", "USERNAME", "USERPROFILE",
		}
	}
	return []string{
		"HOME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR",
		"TZ", "USER",
	}
}

// plumbing are the variables by which programs, and npx, uvx and pipx above all,
// find proxies, certificates, registries and caches.
func plumbing() []string {
	return []string{
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy",
		"no_proxy",
		"NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY", "SSL_*", "REQUESTS_CA_BUNDLE",
		"CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
		"npm_config_*", "NPM_CONFIG_*", "UV_*", "PIP_*", "GOPROXY", "GOFLAGS", "XDG_*",
	}
}

// secret reports whether plumbing may hold a credential: by its name, or by a password in an
// address.
func secret(name, value string) bool {
	upper := strings.ToUpper(name)
	for _, word := range []string{
		"TOKEN", "PASSWORD", "PASSWD", "SECRET", "AUTH", "CREDENTIAL",
		"PRIVATE", "_KEY", "USERNAME",
	} {
		if strings.Contains(upper, word) {
			return true
		}
	}
	return slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool {
		return r == ' ' || r == ',' || r == '|'
	}), func(part string) bool {
		if !strings.Contains(part, "@") {
			return false
		}
		u, err := url.Parse(part)
		return err != nil || u.User != nil || u.Host == "" // a proxy may be written without a scheme
	})
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// matches reports whether a pattern of * matches a name.
func matches(pattern, name string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	if !strings.HasPrefix(name, first) {
		return false
	}
	name = name[len(first):]
	for i := 0; i <= len(name); i++ {
		if matches(rest, name[i:]) {
			return true
		}
	}
	return false
}
