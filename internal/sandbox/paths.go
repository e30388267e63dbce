package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// maxInterpreters bounds scripts whose interpreter is a script.
const maxInterpreters = 4

// systemFiles are what nearly every program needs: libraries, and what libc reads. They hold no secrets.
func systemFiles() []string {
	return []string{
		"/lib", "/lib32", "/lib64", "/libx32", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/libx32", "/usr/libexec",
		"/usr/local/lib", "/usr/local/lib64", "/usr/share", "/usr/local/share", "/nix/store", "/gnu/store",
		"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld-musl-x86_64.path", "/etc/ld-musl-aarch64.path",
		"/etc/localtime", "/etc/timezone", "/etc/locale.alias", "/etc/nsswitch.conf", "/etc/passwd", "/etc/group",
		"/etc/mime.types", "/etc/protocols", "/etc/services", "/etc/os-release", "/etc/debian_version",
		"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/pki/tls/certs", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted", "/etc/ca-certificates/extracted",
		"/sys/devices/system/cpu",
	}
}

// networkFiles are what finding addresses needs.
func networkFiles() []string {
	return []string{"/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/gai.conf"}
}

// ownProc is of /proc what a process may see when there is none for the sandbox alone.
func ownProc() []string {
	return []string{"/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version", "/proc/filesystems", "/proc/sys/vm/overcommit_memory"}
}

// devices may be read and written.
func devices() []string {
	return []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
}

// program finds the file of a command, the files that execute it, and directories of libraries that
// belong to them.
func program(name, path string) (file string, executes, reads []string, err error) {
	if file, err = lookup(name, path); err != nil {
		return "", nil, nil, fmt.Errorf("sandbox: %w", err)
	}
	next := file
	for range maxInterpreters {
		executes = append(executes, next)
		reads = append(reads, belonging(next)...)
		if target, err := filepath.EvalSymlinks(next); err == nil && target != next {
			reads = append(reads, belonging(target)...)
		}
		script, argument := shebang(next)
		if script == "" {
			break
		}
		if filepath.Base(script) == "env" {
			executes = append(executes, script)
			if script, err = lookup(argument, path); err != nil {
				return "", nil, nil, fmt.Errorf("sandbox: %s is run by env: %w", next, err)
			}
		}
		next = script
	}
	return file, executes, reads, nil
}

// belonging are the libraries beside the bin of a program outside the system's directories, and what
// makes a virtual environment of Python one.
func belonging(file string) []string {
	dir := filepath.Dir(file)
	prefix := filepath.Dir(dir)
	if filepath.Base(dir) != "bin" || prefix == "/" || prefix == "." {
		return nil
	}
	return []string{filepath.Join(prefix, "lib"), filepath.Join(prefix, "lib64"), filepath.Join(prefix, "pyvenv.cfg")}
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
			continue // a program of the working directory is nobody's intention
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
	for _, dir := range dirs {
		rel, err := filepath.Rel(dir, path)
		if err == nil && rel != ".." && !strings.HasPrefix(rel, "../") {
			return true
		}
	}
	return false
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
