package sandbox

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// maxInterpreters bounds scripts with an interpreter that is a script.
const maxInterpreters = 4

// libraries are the directories of the system from which the loader maps code. Programs in them are
// not executed unless a rule names them.
func libraries() []string {
	return []string{
		"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32",
		"/usr/local/lib", "/usr/local/lib64", "/nix/store", "/gnu/store",
	}
}

// loaders are where the system has the programs that start dynamically linked ones.
func loaders() []string {
	return []string{
		"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1",
		"/lib/ld-musl-x86_64.so.1", "/lib/ld-musl-aarch64.so.1",
	}
}

// systemFiles are what libc and nearly every program read. They hold no secrets.
func systemFiles() []string {
	return []string{
		"/usr/libexec", "/usr/share", "/usr/local/share",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path",
		"/etc/ld-musl-aarch64.path",
		"/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/nsswitch.conf", "/etc/passwd",
		"/etc/group",
		"/etc/mime.types", "/etc/protocols", "/etc/services", "/etc/os-release", "/etc/debian_version",
		"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs",
		"/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted",
		"/sys/devices/system/cpu",
	}
}

// networkFiles are what finding addresses needs.
func networkFiles() []string {
	return []string{"/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf"}
}

// ownProc is of /proc what a process may see when there is none for the sandbox alone.
func ownProc() []string {
	return []string{
		"/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg",
		"/proc/uptime", "/proc/version", "/proc/filesystems", "/proc/sys/vm/overcommit_memory",
	}
}

// devices may be read and written.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
}

// found is a program and what has to run for it.
type found struct {
	file     string
	executes []string // the program and its interpreters
	loaders  []string // of the system, and those that these programs name
	reads    []string // libraries beside them
}

// program finds a command in the PATH that is given, or by its path.
func program(name, path string) (*found, error) {
	file, err := lookup(name, path)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	p := &found{file: file, loaders: loaders()}
	next := file
	for range maxInterpreters {
		p.add(next)
		script, argument := shebang(next)
		if script == "" {
			break
		}
		if filepath.Base(script) == "env" {
			p.add(script)
			if script, err = lookup(argument, path); err != nil {
				return nil, fmt.Errorf("sandbox: %s is run by env: %w", next, err)
			}
		}
		next = script
	}
	return p, nil
}

// add adds a program that runs.
func (p *found) add(file string) {
	p.executes = append(p.executes, file)
	p.reads = append(p.reads, belonging(file)...)
	if target, err := filepath.EvalSymlinks(file); err == nil && target != file {
		p.reads = append(p.reads, belonging(target)...)
	}
	if loader := loaderOf(file); loader != "" && !slices.Contains(p.loaders, loader) {
		p.loaders = append(p.loaders, loader)
	}
}

// loaderOf is the loader that a dynamically linked program names, "" when there is none.
func loaderOf(file string) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP || p.Filesz > 4096 {
			continue
		}
		text, err := io.ReadAll(p.Open())
		if name := string(bytes.TrimRight(text, "\x00")); err == nil && filepath.IsAbs(name) {
			return name
		}
	}
	return ""
}

// belonging are the libraries beside the bin of a program outside the system's directories, and
// what makes a virtual environment of Python one.
func belonging(file string) []string {
	dir := filepath.Dir(file)
	prefix := filepath.Dir(dir)
	if filepath.Base(dir) != "bin" || prefix == "/" || prefix == "." {
		return nil
	}
	return []string{
		filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib64"),
		filepath.Join(prefix, "pyvenv.cfg"),
	}
}

// lookup finds a program as a shell does, in the PATH that is given.
func lookup(name, path string) (string, error) {
	if name == "" {
		return "", errNoCommand
	}
	if strings.ContainsRune(name, filepath.Separator) {
		return executable(name)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // ignore PATH entries relative to the working directory
		}
		if file, err := executable(filepath.Join(dir, name)); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%q is in no directory of PATH; write its path: %w", name, exec.ErrNotFound)
}

func executable(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", fmt.Errorf("the program: %w", err)
	}
	if info.IsDir() {
		return "", fmt.Errorf("%s is a directory, and no program: %w", file, os.ErrPermission)
	}
	if info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is not executable; chmod +x makes it so: %w", file, os.ErrPermission)
	}
	return file, nil
}

// shebang is the interpreter of a script and its argument; of "env -S A=b node -x", it is node.
func shebang(file string) (interpreter, argument string) {
	f, err := os.Open(file)
	if err != nil {
		return "", ""
	}
	defer func() { _ = f.Close() }()
	head := make([]byte, 256) // what the kernel reads
	n, _ := io.ReadFull(f, head)
	line, ok := bytes.CutPrefix(head[:n], []byte("#!"))
	if !ok {
		return "", ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 || !filepath.IsAbs(words[0]) {
		return "", ""
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return words[0], w
		}
	}
	return words[0], ""
}

// within reports whether a path is one of the directories or below.
func within(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		rel, err := filepath.Rel(dir, path)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
	})
}

// variable is the value of one in an environment; the last counts.
func variable(env []string, name string) (value string) {
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// with has a variable set.
func with(env []string, name, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, entry := range env {
		if !strings.HasPrefix(entry, name+"=") {
			out = append(out, entry)
		}
	}
	return append(out, name+"="+value)
}

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
			return nil,
				fmt.Errorf("sandbox: %s is in write, and has to run: name it in execute, too, if the command "+
					"may change what it runs", path)
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
