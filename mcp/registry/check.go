package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of the schema, in characters.
const (
	maxName    = 200
	maxText    = 100 // of title and description
	maxVersion = 255
	maxIcon    = 255 // of its address
)

var (
	serverName = regexp.MustCompile(
		`^[a-zA-Z0-9][a-zA-Z0-9.-]*[a-zA-Z0-9]/[a-zA-Z0-9][a-zA-Z0-9._-]*[a-zA-Z0-9]$`)
	// versionRange is what the registry takes for a range of versions.
	versionRange = regexp.MustCompile(
		`^\s*(\^|~|>=|<=|>|<|=)|\s-\s|\|\||^\s*(v?\d+|[xX*])(\.(\d+|[xX*]))*\.[xX*](\.|-|\s*$)|` +
			`^\s*[xX*]\s*$`)
	repository = regexp.MustCompile(
		`^https://(github\.com/[\w.-]+/[\w.-]+|gitlab\.com/[\w.-]+(/[\w.-]+)+)/?$`)
	subfolder = regexp.MustCompile(`^[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*$`)
	sha256Hex = regexp.MustCompile(`^[a-f0-9]{64}$`)
	iconSize  = regexp.MustCompile(`^(\d+x\d+|any)$`)
	variable  = regexp.MustCompile(`\{([^{}]+)\}`)
)

// packageTypes are those that the registry knows, and whether they must have a version.
var packageTypes = map[string]bool{
	"npm": true, "pypi": true, "nuget": true, "cargo": true,
	"oci": false, "mcpb": false,
}

// problems are what is not valid, by the member of the document.
type problems struct{ all []error }

func (p *problems) add(wrong bool, at, format string, args ...any) {
	if wrong {
		p.all = append(p.all, fmt.Errorf("server.json: %s: "+format, append([]any{at}, args...)...))
	}
}

func (p *problems) err() error {
	if len(p.all) == 0 {
		return nil
	}
	return fmt.Errorf("registry: %w", errors.Join(p.all...))
}

// plain reports whether a text is UTF-8 without control characters.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

func length(s string) int { return utf8.RuneCountInString(s) }

func (f *File) check(p *problems) {
	p.add(length(f.Name) > maxName || !serverName.MatchString(f.Name), "name",
		"must be NAMESPACE/NAME of at most %d characters, such as io.github.user/weather, of letters, "+
			"digits, dots and hyphens, and underscores in NAME (got %.210q)", maxName, f.Name)
	for _, text := range []struct {
		at, value string
	}{{"title", f.Title}, {"description", f.Description}} {
		p.add(!plain(text.value), text.at, "must be UTF-8 without control characters (got %.80q)",
			text.value)
	}
	p.add(f.Title != "" && strings.TrimSpace(f.Title) == "" || length(f.Title) > maxText, "title",
		"must have at most %d characters, and not only white space (got %d)", maxText, length(f.Title))
	p.add(f.Description == "" || length(f.Description) > maxText, "description",
		"must have 1 to %d characters (got %d); set ServerOptions.Description or File.Description",
		maxText, length(f.Description))
	p.add(f.Version == "", "version", "is missing")
	p.version("version", f.Version)
	if f.WebsiteURL != "" {
		p.https("websiteUrl", f.WebsiteURL)
	}
	for i, icon := range f.Icons {
		at := fmt.Sprintf("icons[%d]", i)
		p.https(at+".src", icon.Src)
		p.add(length(icon.Src) > maxIcon, at+".src", "must have at most %d characters (got %d)", maxIcon,
			length(icon.Src))
		p.oneOf(at+".mimeType", icon.MIMEType, "", "image/png", "image/jpeg", "image/jpg",
			"image/svg+xml", "image/webp")
		p.oneOf(at+".theme", icon.Theme, "", "light", "dark")
		for _, size := range icon.Sizes {
			p.add(!iconSize.MatchString(size), at+".sizes", `must be such as "48x48", or "any" (got %.40q)`,
				size)
		}
	}
	p.add(f.Repository != "" &&
		(!repository.MatchString(f.Repository) || strings.Contains(f.Repository+"/", "/-/")),
		"repository.url",
		"must be that of a repository, https://github.com/OWNER/NAME or https://gitlab.com/GROUP/NAME "+
			"(got %.200q)", f.Repository)
	p.add(f.Repository == "" && f.RepositoryID+f.Subfolder != "", "repository",
		"has an id or a subfolder, and no address")
	p.add(f.Subfolder != "" &&
		(!subfolder.MatchString(f.Subfolder) ||
			slices.ContainsFunc(strings.Split(f.Subfolder, "/"), func(s string) bool {
				return s == "." || s == ".."
			})),
		"repository.subfolder",
		"must be a path below the repository, of letters, digits and . _ - / (got %.200q)", f.Subfolder)
	p.add(len(f.Packages)+len(f.Remotes) == 0, "packages",
		"there is neither a package nor a remote: clients could not use the server")
	for i := range f.Packages {
		f.Packages[i].check(p, fmt.Sprintf("packages[%d]", i))
	}
	for i := range f.Remotes {
		f.Remotes[i].checkRemote(p, fmt.Sprintf("remotes[%d]", i))
	}
}

// version checks a version against the rules that server and packages share.
func (p *problems) version(at, v string) {
	p.add(!plain(v) || strings.TrimSpace(v) != v || v == "latest" || versionRange.MatchString(v), at,
		"must be a single version, such as 1.0.2 (got %.80q)", v)
	p.add(length(v) > maxVersion, at, "must have at most %d characters (got %d)", maxVersion,
		length(v))
}

func (p *problems) https(at, address string) {
	u, err := url.Parse(address)
	p.add(err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil ||
		strings.ContainsAny(address, "\"'<> \t\r\n"), at,
		"must be an https address without a user (got %.200q)", address)
}

func (p *problems) oneOf(at, got string, all ...string) {
	p.add(!slices.Contains(all, got), at, "must be one of %s (got %.80q)",
		strings.Trim(fmt.Sprintf("%q", all), "[]"), got)
}

func (k *Package) check(p *problems, at string) {
	versioned, known := packageTypes[k.Type]
	p.add(!known, at+".registryType", "must be npm, pypi, nuget, cargo, oci or mcpb (got %.80q)",
		k.Type)
	p.add(k.Identifier == "" || strings.ContainsAny(k.Identifier, " \t\r\n"), at+".identifier",
		"must be a name without white space (got %.200q)", k.Identifier)
	p.add(versioned && k.Version == "", at+".version",
		"is missing: a package of the type %s needs one", k.Type)
	p.version(at+".version", k.Version)
	switch k.Type {
	case "oci":
		p.add(k.Version != "", at+".version", "must be left out: it is the tag of the image, %s:%s",
			k.Identifier, k.Version)
		name := k.Identifier[strings.LastIndex(k.Identifier, "/")+1:]
		p.add(!strings.Contains(name, ":"), at+".identifier",
			"must have a tag or a digest, such as ghcr.io/user/weather:1.0.0 (got %.200q)", k.Identifier)
	case "mcpb":
		p.add(k.SHA256 == "", at+".fileSha256", "is missing: a package of the type mcpb needs it")
		p.https(at+".identifier", k.Identifier)
	}
	p.add(k.SHA256 != "" && !sha256Hex.MatchString(k.SHA256), at+".fileSha256",
		"must be 64 digits of lower-case hexadecimal (got %.80q)", k.SHA256)
	p.add(len(k.RuntimeArguments) > 0 && k.RuntimeHint == "", at+".runtimeHint",
		"is missing: there are arguments for it")
	names := map[string]bool{}
	p.arguments(at+".runtimeArguments", k.RuntimeArguments, names)
	p.arguments(at+".packageArguments", k.Arguments, names)
	p.named(at+".environmentVariables", k.Env)
	for _, e := range k.Env {
		names[e.Name] = true
	}
	t := k.Transport
	if t.Type == "" || t.Type == "stdio" {
		p.add(t.URL != "" || len(t.Headers)+len(t.Variables) > 0, at+".transport",
			"stdio has no address, headers and variables")
		return
	}
	p.add(len(t.Variables) > 0, at+".transport.variables",
		"must be left out: those of a package are its arguments and environment variables")
	t.check(p, at+".transport", names)
}

func (t *Transport) checkRemote(p *problems, at string) {
	known := map[string]bool{}
	p.named(at+".variables", t.Variables)
	for _, v := range t.Variables {
		known[v.Name] = true
	}
	if t.check(p, at, known); !strings.HasPrefix(t.URL, "https://") {
		p.add(true, at+".url", "must be an https address (got %.200q)", t.URL)
	}
	if u, err := url.Parse(variable.ReplaceAllString(t.URL, "1")); err == nil {
		name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
		host, _ := netip.ParseAddr(name)
		p.add(name == "localhost" || strings.HasSuffix(name, ".localhost") || host.IsLoopback() ||
			host.IsUnspecified(), at+".url", "must be reachable from elsewhere (got %.200q)", t.URL)
	}
}

// check holds a transport over HTTP against the rules.
func (t *Transport) check(p *problems, at string, known map[string]bool) {
	p.oneOf(at+".type", t.Type, "", "streamable-http", "sse")
	u, err := url.Parse(variable.ReplaceAllString(t.URL, "1"))
	p.add(err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil ||
		strings.ContainsAny(t.URL, " \t\r\n"), at+".url",
		"must be an http or https address without a user (got %.200q)", t.URL)
	for _, v := range variable.FindAllStringSubmatch(t.URL, -1) {
		p.add(!known[v[1]], at+".url", "there is no variable %.80q", v[1])
	}
	p.named(at+".headers", t.Headers)
}

// arguments adds what URLs can refer to them by.
func (p *problems) arguments(at string, all []Input, names map[string]bool) {
	for i := range all {
		a, at := &all[i], fmt.Sprintf("%s[%d]", at, i)
		p.add(a.Name == "" && a.Hint == "" && a.Value == "", at,
			"a positional argument needs a hint or a value")
		p.add(strings.ContainsAny(a.Name, " \t\r\n<>="), at+".name",
			"must be the flag alone, such as --port (got %.80q)", a.Name)
		p.input(at, a)
		names[a.Name], names[a.Hint] = true, true
	}
}

func (p *problems) named(at string, all []Input) {
	seen := map[string]bool{}
	for i := range all {
		name := all[i].Name
		p.add(name == "" || !plain(name) || strings.ContainsAny(name, "= {}:"),
			fmt.Sprintf("%s[%d].name", at, i),
			"must be a name, without white space, control characters and =:{} (got %.80q)", name)
		p.add(seen[name], fmt.Sprintf("%s[%d].name", at, i), "%.80q is there twice", name)
		seen[name] = true
		p.input(fmt.Sprintf("%s[%d]", at, i), &all[i])
	}
}

func (p *problems) input(at string, i *Input) {
	for _, text := range append([]string{i.Value, i.Default, i.Placeholder}, i.Choices...) {
		p.add(!plain(text), at, "a value must be UTF-8 without control characters (got %.80q)", text)
	}
	p.add(i.Secret && i.Value != "" && !variable.MatchString(i.Value), at+".value",
		"must be left out, or have a {variable}: it is secret, and the document is public")
	p.oneOf(at+".format", i.Format, "", "string", "number", "boolean", "filepath")
	p.add(len(i.Choices) > 0 && i.Default != "" && !slices.Contains(i.Choices, i.Default),
		at+".default", "must be one of the choices (got %.80q)", i.Default)
}
