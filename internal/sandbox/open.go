package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hiddenPoints are the paths to cover so that the files and directories of hide cannot be reached. A
// directory that holds nothing else is covered as a whole: then what replaces a file in it is hidden,
// too, as when a log is rotated. The working directory never is. Paths that do not exist are left out.
func hiddenPoints(hide []string, cwd string) (out []string) {
	paths, err := resolved(hide)
	if err != nil {
		return nil
	}
	names := map[string][]string{}
	for _, p := range paths {
		names[filepath.Dir(p)] = append(names[filepath.Dir(p)], filepath.Base(p))
	}
	for _, p := range paths {
		if dir := filepath.Dir(p); holdsOnly(dir, names[dir]) && !within(cwd, []string{dir}) {
			p = dir
		}
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return slices.DeleteFunc(out, func(p string) bool { // below another one
		return slices.ContainsFunc(out, func(above string) bool { return above != p && within(p, []string{above}) })
	})
}

// holdsOnly reports whether a directory has only these names, and names that begin with one of them and
// a dot: audit.jsonl.1 is an audit.jsonl of before.
func holdsOnly(dir string, names []string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if !slices.ContainsFunc(names, func(n string) bool { return e.Name() == n || strings.HasPrefix(e.Name(), n+".") }) {
			return false
		}
	}
	return true
}

// exposes says what a command with [Rules.Open] can reach although it should not.
func (r *Rules) exposes(k kernel) (parts []string) {
	const elsewhere = "sandboxes are for Linux on amd64 and arm64"
	if !k.known {
		parts = append(parts, "memory: the memory and the environment of farcall can be read ("+elsewhere+")")
	}
	points := hiddenPoints(r.Hide, "")
	switch {
	case len(points) == 0:
	case !k.known:
		parts = append(parts, "files: "+strings.Join(points, ", ")+" can be read ("+elsewhere+")")
	case k.mounts != nil:
		parts = append(parts, "files: "+strings.Join(points, ", ")+" can be read (no mount namespaces: "+k.mounts.Error()+")")
	}
	return parts
}
