package registry

import (
	"bytes"
	"encoding/json" //nolint:depguard // for json.Indent alone, which keeps the bytes of values
	"strings"

	"github.com/farcall-dev/farcall/mcp/spec"
)

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
		Schema: schema, Name: f.Name, Title: f.Title, Description: f.Description, Version: f.Version, WebsiteURL: f.WebsiteURL, Icons: f.Icons,
	}
	if f.Repository != "" {
		w.Repository = &wireSource{f.Repository, forge(f.Repository), f.RepositoryID, f.Subfolder}
	}
	for _, p := range f.Packages {
		w.Packages = append(w.Packages, wirePackage{
			Type: p.Type, Identifier: p.Identifier, Version: p.Version, SHA256: p.SHA256, RuntimeHint: p.RuntimeHint,
			RuntimeArguments: arguments(p.RuntimeArguments), Arguments: arguments(p.Arguments), Env: inputs(p.Env),
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
		Name: i.Name, Hint: i.Hint, Description: i.Description, Value: i.Value, Default: i.Default, Placeholder: i.Placeholder,
		Choices: i.Choices, Format: i.Format, Required: i.Required, Secret: i.Secret, Repeated: i.Repeated,
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

// forge returns what the registry calls the host of a repository.
func forge(repository string) string {
	if strings.HasPrefix(repository, "https://gitlab.com/") {
		return "gitlab"
	}
	return "github"
}

func indent(raw []byte) ([]byte, error) {
	var out bytes.Buffer
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
