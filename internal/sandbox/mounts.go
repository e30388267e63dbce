package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// mountPoint is a path and what its mount allows in the sandbox, with all below that has no mount
// point nearer. Everything that is below none can be neither written nor executed.
type mountPoint struct {
	path           string
	write, execute bool
}

// planMounts decides which paths become mount points. The paths are absolute and have no symbolic
// links. implicit are those that have to run though no rule names them: the program, its
// interpreters, the libraries. The result has parents before what is below them.
//
// The invariant: a file is executable (execve, and mmap with PROT_EXEC, which is how the loader and
// dlopen run code) only if execute or implicit names it or a directory above it and write names
// none that is nearer. A file is both writable and executable only if execute names a path at or
// below the one that write names: what runs implicitly is read-only.
func planMounts(write, execute, implicit []string) ([]mountPoint, error) {
	var named []mountPoint
	add := func(paths []string, w, x bool) {
		for _, path := range paths {
			named = append(named, mountPoint{path, w, x})
		}
	}
	add(write, true, false)
	add(execute, false, true)
	named = merged(named)
	out := slices.Clone(named)
	for _, path := range implicit {
		m, ok := nearest(named, path)
		switch {
		case ok && m.execute: // the rules say what it is
		case ok && m.path == path:
			return nil, fmt.Errorf("sandbox: %s is in write, and has to run: name it in execute, too, if the command may change what it runs", path)
		default:
			out = append(out, mountPoint{path: path, execute: true})
		}
	}
	out = merged(out)
	for i, m := range out {
		if above, ok := nearest(out[:i], m.path); ok && above.write && slices.Contains(execute, m.path) {
			out[i].write = true // execute takes nothing away from a write path around it
		}
	}
	return out, nil
}

// merged has one point for each path, in the order of the paths: parents are first.
func merged(points []mountPoint) (out []mountPoint) {
	slices.SortStableFunc(points, func(a, b mountPoint) int { return strings.Compare(a.path, b.path) })
	for _, m := range points {
		if n := len(out); n > 0 && out[n-1].path == m.path {
			out[n-1].write = out[n-1].write || m.write
			out[n-1].execute = out[n-1].execute || m.execute
			continue
		}
		out = append(out, m)
	}
	return out
}

// nearest is the point with the longest path that is the path itself or above it.
func nearest(points []mountPoint, path string) (m mountPoint, ok bool) {
	for _, p := range points {
		if (!ok || len(p.path) > len(m.path)) && within(path, []string{p.path}) {
			m, ok = p, true
		}
	}
	return m, ok
}

// resolved makes paths absolute and free of symbolic links. One that does not exist is left out:
// what has to exist was checked before.
func resolved(paths []string) (out []string, err error) {
	for _, p := range paths {
		if p, err = filepath.Abs(p); err != nil {
			return nil, fmt.Errorf("sandbox: %w", err)
		}
		if p, err = filepath.EvalSymlinks(p); err == nil && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out, nil
}
