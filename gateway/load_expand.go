package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maxSecret bounds what is read for one value.
const maxSecret = 64 << 10

// expand replaces what a value refers to:
//
//	${NAME}            from the environment; it must be set
//	${NAME:-default}   the same, but it may be unset or empty
//	${file:PATH}       what is in a file, without white space around it
//	$${                means ${
//
// r.origin says afterwards where it came from. No problem has anything of it.
func (r *reader) expand(n *node, path, text string) (string, bool) {
	var b strings.Builder
	var from []string
	good := true
	for {
		before, rest, found := strings.Cut(text, "${")
		if !found {
			b.WriteString(text)
			break
		}
		if strings.HasSuffix(before, "$") {
			b.WriteString(before + "{")
			text = rest
			continue
		}
		b.WriteString(before)
		name, after, closed := strings.Cut(rest, "}")
		if !closed {
			r.problemAt(n.at, path, "${ has no }", "add it, or write $${ if the text itself has ${")
			return "", false
		}
		value, origin, ok := r.reference(n, path, name)
		b.WriteString(value)
		if good = good && ok; ok && !slices.Contains(from, origin) {
			from = append(from, origin)
		}
		text = after
	}
	r.origin = strings.Join(from, ", ")
	return b.String(), good
}

// reference returns what ${name} stands for, and where it came from.
func (r *reader) reference(n *node, path, name string) (value, origin string, ok bool) {
	if file, isFile := strings.CutPrefix(name, "file:"); isFile {
		value, ok = r.secret(n, path, file)
		return value, "file " + file, ok
	}
	if input, isInput := strings.CutPrefix(name, "input:"); isInput {
		if r.lenient {
			return "", "", true
		}
		r.problemAt(n.at, path,
			fmt.Sprintf("the editor asks its user for ${input:%s}, and farcall cannot", input),
			fmt.Sprintf("set %s in the environment and write ${%s}", variable(input), variable(input)))
		return "", "", false
	}
	if value, ok := r.editorWord(name); ok {
		return value, "the place of the file", true
	}
	name, fallback, hasFallback := strings.Cut(strings.TrimPrefix(name, "env:"), ":-")
	if !isName(name) {
		r.problemAt(n.at, path, "after ${ must stand the name of a variable of the environment",
			"write ${NAME}, ${NAME:-default} or ${file:PATH}; $${ if the text itself has ${")
		return "", "", false
	}
	value, set := os.LookupEnv(name)
	switch {
	case hasFallback && value == "":
		return fallback, "the default of env " + name, true
	case !set && !r.lenient:
		r.problemAt(n.at, path, "the environment has no "+name,
			fmt.Sprintf("set it before farcall starts, or write ${%s:-default}", name))
		return "", "", false
	}
	return value, "env " + name, true
}

// variable makes the name of a variable of the identifier of an input.
func variable(input string) string {
	name := strings.Map(func(r rune) rune {
		if r < 128 && isNameByte(byte(r)) {
			return r
		}
		return '_'
	}, strings.ToUpper(input))
	if !isName(name) {
		return "NAME"
	}
	return name
}

// editorWord is what editors replace in their own files.
func (r *reader) editorWord(name string) (string, bool) {
	if !r.desktop {
		return "", false
	}
	switch name {
	case "workspaceFolder", "workspaceRoot":
		return r.workspace, true
	case "workspaceFolderBasename":
		return filepath.Base(r.workspace), true
	case "userHome":
		home, err := os.UserHomeDir()
		return home, err == nil
	case "pathSeparator", "/":
		return string(filepath.Separator), true
	}
	return "", false
}

// secret reads a file that a value names.
func (r *reader) secret(n *node, path, file string) (string, bool) {
	full := r.beside(file)
	data, err := readBounded(full, maxSecret)
	if err != nil {
		if r.lenient {
			return "", true
		}
		r.problemAt(n.at, path, fmt.Sprintf("cannot read the file: %v", err),
			"the path is relative to "+r.dir)
		return "", false
	}
	if !slices.Contains(r.read, full) {
		r.read = append(r.read, full)
	}
	return strings.TrimSpace(string(data)), true
}

// private reads a value that may be secret: file:PATH stands for what is in a file.
func (r *reader) private(n *node, path string) (string, bool) {
	file, isFile := strings.CutPrefix(n.text, "file:")
	if !isFile || r.desktop || n.kind != scalarNode {
		return r.value(n, path)
	}
	value, ok := r.secret(n, path, file)
	r.origin = "file " + file
	r.written[path] = n.text
	put(&r.values, path, value)
	return value, ok
}

// secrets reads a map of values that may be secret. Where each came from is kept
// under kind.
func (r *reader) secrets(dst *map[string]string, u *Upstream, kind string) take {
	return func(n *node, path string) {
		r.each(n, path, func(m member, path string) {
			if value, ok := r.private(m.value, path); ok {
				put(dst, m.key, value)
				put(&u.origins, kind+"."+m.key, r.origin)
				r.literal(m.value, path)
				if kind != "env" { // which need not be secret
					r.exposed(path)
				}
			}
		})
	}
}

// hidden reads a value that is secret, and says so when it stands in the file
// itself. It returns where it came from.
func (r *reader) hidden(dst *string, n *node, path string) (origin string) {
	value, ok := r.private(n, path)
	if !ok {
		return ""
	}
	*dst = value
	r.exposed(path)
	if r.inClear(value) {
		r.advise(path, "it is secret and stands in the file itself",
			"write ${NAME} for a variable of the environment, or file:PATH")
	}
	return r.origin
}

// exposed warns when other users can read the file from which the last value came.
func (r *reader) exposed(path string) {
	file, ok := strings.CutPrefix(r.origin, "file ")
	if !ok || runtime.GOOS == "windows" {
		return
	}
	if info, err := os.Stat(r.beside(file)); err == nil && info.Mode().Perm()&0o077 != 0 {
		r.advise(path, fmt.Sprintf("other users may read the file %s (mode %04o)", file,
			info.Mode().Perm()), "chmod 600 "+file)
	}
}

// inClear reports whether the value that was read last stands in the file itself.
func (r *reader) inClear(value string) bool {
	return value != "" && (r.origin == "" || strings.HasPrefix(r.origin, "the default of "))
}

// advise is a notice that says what to do.
func (r *reader) advise(path, message, hint string) {
	if len(r.notices) < maxProblems {
		at := r.near(path)
		r.notices = append(r.notices, Problem{at.line, at.column, path, message, hint})
	}
}
