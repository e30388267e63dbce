package skills

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/yamljson"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

const (
	scheme   = "skill://"
	manifest = "SKILL.md"
)

var errLink = errors.New(
	"it is a symbolic link, which is not followed; replace it by what it leads to")

// What Add takes. The first two are limits of the extension, per skill: hosts need not load more.
const (
	maxFiles   = 512
	maxBytes   = 16 << 20
	maxTotal   = 256 << 20 // bytes of all skills: they are in memory
	maxVisited = 100_000   // files and folders below the root, others than skills' too
)

// catalog is what is offered. It is not changed.
type catalog struct {
	skills      []entry // in the order of their URIs
	files       map[string]*file
	order       []string // the URIs of files, ascending
	directories map[string]*directory
}

// An entry describes a skill, as the extension has it on the wire.
type entry struct {
	URI         string      `json:"uri"` // of its SKILL.md
	Frontmatter jsonrpc.Raw `json:"frontmatter"`
	Resources   []listed    `json:"resources"`

	name, description string
	size              int
}

// listed is what an entry says of a file.
type listed struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

func describe(uri string, content []byte) listed {
	sum := sha256.Sum256(content)
	return listed{uri, "sha256:" + hex.EncodeToString(sum[:]), int64(len(content))}
}

type file struct {
	listed
	name, description string
	mime              string
	text              bool // otherwise it goes as a blob
	content           []byte
	skills            []int // those that it belongs to
}

func (f *file) resource() mcp.Resource {
	return mcp.Resource{
		URI: f.URI, Name: f.name, Description: f.description, MIMEType: f.mime,
		Size: &f.Size,
	}
}

func (f *file) sameResource(o *file) bool {
	return f.name == o.name && f.description == o.description && f.mime == o.mime && f.Size == o.Size
}

type directory struct {
	name     string
	children []string // their URIs, ascending
	skills   []int    // those with a file in it, or below
}

// A loader reads the files below a root.
type loader struct {
	root    fs.FS
	catalog *catalog
	paths   []string            // of files, below the root
	folders map[string][]string // of skills, with their files
	visited int
	total   int
	errs    []error
}

func load(root fs.FS) (*catalog, error) {
	l := &loader{
		root: root, folders: map[string][]string{},
		catalog: &catalog{files: map[string]*file{}, directories: map[string]*directory{}},
	}
	if err := fs.WalkDir(root, ".", l.visit); err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	l.assign()
	for _, dir := range slices.Sorted(maps.Keys(l.folders)) {
		if err := l.skill(dir); err != nil {
			l.errs = append(l.errs, err)
		}
	}
	if err := errors.Join(l.errs...); err != nil {
		return nil, fmt.Errorf("skills: %w", err)
	}
	l.finish()
	return l.catalog, nil
}

// visit notes what is below the root. Only the files of skills are read, later.
func (l *loader) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if l.visited++; l.visited > maxVisited {
		return fmt.Errorf(
			"there are more than %d files and folders below the root; give Add the folder of the "+
				"skills alone", maxVisited)
	}
	switch {
	case !fs.ValidPath(name) || !utf8.ValidString(name) || name != "." && path.Base(name) != d.Name():
		return fmt.Errorf("%.200q: the name is not valid: rename it to one in UTF-8, without a slash",
			name)
	case name != "." && strings.HasPrefix(d.Name(), "."):
		if d.IsDir() {
			return fs.SkipDir
		}
	case d.IsDir():
	case d.Type()&fs.ModeSymlink != 0:
		l.errs = append(l.errs, fmt.Errorf("%q: %w", name, errLink))
	default:
		l.paths = append(l.paths, name)
		if d.Name() == manifest {
			l.folders[path.Dir(name)] = nil
		}
	}
	return nil
}

// assign gives each file to the skills that it is in, which may be in one another.
func (l *loader) assign() {
	for _, name := range l.paths {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if files, ok := l.folders[dir]; ok {
				l.folders[dir] = append(files, name)
			}
		}
	}
}

// skill reads the skill in a folder.
func (l *loader) skill(dir string) error {
	if dir == "." {
		return fmt.Errorf("%s: the root itself is a skill; give Add the folder that its folder is in",
			manifest)
	}
	e := entry{URI: uriOf(dir + "/" + manifest)}
	for _, name := range l.folders[dir] {
		f, err := l.file(name)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		e.size += len(f.content)
		e.Resources = append(e.Resources, f.listed)
		if len(e.Resources) > maxFiles || e.size > maxBytes {
			return fmt.Errorf(
				"%q: the skill has more than %d files, or %d bytes: clients need not load it; split it", dir,
				maxFiles, maxBytes)
		}
	}
	front, err := parseFrontmatter(l.catalog.files[e.URI].content)
	if err == nil {
		err = front.check(path.Base(dir))
	}
	if err != nil {
		return fmt.Errorf("%q: %w", dir+"/"+manifest, err)
	}
	e.Frontmatter, e.name, e.description = front.raw, front.name, front.description
	l.catalog.skills = append(l.catalog.skills, e)
	return nil
}

// file reads a file, once.
func (l *loader) file(name string) (*file, error) {
	uri := uriOf(name)
	if f := l.catalog.files[uri]; f != nil {
		return f, nil
	}
	content, err := l.read(name)
	if err != nil {
		return nil, err
	}
	if l.total += len(content); l.total > maxTotal {
		return nil, fmt.Errorf("all skills together have more than %d bytes", maxTotal)
	}
	f := &file{listed: describe(uri, content), name: path.Base(name), content: content}
	f.mime, f.text = kind(name, content)
	l.catalog.files[uri] = f
	return f, nil
}

// read reads a regular file, and follows no link.
func (l *loader) read(name string) ([]byte, error) {
	info, err := fs.Lstat(l.root, name)
	switch {
	case err != nil:
		return nil, err
	case info.Mode()&fs.ModeSymlink != 0:
		return nil, errLink // it was no link when its folder was read
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is no file, but of the type %s; remove it", info.Mode().Type())
	}
	f, err := l.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it is read only
	content, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err == nil && len(content) > maxBytes {
		err = fmt.Errorf("it has more than the %d bytes of a whole skill", maxBytes)
	}
	return content, err
}

// finish puts what was read in order.
func (l *loader) finish() {
	c := l.catalog
	sortByURI(c.skills, func(e entry) string { return e.URI })
	for i, e := range c.skills {
		sortByURI(e.Resources, func(r listed) string { return r.URI })
		for _, r := range e.Resources {
			f := c.files[r.URI]
			f.skills = append(f.skills, i)
			c.add(f.URI, i)
		}
		own := c.files[e.URI]
		own.name, own.description = e.name, e.description
	}
	for _, d := range c.directories {
		slices.Sort(d.children)
		d.children = slices.Compact(d.children)
	}
	c.order = slices.Sorted(maps.Keys(c.files))
}

// add adds a file, or a directory, of a skill to the directory that it is in, and that to its own.
func (c *catalog) add(uri string, skill int) {
	parent, _ := path.Split(uri)
	parent = strings.TrimSuffix(parent, "/")
	if len(parent) <= len(scheme) {
		return
	}
	d := c.directories[parent]
	if d == nil {
		name, err := url.PathUnescape(path.Base(parent))
		if err != nil {
			name = path.Base(parent)
		}
		d = &directory{name: name}
		c.directories[parent] = d
	}
	if n := len(d.children); n == 0 || d.children[n-1] != uri {
		d.children = append(d.children, uri) // others that are there twice go in the end
	}
	if n := len(d.skills); n == 0 || d.skills[n-1] != skill { // skills come in their order
		d.skills = append(d.skills, skill)
	}
	c.add(parent, skill)
}

func sortByURI[T any](all []T, uri func(T) string) {
	slices.SortFunc(all, func(a, b T) int { return strings.Compare(uri(a), uri(b)) })
}

// uriOf returns the URI of a file below the root.
func uriOf(name string) string {
	segments := strings.Split(name, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return scheme + strings.Join(segments, "/")
}

// kind returns the media type of a file, and whether it is text. The table is our own: that of
// package mime differs from machine to machine.
func kind(name string, content []byte) (mime string, text bool) {
	text = utf8.Valid(content) && !bytes.ContainsRune(content, 0)
	if known := kinds[strings.ToLower(path.Ext(name))]; known != "" {
		return known, text
	}
	if text {
		return "text/plain", true
	}
	return http.DetectContentType(content), false
}

var kinds = map[string]string{
	".md": "text/markdown", ".txt": "text/plain", ".csv": "text/csv", ".html": "text/html",
	".css": "text/css",
	".js":  "text/javascript", ".mjs": "text/javascript", ".ts": "text/x-typescript",
	".py": "text/x-python", ".sh": "text/x-shellscript",
	".json": "application/json", ".yaml": "application/yaml", ".yml": "application/yaml",
	".toml": "application/toml",
	".xml":  "application/xml", ".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg",
	".jpeg": "image/jpeg",
	".gif":  "image/gif", ".webp": "image/webp", ".pdf": "application/pdf", ".zip": "application/zip",
}

// The limits of the specification of Agent Skills (agentskills.io/specification), in characters,
// and our own of the frontmatter, in bytes.
const (
	maxName          = 64
	maxDescription   = 1024
	maxCompatibility = 500
	maxFrontmatter   = 64 << 10
)

// skillName is what a skill may be called.
var skillName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// frontmatter is the YAML at the beginning of a SKILL.md.
type frontmatter struct {
	raw               jsonrpc.Raw // the whole of it, as a JSON object
	name, description string
}

// parseFrontmatter reads what is between the first line, ---, and the next such line.
func parseFrontmatter(document []byte) (*frontmatter, error) {
	line, rest := cutLine(bytes.TrimPrefix(document, []byte("\ufeff")))
	if line != "---" {
		return nil, errors.New(
			"it must begin with frontmatter: YAML between two lines of ---, with name and description")
	}
	head := rest
	for {
		if len(rest) == 0 {
			return nil, errors.New("its frontmatter has no end: a second line of --- is missing")
		}
		begin := len(head) - len(rest)
		if line, rest = cutLine(rest); line == "---" {
			head = head[:begin]
			break
		}
	}
	if len(head) > maxFrontmatter {
		return nil, fmt.Errorf("its frontmatter has %d bytes; %d are allowed", len(head), maxFrontmatter)
	}
	raw, err := yamljson.JSON(head)
	if err != nil {
		return nil, fmt.Errorf("its frontmatter: %w", err)
	}
	return newFrontmatter(raw)
}

// cutLine returns the first line of a text, without the white space at its end, and what follows.
func cutLine(text []byte) (line string, rest []byte) {
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	return strings.TrimRight(string(head), " \t\r"), rest
}

// newFrontmatter reads a frontmatter that is JSON already.
func newFrontmatter(raw jsonrpc.Raw) (*frontmatter, error) {
	if len(raw) == 0 || raw[0] != '{' || len(raw) > 4*maxFrontmatter {
		return nil, fmt.Errorf(
			"its frontmatter must be a map of at most %d bytes, with name and description", maxFrontmatter)
	}
	f := &frontmatter{raw: raw}
	for _, field := range []struct {
		name string
		to   *string
	}{{"name", &f.name}, {"description", &f.description}} {
		value := scan.Member(raw, field.name)
		if len(value) == 0 || value[0] != '"' {
			return nil, fmt.Errorf("its frontmatter: %s must be a text (got %.40s)", field.name,
				cmp.Or(string(value), "nothing"))
		}
		*field.to = string(scan.Unquote(value))
	}
	return f, nil
}

// check holds the frontmatter of a skill in a folder of that name against the specification.
func (f *frontmatter) check(folder string) error {
	switch n := utf8.RuneCountInString(f.description); {
	case len(f.name) > maxName || !skillName.MatchString(f.name):
		return fmt.Errorf(
			"its frontmatter: name must be 1 to %d of a-z, 0-9 and single hyphens between them (got %.80q)",
			maxName, f.name)
	case f.name != folder:
		return fmt.Errorf("its frontmatter: name must be that of its folder, %.80q (got %q)",
			folder, f.name)
	case strings.TrimSpace(f.description) == "" || n > maxDescription:
		return fmt.Errorf("its frontmatter: description must have 1 to %d characters (got %d)",
			maxDescription, n)
	}
	if raw := scan.Member(f.raw, "compatibility"); raw != nil {
		if raw[0] != '"' || utf8.RuneCount(scan.Unquote(raw)) > maxCompatibility {
			return fmt.Errorf("its frontmatter: compatibility must be a text of at most %d characters",
				maxCompatibility)
		}
	}
	return nil
}

// values returns the frontmatter as Go values.
func (f *frontmatter) values() (map[string]any, error) {
	var all map[string]any
	err := jsonv2.Unmarshal(f.raw, &all)
	return all, err
}
