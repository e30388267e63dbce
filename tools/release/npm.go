package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// npm's names of our systems and architectures (process.platform and process.arch of Node.js).
var npmNames = map[string]string{"windows": "win32", "amd64": "x64"}

func npmName(name string) string {
	if other, ok := npmNames[name]; ok {
		return other
	}
	return name
}

// A manifest is the package.json of one of our packages.
type manifest struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	Homepage    string            `json:"homepage"`
	Repository  string            `json:"repository"`
	License     string            `json:"license"`
	Bin         map[string]string `json:"bin,omitempty"`
	Files       []string          `json:"files"`
	OS          []string          `json:"os,omitempty"`
	CPU         []string          `json:"cpu,omitempty"`
	Engines     map[string]string `json:"engines,omitempty"`
	Optional    map[string]string `json:"optionalDependencies,omitempty"`
}

const home = "https://github.com/farcall-dev/farcall"

// writeNPM writes npm/farcall, which starts the program, and npm/SYSTEM-ARCH for each platform,
// which has it. npm installs the one optional dependency that fits the machine, and runs no script.
func (r *release) writeNPM(only string) error {
	version := strings.TrimPrefix(r.version, "v")
	common := manifest{
		Version: version, Homepage: home, Repository: "github:farcall-dev/farcall", License: "MIT",
		Description: "MCP and JSON-RPC 2.0: a gateway, a client and a server in one binary",
	}
	main := common
	main.Name, main.Bin, main.Files = "farcall", map[string]string{"farcall": "farcall.js"},
		[]string{"farcall.js"}
	main.Engines, main.Optional = map[string]string{"node": ">=18"}, map[string]string{}
	for _, p := range platforms {
		if only != "" && only != p.String() {
			continue
		}
		one := common
		system, arch := npmName(p.system), npmName(p.arch)
		one.Name = fmt.Sprintf("@farcall/%s-%s", system, arch)
		one.Description = "The farcall binary for " + p.String()
		one.OS, one.CPU, one.Files = []string{system}, []string{arch}, []string{p.binary()}
		main.Optional[one.Name] = version
		program, err := os.ReadFile(filepath.Join(r.dir, "bin", p.String(), p.binary()))
		if err != nil {
			return err
		}
		if err := r.writePackage(system+"-"+arch, one, file{p.binary(), program, 0o755}); err != nil {
			return err
		}
	}
	script, err := os.ReadFile("deploy/npm/farcall.js")
	if err != nil {
		return err
	}
	return r.writePackage("farcall", main, file{"farcall.js", script, 0o755})
}

func (r *release) writePackage(dir string, m manifest, program file) error {
	dir = filepath.Join(r.dir, "npm", dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	readme := fmt.Sprintf("# %s\n\n%s. See <%s>.\n", m.Name, m.Description, home)
	for _, f := range []file{
		program,
		{"package.json", append(text, '\n'), 0o644},
		{"README.md", []byte(readme), 0o644},
		{"LICENSE", license, 0o644},
	} {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.text, f.mode); err != nil {
			return err
		}
	}
	return nil
}
