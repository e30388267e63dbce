// Package scaffold answers one question: what is in a new project that uses farcall?
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

//go:embed all:templates
var templates embed.FS

// The kinds of project.
const (
	Server  = "server"  // an MCP server
	Client  = "client"  // an MCP client
	Service = "service" // a JSON-RPC service
	Gateway = "gateway" // the configuration of a gateway: there is no Go in it
)

// parts are the directories of templates that a kind of project is made of.
var parts = map[string][]string{
	Server:  {"go", "served", Server},
	Client:  {"go", Client},
	Service: {"go", "served", Service},
	Gateway: {Gateway},
}

// ErrNotEmpty is wrapped by the failure of Write in a directory that has
// something in it.
var ErrNotEmpty = errors.New("the directory is not empty")

// A Project is what the files of a new project are made from.
type Project struct {
	Kind    string // one of the kinds above
	Module  string // the path of its module; of a Gateway, its name
	Version string // of farcall that it requires; "": none yet
	Replace string // a local checkout of farcall to use instead; "": none

	Key, Hash string // of a Gateway: the API key of its first caller, and the hash for guard.keys
}

var modulePath = regexp.MustCompile(
	`^[A-Za-z0-9_][A-Za-z0-9._~-]*(/[A-Za-z0-9_][A-Za-z0-9._~-]*)*$`)

// standardPackages are those that a module can be mistaken for.
const standardPackages = `bufio bytes cmp context crypto embed encoding errors expvar flag fmt hash html image io iter log maps math mime
	net os path plugin reflect regexp runtime slices sort strconv strings structs sync syscall testing time unicode unique unsafe weak`

// CheckModule reports what is wrong with the path of a module.
func CheckModule(name string) error {
	switch {
	case !modulePath.MatchString(name):
		return fmt.Errorf("%q is no module path: it has letters, digits, and - _ . ~ between slashes",
			name)
	case slices.Contains([]string{"go", "std", "cmd", "main"}, name),
		slices.Contains(strings.Fields(standardPackages), name):
		return fmt.Errorf("%q is no path for a module: it means something else to Go", name)
	}
	return nil
}

// Name is what the project is called: the last element of its module's path.
func (p Project) Name() string { return path.Base(p.Module) }

// Write writes the project to a directory, which it makes unless it is there and
// empty, and returns the names of the files.
func (p Project) Write(dir string) ([]string, error) {
	if err := CheckModule(p.Module); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	switch {
	case err == nil && len(entries) > 0:
		return nil, fmt.Errorf("%s: %w", dir, ErrNotEmpty)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	files, err := p.render()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		to := filepath.Join(dir, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(to), 0o750); err != nil {
			return names, err
		}
		if err := os.WriteFile(to, f.text, 0o600); err != nil {
			return names, err
		}
		names = append(names, f.name)
	}
	return names, nil
}

type file struct {
	name string // with slashes
	text []byte
}

// render makes all files before the first one is written.
func (p Project) render() ([]file, error) {
	if parts[p.Kind] == nil {
		return nil, fmt.Errorf("there is no kind of project %q", p.Kind)
	}
	var files []file
	for _, part := range parts[p.Kind] {
		root := "templates/" + part
		err := fs.WalkDir(templates, root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			t, err := template.ParseFS(templates, name)
			if err != nil {
				return err
			}
			var b bytes.Buffer
			if err := t.Execute(&b, p); err != nil {
				return err
			}
			name = strings.TrimPrefix(strings.TrimSuffix(name, ".tmpl"), root+"/")
			files = append(files, file{name, b.Bytes()})
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return files, nil
}
