// Package registry answers one question: what does the MCP registry want to know of a server?
//
// It is a file, server.json: what the server is called, which packages run it, and where it can be
// reached. New takes from a server what that says of itself, and [File.JSON] returns the document
// once it is valid: by the JSON Schema of version 2025-12-11
// (static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json), which was the current one
// on 2026-11-23, and by the rules that registry.modelcontextprotocol.io adds when a server is
// published (modelcontextprotocol/registry v1.8.8,
// docs/reference/server-json/official-registry-requirements.md). That a publisher owns the
// namespace and the packages is for the registry to find out.
//
//	f, err := registry.New(ctx, s, "io.github.user/weather")
//	f.Packages = []registry.Package{{Type: "oci", Identifier: "ghcr.io/user/weather:1.0.0"}}
//	text, err := f.JSON()
package registry

import (
	"bytes"
	"context"
	"encoding/json" //nolint:depguard // for json.Indent alone, which keeps the bytes of values
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const schema = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"

// A File is what server.json says. Empty fields are left out.
type File struct {
	// Name is NAMESPACE/NAME, with a namespace that the publisher owns: io.github.USER, or a domain
	// the other way round. It is not the name that the server has on the wire.
	Name string
	// Title and Description are for people, of at most 100 characters each; the Description is
	// required.
	Title, Description string
	// Version is that of the server, not a range.
	Version string
	// WebsiteURL is an https address.
	WebsiteURL string
	// Icons have https addresses.
	Icons []spec.Icon
	// Repository is the https address of the source code, on github.com or gitlab.com. RepositoryID is
	// the id that the host has given it, and Subfolder where in it the server is.
	Repository, RepositoryID, Subfolder string
	// Packages are what runs the server at its user's, and Remotes where it runs already.
	Packages []Package
	Remotes  []Transport
}

// A Package is what a client installs and runs.
type Package struct {
	// Type is "npm", "pypi", "nuget", "cargo", "oci" or "mcpb".
	Type string
	// Identifier is the name of the package; of oci the image with its tag or digest, of mcpb the
	// https address of the file.
	Identifier string
	// Version is a single one. An oci package has none: it is in the Identifier. Optional for mcpb.
	Version string
	// SHA256 is the digest of the file, in lower-case hexadecimal. Required for mcpb.
	SHA256 string
	// RuntimeHint is what runs the package, such as "npx"; RuntimeArguments are for that, and
	// Arguments for the server.
	RuntimeHint                 string
	RuntimeArguments, Arguments []Input
	// Env are the environment variables that the server reads.
	Env []Input
	// Transport is how the server speaks then. Default: {Type: "stdio"}.
	Transport Transport
}

// A Transport is how a server is reached.
type Transport struct {
	// Type is "stdio" (of packages only), "streamable-http" or "sse". Default: stdio of a package,
	// else streamable-http.
	Type string
	// URL is the address, which may have {VARIABLES}: those of a package are its arguments and
	// environment variables, those of a remote server are in Variables.
	URL string
	// Headers are sent with each request.
	Headers   []Input
	Variables []Input
}

// An Input is a value that a user gives, or that is given: an environment variable, a header, an
// argument, a variable.
type Input struct {
	// Name is that of the variable or header, or the argument's with its dashes. A positional argument
	// has none: its Hint names it, unless it has a Value.
	Name, Hint string
	// Description says what it is for.
	Description string
	// Value is fixed; Default may be changed; Placeholder is an example; Choices are all that there
	// are.
	Value, Default, Placeholder string
	Choices                     []string
	// Format is "string", "number", "boolean" or "filepath". Default string.
	Format string
	// Required, Secret and Repeated (of arguments) say how it is to be asked for, and kept.
	Required, Secret, Repeated bool
}

// New returns a File with that name and what the server says of itself: title, description,
// version, website, icons with https addresses. It asks the server over a connection in memory. The
// file is not valid yet when the server has no description, or there is nothing to run or reach:
// see [File.JSON].
func New(ctx context.Context, s *mcp.Server, name string) (*File, error) {
	ctx, cancel := context.WithCancel(ctx)
	mine, theirs := farcall.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx, theirs) // what it fails with, the client does
	}()
	defer func() { cancel(); <-done }()
	c, err := mcp.Connect(ctx, mine, nil)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	defer c.Close() //nolint:errcheck // it has answered
	f := &File{Name: name, Title: c.Server().Title, Version: c.Server().Version}
	var r struct {
		Meta map[string]spec.Implementation `json:"_meta"`
	}
	if c.Request(ctx, spec.MethodServerDiscover, nil, &r) != nil {
		return f, nil // a server of legacy revisions only has said all
	}
	info := r.Meta[spec.MetaServerInfo]
	f.Description, f.WebsiteURL = info.Description, info.WebsiteURL
	for _, icon := range info.Icons {
		if strings.HasPrefix(icon.Src, "https://") {
			f.Icons = append(f.Icons, icon)
		}
	}
	return f, nil
}

// JSON returns server.json, indented. The error says all that is not valid, by the names of the
// document's members: a server needs a name, a description, a version, and a package or a remote
// transport.
func (f *File) JSON() ([]byte, error) {
	var p problems
	f.check(&p)
	if err := p.err(); err != nil {
		return nil, err
	}
	raw, err := f.raw()
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	return indent(raw)
}

// raw returns the document, valid or not.
func (f *File) raw() ([]byte, error) { return jsonv2.Append(nil, f.wire()) }

// The document, as the schema has it.
type (
	wireFile struct {
		Schema      string         `json:"$schema"`
		Name        string         `json:"name"`
		Title       string         `json:"title,omitempty"`
		Description string         `json:"description"`
		Version     string         `json:"version"`
		WebsiteURL  string         `json:"websiteUrl,omitempty"`
		Icons       []spec.Icon    `json:"icons,omitempty"`
		Repository  *wireSource    `json:"repository,omitempty"`
		Packages    []wirePackage  `json:"packages,omitempty"`
		Remotes     []wireEndpoint `json:"remotes,omitempty"`
	}
	wireSource struct {
		URL       string `json:"url"`
		Source    string `json:"source"`
		ID        string `json:"id,omitempty"`
		Subfolder string `json:"subfolder,omitempty"`
	}
	wirePackage struct {
		Type             string       `json:"registryType"`
		Identifier       string       `json:"identifier"`
		Version          string       `json:"version,omitempty"`
		SHA256           string       `json:"fileSha256,omitempty"`
		RuntimeHint      string       `json:"runtimeHint,omitempty"`
		RuntimeArguments []wireInput  `json:"runtimeArguments,omitempty"`
		Arguments        []wireInput  `json:"packageArguments,omitempty"`
		Env              []wireInput  `json:"environmentVariables,omitempty"`
		Transport        wireEndpoint `json:"transport"`
	}
	wireEndpoint struct {
		Type      string               `json:"type"`
		URL       string               `json:"url,omitempty"`
		Headers   []wireInput          `json:"headers,omitempty"`
		Variables map[string]wireInput `json:"variables,omitempty"`
	}
	wireInput struct {
		Type        string   `json:"type,omitempty"` // of arguments
		Name        string   `json:"name,omitempty"`
		Hint        string   `json:"valueHint,omitempty"`
		Description string   `json:"description,omitempty"`
		Value       string   `json:"value,omitempty"`
		Default     string   `json:"default,omitempty"`
		Placeholder string   `json:"placeholder,omitempty"`
		Choices     []string `json:"choices,omitempty"`
		Format      string   `json:"format,omitempty"`
		Required    bool     `json:"isRequired,omitzero"`
		Secret      bool     `json:"isSecret,omitzero"`
		Repeated    bool     `json:"isRepeated,omitzero"`
	}
)

func (f *File) wire() wireFile {
	w := wireFile{
		Schema: schema, Name: f.Name, Title: f.Title, Description: f.Description, Version: f.Version,
		WebsiteURL: f.WebsiteURL, Icons: f.Icons,
	}
	if f.Repository != "" {
		forge := "github" // what the registry calls the host
		if strings.HasPrefix(f.Repository, "https://gitlab.com/") {
			forge = "gitlab"
		}
		w.Repository = &wireSource{f.Repository, forge, f.RepositoryID, f.Subfolder}
	}
	for _, p := range f.Packages {
		w.Packages = append(w.Packages, wirePackage{
			Type: p.Type, Identifier: p.Identifier, Version: p.Version, SHA256: p.SHA256,
			RuntimeHint:      p.RuntimeHint,
			RuntimeArguments: arguments(p.RuntimeArguments), Arguments: arguments(p.Arguments),
			Env:       inputs(p.Env),
			Transport: p.Transport.wire("stdio"),
		})
	}
	for _, t := range f.Remotes {
		w.Remotes = append(w.Remotes, t.wire("streamable-http"))
	}
	return w
}

func (t *Transport) wire(kind string) wireEndpoint {
	if t.Type != "" {
		kind = t.Type
	}
	w := wireEndpoint{Type: kind, URL: t.URL, Headers: inputs(t.Headers)}
	for _, v := range t.Variables {
		if w.Variables == nil {
			w.Variables = map[string]wireInput{}
		}
		one := v.wire()
		one.Name = "" // it is the key
		w.Variables[v.Name] = one
	}
	return w
}

func (i *Input) wire() wireInput {
	return wireInput{
		Name: i.Name, Hint: i.Hint, Description: i.Description, Value: i.Value, Default: i.Default,
		Placeholder: i.Placeholder,
		Choices:     i.Choices, Format: i.Format, Required: i.Required, Secret: i.Secret,
		Repeated: i.Repeated,
	}
}

func inputs(all []Input) (w []wireInput) {
	for i := range all {
		w = append(w, all[i].wire())
	}
	return w
}

func arguments(all []Input) []wireInput {
	w := inputs(all)
	for i := range w {
		w[i].Type = "positional"
		if w[i].Name != "" {
			w[i].Type = "named"
		}
	}
	return w
}

func indent(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
