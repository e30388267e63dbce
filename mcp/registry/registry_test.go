package registry

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

// published returns what says whether a document fits the published schema.
func published(t *testing.T) func(text []byte) error {
	t.Helper()
	raw, err := os.ReadFile("testdata/server.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(schema, doc); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(schema)
	if err != nil {
		t.Fatal(err)
	}
	return func(text []byte) error {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return err
		}
		return compiled.Validate(value)
	}
}

// full has every member that there is.
func full() *File {
	input := Input{
		Name: "KEY", Description: "a key", Default: "a", Placeholder: "abc", Choices: []string{"a", "b"},
		Format: "string", Required: true, Secret: true,
	}
	return &File{
		Name: "io.github.user/weather", Title: "Weather", Description: strings.Repeat("é", 100),
		Version: "1.0.0-rc.1", WebsiteURL: "https://example.com/weather",
		Icons: []spec.Icon{{
			Src: "https://example.com/a.png", MIMEType: "image/png",
			Sizes: []string{"48x48", "any"}, Theme: "dark",
		}},
		Repository: "https://gitlab.com/group/sub/weather", RepositoryID: "7",
		Subfolder: "servers/weather",
		Packages: []Package{
			{
				Type: "npm", Identifier: "@user/weather", Version: "1.0.0", RuntimeHint: "npx",
				RuntimeArguments: []Input{{Name: "-y"}}, Env: []Input{input},
			},
			{
				Type: "oci", Identifier: "ghcr.io/user/weather:1.0.0",
				Arguments: []Input{
					{Name: "--port", Hint: "port", Default: "8080", Format: "number"},
					{Value: "serve"},
					{Hint: "dir", Format: "filepath", Repeated: true},
				},
				Transport: Transport{
					Type: "streamable-http", URL: "http://localhost:{port}/mcp",
					Headers: []Input{{Name: "X-Key", Secret: true}},
				},
			},
			{
				Type: "mcpb", Identifier: "https://github.com/user/weather/releases/download/v1/weather.mcpb",
				SHA256: strings.Repeat("0a", 32),
			},
		},
		Remotes: []Transport{
			{
				URL: "https://{tenant}.example.com/mcp", Variables: []Input{{Name: "tenant", Required: true}},
				Headers: []Input{{Name: "Authorization", Value: "Bearer {token}", Secret: true}},
			},
			{Type: "sse", URL: "https://example.com/sse"},
		},
	}
}

func TestValid(t *testing.T) {
	valid := published(t)
	for name, change := range map[string]func(f *File){
		"full": func(*File) {},
		"remotes alone": func(f *File) {
			f.Packages, f.Icons, f.Repository, f.RepositoryID, f.Subfolder = nil, nil, "", "", ""
		},
		"packages alone": func(f *File) { f.Remotes, f.Title, f.WebsiteURL = nil, "", "" },
		"no semver":      func(f *File) { f.Version = "2026.11" },
		"a build":        func(f *File) { f.Version = "v1.0.0+build.5" },
		"a digest": func(f *File) {
			f.Packages[1].Identifier = "ghcr.io/user/weather@sha256:" + strings.Repeat("0a", 32)
		},
		"github": func(f *File) { f.Repository = "https://github.com/user/weather.go" },
	} {
		f := full()
		change(f)
		text, err := f.JSON()
		if err == nil {
			err = valid(text)
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
}

// TestInvalid: each mistake is an error that names the member. Whatever the published schema
// refuses is among them.
func TestInvalid(t *testing.T) {
	valid := published(t)
	for _, test := range []struct {
		change func(f *File)
		want   string
		schema bool // the schema refuses it, too
	}{
		{func(f *File) { f.Name = "weather" }, "server.json: name: must be NAMESPACE/NAME", true},
		{func(f *File) { f.Name = "io.github.user/a/b" }, "name: must be", true},
		{func(f *File) { f.Name = "io.github.user/wéather" }, "name: must be", true},
		{func(f *File) { f.Name = "io.github_user/weather" }, "name: must be", true},
		{func(f *File) { f.Name = "-io.github/weather" }, "name: must be", false},
		{func(f *File) { f.Name = "io.github.user/" + strings.Repeat("a", 186) }, "at most 200", true},
		{func(f *File) {
			f.Title = strings.Repeat("a", 101)
		}, "title: must have at most 100 characters, and not only white space (got 101)", true},
		{func(f *File) { f.Title = " " }, "title:", false},
		{func(f *File) {
			f.Description = ""
		}, "description: must have 1 to 100 characters (got 0)", true},
		{func(f *File) { f.Description += "é" }, "(got 101)", true},
		{func(f *File) { f.Version = "" }, "version: is missing", false},
		{func(f *File) { f.Version = "latest" }, "version: must be a single version", false},
		{func(f *File) { f.Version = "^1.2.3" }, "version: must be a single version", false},
		{func(f *File) { f.Version = ">= 1" }, "version: must be a single version", false},
		{func(f *File) { f.Version = "1.x" }, "version: must be a single version", false},
		{func(f *File) { f.Version = "1.2.*" }, "version: must be a single version", false},
		{func(f *File) { f.Version = "1.0.0 - 2.0.0" }, "version: must be a single version", false},
		{func(f *File) { f.Version = "1 || 2" }, "version: must be a single version", false},
		{func(f *File) { f.Version = strings.Repeat("1", 256) }, "at most 255", true},
		{func(f *File) { f.WebsiteURL = "example.com" }, "websiteUrl: must be an https address", true},
		{
			func(f *File) { f.WebsiteURL = "http://example.com" }, "websiteUrl: must be an https address",
			false,
		},
		{
			func(f *File) { f.WebsiteURL = "https://example.com/<a>" },
			"websiteUrl: must be an https address", false,
		},
		{func(f *File) {
			f.Icons[0].Src = "data:image/png;base64,AA=="
		}, "icons[0].src: must be an https address", false},
		{
			func(f *File) { f.Icons[0].Src = "https://example.com/" + strings.Repeat("a", 250) },
			"icons[0].src: must have at most 255", true,
		},
		{func(f *File) { f.Icons[0].MIMEType = "image/gif" }, "icons[0].mimeType: must be one of", true},
		{func(f *File) { f.Icons[0].Theme = "blue" }, "icons[0].theme: must be one of", true},
		{func(f *File) { f.Icons[0].Sizes[0] = "48" }, "icons[0].sizes", true},
		{func(f *File) { f.Repository = "git@github.com:user/weather" }, "repository.url", true},
		{func(f *File) { f.Repository = "https://github.com/user" }, "repository.url", false},
		{func(f *File) { f.Repository = "https://gitlab.com/group/-/issues" }, "repository.url", false},
		{func(f *File) { f.Repository = "" }, "repository: has an id or a subfolder", false},
		{func(f *File) { f.Subfolder = "../weather" }, "repository.subfolder", false},
		{func(f *File) { f.Subfolder = "/weather" }, "repository.subfolder", false},
		{func(f *File) { f.Packages, f.Remotes = nil, nil }, "neither a package nor a remote", false},
		{func(f *File) { f.Packages[0].Type = "gem" }, "packages[0].registryType", false},
		{func(f *File) { f.Packages[0].Identifier = "a b" }, "packages[0].identifier", false},
		{func(f *File) { f.Packages[0].Version = "" }, "packages[0].version: is missing", false},
		{func(f *File) {
			f.Packages[0].Version = "latest"
		}, "packages[0].version: must be a single version", true},
		{func(f *File) { f.Packages[0].RuntimeHint = "" }, "packages[0].runtimeHint", false},
		{func(f *File) {
			f.Packages[0].Env[0].Name = ""
		}, "packages[0].environmentVariables[0].name", true},
		{func(f *File) {
			f.Packages[0].Env[0].Name = "A=B"
		}, "packages[0].environmentVariables[0].name", false},
		{func(f *File) {
			f.Packages[0].Env[0].Format = "text"
		}, "packages[0].environmentVariables[0].format", true},
		{func(f *File) {
			f.Packages[0].Env[0].Default = "z"
		}, "default: must be one of the choices", false},
		{
			func(f *File) { f.Packages[0].Transport.URL = "http://localhost" },
			"packages[0].transport: stdio has no address", false,
		},
		{func(f *File) {
			f.Packages[1].Version = "1.0.0"
		}, "packages[1].version: must be left out", false},
		{func(f *File) {
			f.Packages[1].Identifier = "ghcr.io:443/user/weather"
		}, "packages[1].identifier: must have a tag", false},
		{func(f *File) {
			f.Packages[1].Arguments[2].Hint = ""
		}, "packages[1].packageArguments[2]: a positional argument", true},
		{func(f *File) {
			f.Packages[1].Arguments[0].Name = "--port <n>"
		}, "packages[1].packageArguments[0].name", false},
		{
			func(f *File) { f.Packages[1].Transport.URL = "http://localhost:{other}/mcp" },
			`packages[1].transport.url: there is no variable "other"`, false,
		},
		{func(f *File) {
			f.Packages[1].Transport.URL = ""
		}, "packages[1].transport.url: must be an http", true},
		{func(f *File) {
			f.Packages[1].Transport.Type = "websocket"
		}, "packages[1].transport.type: must be one of", true},
		{func(f *File) { f.Packages[2].SHA256 = "" }, "packages[2].fileSha256: is missing", false},
		{func(f *File) {
			f.Packages[2].SHA256 = "ABC"
		}, "packages[2].fileSha256: must be 64 digits", true},
		{func(f *File) {
			f.Packages[2].Identifier = "weather.mcpb"
		}, "packages[2].identifier: must be an https address", false},
		{func(f *File) {
			f.Remotes[0].Variables = nil
		}, `remotes[0].url: there is no variable "tenant"`, false},
		{func(f *File) { f.Remotes[0].Type = "stdio" }, "remotes[0].type: must be one of", true},
		{func(f *File) { f.Remotes[0].Headers[0].Name = "A: B" }, "remotes[0].headers[0].name", false},
		{
			func(f *File) { f.Remotes[1].URL = "http://example.com/sse" },
			"remotes[1].url: must be an https address", false,
		},
		{
			func(f *File) { f.Remotes[1].URL = "https://127.0.0.1/sse" },
			"remotes[1].url: must be reachable", false,
		},
		{
			func(f *File) { f.Remotes[1].URL = "https://[::1]/sse" }, "remotes[1].url: must be reachable",
			false,
		},
		{
			func(f *File) { f.Remotes[1].URL = "https://LOCALHOST/sse" },
			"remotes[1].url: must be reachable", false,
		},
		{
			func(f *File) { f.Remotes[1].URL = "https://localhost./sse" },
			"remotes[1].url: must be reachable", false,
		},
		{
			func(f *File) { f.Remotes[1].URL = "https://0.0.0.0/sse" }, "remotes[1].url: must be reachable",
			false,
		},
		{
			func(f *File) { f.Remotes[1].URL = "https://user:password@example.com/sse" },
			"remotes[1].url: must be an http or https address without a user", false,
		},
		{
			func(f *File) { f.WebsiteURL = "https://user@example.com" },
			"websiteUrl: must be an https address without a user", false,
		},
		{func(f *File) { f.Title = "a\nb" }, "title: must be UTF-8 without control characters", false},
		{func(f *File) { f.Version = "1.0.0\n" }, "version: must be a single version", false},
		{func(f *File) { f.Version = " " }, "version: must be a single version", false},
		{func(f *File) {
			f.Packages[0].Env[0].Name = "A\x00"
		}, "packages[0].environmentVariables[0].name", false},
		{func(f *File) {
			f.Remotes[0].Headers[0].Value = "{token}\r\nX: y"
		}, "remotes[0].headers[0]: a value must be UTF-8 without control", false},
		{func(f *File) {
			f.Remotes[0].Headers[0].Value = "Bearer s3cret"
		}, "remotes[0].headers[0].value: must be left out, or have a {variable}", false},
	} {
		f := full()
		test.change(f)
		if text, err := f.JSON(); err == nil || !strings.Contains(err.Error(), test.want) ||
			len(err.Error()) > 1000 {
			t.Errorf("%v; want %q\n%s", err, test.want, text)
		}
		raw, err := f.raw()
		if err != nil {
			t.Fatal(err)
		}
		if err := valid(raw); (err != nil) != test.schema {
			t.Errorf("%s: the published schema says %v", test.want, err)
		}
	}
	f := full()
	f.Name, f.Version, f.Remotes[1].URL = "", "", ""
	if _, err := f.JSON(); err == nil || strings.Count(err.Error(), "server.json: ") < 3 {
		t.Errorf("not all is reported: %v", err)
	}
}

// New takes what the server says of itself, in whatever revisions it speaks.
func TestNew(t *testing.T) {
	o := mcp.ServerOptions{
		Title: "Weather", Description: "Says what the weather is", WebsiteURL: "https://example.com",
		Icons: []spec.Icon{{Src: "data:image/png;base64,AA=="}, {Src: "https://example.com/a.png"}},
	}
	for era, want := range map[string]string{
		"auto": o.Description, "modern": o.Description,
		"legacy": "",
	} {
		o := o
		o.Eras = era
		f, err := New(t.Context(), mcp.NewServer("weather", "1.2.3", &o), "io.github.user/weather")
		if err != nil || f.Title != "Weather" || f.Version != "1.2.3" || f.Description != want {
			t.Errorf("%s: %+v, %v", era, f, err)
		}
		if want != "" && (f.WebsiteURL != o.WebsiteURL || len(f.Icons) != 1 ||
			f.Icons[0].Src != "https://example.com/a.png") {
			t.Errorf("%s: %+v", era, f)
		}
	}
}
