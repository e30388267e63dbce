package gateway

import (
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Environ returns the environment of an upstream's command, of what the
// gateway's own is: what programs need to run (HOME, PATH …), what they need to
// reach the network and their packages ("plumbing": proxies, certificates,
// registries, caches; see docs/gateway.md), what InheritEnv names, and Env. Of
// plumbing, what looks like a secret is left out.
func (u *Upstream) Environ(from []string) []string {
	var out []string
	for _, entry := range from {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" {
			continue
		}
		if _, given := u.Env[name]; given {
			continue
		}
		if matchesAny(harmless(), name) || matchesAny(u.InheritEnv, name) || matchesAny(plumbing(), name) && !secret(name, value) {
			out = append(out, entry)
		}
	}
	for _, name := range sortedKeys(u.Env) {
		out = append(out, name+"="+u.Env[name])
	}
	return out
}

// withheld returns the names of plumbing that the command is not given, because it looks like a secret.
func (u *Upstream) withheld(from []string) (names []string) {
	for _, entry := range from {
		name, value, _ := strings.Cut(entry, "=")
		_, given := u.Env[name]
		if !given && matchesAny(plumbing(), name) && secret(name, value) && !matchesAny(u.InheritEnv, name) {
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
		return []string{"APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "Path", "PATHEXT", "PROCESSOR_ARCHITECTURE", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "SystemRoot", "TEMP", "TMP", "USERNAME", "USERPROFILE"}
	}
	return []string{"HOME", "LANG", "LANGUAGE", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"}
}

// plumbing are the variables by which programs, and npx, uvx and pipx above all,
// find proxies, certificates, registries and caches.
func plumbing() []string {
	return []string{
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
		"NODE_EXTRA_CA_CERTS", "NODE_USE_SYSTEM_CA", "NODE_USE_ENV_PROXY", "SSL_*", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO",
		"npm_config_*", "NPM_CONFIG_*", "UV_*", "PIP_*", "GOPROXY", "GOFLAGS", "XDG_*",
	}
}

// secret reports whether plumbing may hold a credential: by its name, or by a password in an address.
func secret(name, value string) bool {
	upper := strings.ToUpper(name)
	for _, word := range []string{"TOKEN", "PASSWORD", "PASSWD", "SECRET", "AUTH", "CREDENTIAL", "PRIVATE", "_KEY", "USERNAME"} {
		if strings.Contains(upper, word) {
			return true
		}
	}
	return slices.ContainsFunc(strings.FieldsFunc(value, func(r rune) bool { return r == ' ' || r == ',' || r == '|' }), func(part string) bool {
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
