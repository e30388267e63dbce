package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxLinks bounds symbolic links that lead to one another, as the kernel does.
const maxLinks = 40

// hidden says how files and directories are covered.
//
// The invariant: what is at a path of [Rules.Hide], or comes to be there by a rename, a replacement
// or a rotation while the command runs, cannot be read, unless the path is in loose. A mount covers
// what is at a path when it is made, and goes when that is replaced. So only a directory that is
// covered as a whole keeps its promise.
type hidden struct {
	points []string // that are covered: directories, and files where the directory has to stay
	loose  []string // paths with a directory that is not covered: what replaces them can be read
}

// planCover plans how paths are covered for a command that needs those of keep. A directory that
// holds nothing but private files is covered as a whole; one that holds others, or what is in keep,
// is not.
func planCover(paths, keep []string) (h hidden) {
	d := dirs{}
	var all []place
	keep, _ = resolved(keep) // that there is no working directory is found out later
	for _, p := range paths {
		for _, at := range placesOf(p) {
			d.add(at)
			all = append(all, at)
		}
	}
	for _, at := range all {
		dir := filepath.Dir(at.path)
		switch {
		case d.private(dir) && !slices.ContainsFunc(keep, func(k string) bool {
			return within(k, []string{dir})
		}):
			h.points = append(h.points, dir)
		case at.isDir:
			h.points = append(h.points, at.path)
		default:
			if !at.isLink {
				h.points = append(h.points, versions(at.path)...)
			}
			h.loose = append(h.loose, at.path)
		}
	}
	h.points, h.loose = outermost(h.points), outermost(h.loose)
	return h
}

// outermost has no path twice, and none below another one.
func outermost(paths []string) (out []string) {
	for _, p := range paths {
		below := func(above string) bool { return above != p && within(p, []string{above}) }
		if !slices.Contains(out, p) && !slices.ContainsFunc(paths, below) {
			out = append(out, p)
		}
	}
	return out
}

// A place is a path in a directory without symbolic links. There need not be anything.
type place struct {
	path          string
	isLink, isDir bool
}

// placesOf returns where a path is, with each symbolic link on the way: who replaces one of them
// replaces the file.
func placesOf(path string) (out []place) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil
	}
	for range maxLinks {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return out
		}
		path = filepath.Join(dir, filepath.Base(path))
		info, err := os.Lstat(path)
		at := place{
			path: path, isLink: err == nil && info.Mode()&os.ModeSymlink != 0,
			isDir: err == nil && info.IsDir(),
		}
		out = append(out, at)
		if !at.isLink {
			break
		}
		target, err := os.Readlink(path)
		if err != nil {
			break
		}
		if path = target; !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
	}
	return out
}

// dirs has the names of private files in each directory.
type dirs map[string][]string

func (d dirs) add(at place) {
	dir := filepath.Dir(at.path)
	d[dir] = append(d[dir], filepath.Base(at.path))
}

// private reports whether a directory holds private files and nothing else. A directory below, or a
// link to one, may be in it when the same holds there.
func (d dirs) private(dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil || len(d[dir]) == 0 {
		return false
	}
	for _, e := range entries {
		if slices.ContainsFunc(d[dir], func(name string) bool { return isVersion(e.Name(), name) }) {
			continue
		}
		below, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil || within(dir, []string{below}) || !d.private(below) {
			return false
		}
	}
	return true
}

// isVersion reports whether a name is that of a file, of one before it, or of what an editor leaves
// beside it: audit.jsonl.1, farcall.yaml~, .farcall.yaml.swp, #farcall.yaml#.
func isVersion(name, file string) bool {
	rest, is := strings.CutPrefix(name, file)
	if !is {
		rest, is = strings.CutPrefix(strings.TrimLeft(name, ".#"), file)
	}
	return is && (rest == "" || strings.ContainsAny(rest[:1], ".~#"))
}

// versions returns a file and those before it that a rotation has left, FILE.1 and so on, which are
// there.
func versions(path string) (out []string) {
	dir, name := filepath.Split(path)
	entries, _ := os.ReadDir(dir) // without any there is nothing to cover
	for _, e := range entries {
		number, is := strings.CutPrefix(e.Name(), name+".")
		if e.Name() == name || is && strings.Trim(number, "0123456789") == "" {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// Loose returns the paths of Hide that the command reads once something replaces them while it
// runs, when it works in a directory. In their own directories they are not loose.
func (r *Rules) Loose(cwd string) []string { return r.hidden(cwd).loose }

// hidden plans what is covered. What a rule names itself is not.
func (r *Rules) hidden(cwd string) hidden {
	if r.Open {
		return planCover(r.Hide, []string{cwd})
	}
	named, err := resolved(slices.Concat(r.Read, r.Write, r.Execute))
	if err != nil {
		return hidden{}
	}
	h := planCover(slices.DeleteFunc(slices.Clone(r.Hide), func(p string) bool {
		at := placesOf(p)
		return len(at) > 0 && slices.Contains(named, at[len(at)-1].path)
	}), append(named, cwd))
	h.loose = slices.DeleteFunc(h.loose, func(p string) bool { return !within(p, named) })
	return h
}

// exposes says what a command with [Rules.Open] can reach although it should not.
func (r *Rules) exposes(k kernel) (parts []string) {
	const elsewhere = "sandboxes are for Linux on amd64 and arm64"
	if !k.known {
		parts = append(parts,
			"memory: the memory and the environment of farcall can be read ("+elsewhere+")")
	}
	points := r.hidden("/").points
	switch {
	case len(points) == 0:
	case !k.known:
		parts = append(parts, "files: "+strings.Join(points, ", ")+" can be read ("+elsewhere+")")
	case k.mounts != nil:
		parts = append(parts,
			"files: "+strings.Join(points, ", ")+" can be read (no mount namespaces: "+k.mounts.Error()+")")
	}
	return parts
}
