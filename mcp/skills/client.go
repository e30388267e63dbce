package skills

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// What List takes of a server.
const (
	maxPages  = 10_000
	maxList   = 64 << 20 // bytes
	maxSkills = 10_000   // entries, which take far more memory than their bytes
	// errors of invalid entries that are reported, beside the number of the others
	maxFaults = 20
)

// ErrChanged is behind the error of [Skill.Read] when a file is not what the server has announced.
// It may have changed since: [Get] returns the skill as it is now, for the user to approve again.
var ErrChanged = errors.New("skills: the file is not what the server has announced")

// A Skill is what a server says of a skill. Its methods may be called by any number of goroutines
// at once; its fields must not be changed.
type Skill struct {
	// URI is that of the skill's SKILL.md. It is unique within a server.
	URI string
	// Name is a label: another skill, of this server or of another, may have it, too. The description
	// says what the skill is for, and when to use it.
	Name, Description string
	// Frontmatter is all that SKILL.md says of the skill, as encoding/json decodes it. Its
	// allowed-tools and whatever else asks for rights count for nothing unless the user has approved
	// that.
	Frontmatter map[string]any
	// Files are the URIs of all files of the skill, SKILL.md too, in the order of the server. Nil when
	// Dynamic is set.
	Files []string
	// Dynamic says that the server does not announce the files: what Read returns cannot be verified.
	Dynamic bool

	client *mcp.Client
	files  map[string]listed
}

// wireSkill is an entry as a server sends it.
type wireSkill struct {
	URI         string      `json:"uri"`
	Frontmatter jsonrpc.Raw `json:"frontmatter"`
	Resources   jsonrpc.Raw `json:"resources"`
}

// List returns the skills that a server lists. It reads none of their files. A server may have
// skills that it does not list: see [Get]. An error says that the server does not offer skills, or
// that the call has failed; entries that are not valid are left out, and the error says why beside
// the valid ones.
func List(ctx context.Context, c *mcp.Client) ([]*Skill, error) {
	if err := offered(c); err != nil {
		return nil, err
	}
	var all []*Skill
	var invalid []error
	params, seen, size, entries, faults := map[string]string{}, map[string]bool{}, 0, 0, 0
	uris := map[string]bool{}
	for range maxPages {
		var raw jsonrpc.Raw
		if err := c.Request(ctx, methodList, params, &raw); err != nil {
			return nil, err
		}
		if size += len(raw); size > maxList {
			return nil, fmt.Errorf("skills: %w: the list has more than %d bytes",
				farcall.ErrProtocol, maxList)
		}
		for range scan.Elements(scan.Member(raw, "skills")) {
			if entries++; entries > maxSkills {
				return nil, fmt.Errorf("skills: %w: the list has more than %d skills", farcall.ErrProtocol,
					maxSkills)
			}
		}
		var page struct {
			Skills     []wireSkill `json:"skills"`
			NextCursor string      `json:"nextCursor"`
		}
		if err := jsonv2.Unmarshal(raw, &page); err != nil {
			return nil, fmt.Errorf("skills: %w: the result of %s: %w", farcall.ErrProtocol, methodList, err)
		}
		for _, w := range page.Skills {
			s, err := newSkill(c, w)
			if err == nil && uris[s.URI] {
				err = fmt.Errorf("skills: %w: the skill %.200q is listed twice", farcall.ErrProtocol, s.URI)
			}
			if err == nil {
				uris[s.URI] = true
				all = append(all, s)
			} else if faults++; faults <= maxFaults {
				invalid = append(invalid, err)
			}
		}
		switch next := page.NextCursor; {
		case next == "":
			if faults > maxFaults {
				invalid = append(invalid,
					fmt.Errorf("skills: %w: %d more entries are not valid", farcall.ErrProtocol, faults-maxFaults))
			}
			return all, errors.Join(invalid...)
		case seen[next]:
			return nil, fmt.Errorf("skills: %w: the cursor %.40q came twice", farcall.ErrProtocol, next)
		default:
			seen[next], params["cursor"] = true, next
		}
	}
	return nil, fmt.Errorf("skills: %w: the list has more than %d pages", farcall.ErrProtocol,
		maxPages)
}

// Get returns the skill that has its SKILL.md at a URI, as it is now, whether the server lists it
// or not. The error of a server that has no such skill is a *jsonrpc.Error with
// [jsonrpc.InvalidParams].
func Get(ctx context.Context, c *mcp.Client, uri string) (*Skill, error) {
	if err := offered(c); err != nil {
		return nil, err
	}
	var r struct {
		Skill wireSkill `json:"skill"`
	}
	if err := c.Request(ctx, methodGet, getParams{uri}, &r); err != nil {
		return nil, err
	}
	if r.Skill.URI != uri {
		return nil, fmt.Errorf("skills: %w: the server answers with the skill %.200q for %.200q",
			farcall.ErrProtocol, r.Skill.URI, uri)
	}
	return newSkill(c, r.Skill)
}

func offered(c *mcp.Client) error {
	if c.Server().Capabilities.Extensions[extension] == nil {
		return errors.New("skills: the server does not offer skills: it does not declare " + extension)
	}
	return nil
}

// newSkill returns a valid entry as a skill.
func newSkill(c *mcp.Client, w wireSkill) (*Skill, error) {
	fail := func(err error) (*Skill, error) {
		return nil, fmt.Errorf("skills: %w: the entry of %.200q: %w", farcall.ErrProtocol, w.URI, err)
	}
	root, found := strings.CutSuffix(w.URI, "/"+manifest)
	if !found {
		return fail(errors.New("its URI does not end in /" + manifest))
	}
	if !plainPath(root) {
		return fail(errors.New("its URI is no plain path"))
	}
	front, err := newFrontmatter(w.Frontmatter)
	if err == nil {
		err = front.check(path.Base(root))
	}
	if err != nil {
		return fail(err)
	}
	s := &Skill{
		URI: w.URI, Name: front.name, Description: front.description, client: c,
		files: map[string]listed{},
	}
	if s.Frontmatter, err = front.values(); err != nil {
		return fail(err)
	}
	if string(w.Resources) == `"dynamic"` {
		s.Dynamic = true
		return s, nil
	}
	var files []listed
	if err := jsonv2.Unmarshal(w.Resources, &files); err != nil || files == nil {
		return fail(errors.New(`its resources are neither a list of files nor "dynamic"`))
	}
	total := int64(0)
	for _, f := range files {
		if !within(root, f.URI) || f.Size < 0 || f.Size > maxBytes {
			return fail(
				fmt.Errorf("the file %.200q is not within the skill, or its size is not within %d bytes", f.URI,
					maxBytes))
		}
		total += f.Size
		s.files[f.URI] = f
		s.Files = append(s.Files, f.URI)
	}
	if _, self := s.files[s.URI]; !self || len(s.files) < len(files) {
		return fail(fmt.Errorf("its files must have %s and each other file once", manifest))
	}
	if len(files) > maxFiles || total > maxBytes {
		return fail(fmt.Errorf("it has %d files and %d bytes; %d and %d are allowed", len(files), total,
			maxFiles, maxBytes))
	}
	return s, nil
}

// within reports whether a URI is that of a file below the root of a skill.
func within(root, uri string) bool {
	rest, ok := strings.CutPrefix(uri, root+"/")
	return ok && !slices.Contains(strings.Split(rest, "/"), "") && plainPath(rest)
}

// plainPath reports whether a client that stores files by the path of their URI, unescaped, stays
// where it wants to be.
func plainPath(uri string) bool {
	for segment := range strings.SplitSeq(uri, "/") {
		plain, err := url.PathUnescape(segment)
		if err != nil || plain == "." || plain == ".." || strings.ContainsAny(plain, "/\\\x00") ||
			strings.ContainsAny(segment, "?#") {
			return false
		}
	}
	return true
}

// Read reads a file of the skill from the server, and returns it only if it is what the server has
// announced: a file of the skill, of that size and digest, and SKILL.md with that frontmatter.
// Otherwise the error is ErrChanged. The files of a Dynamic skill must be within it, and only the
// frontmatter is compared.
func (s *Skill) Read(ctx context.Context, uri string) ([]byte, error) {
	want, known := s.files[uri]
	if !known && (!s.Dynamic || !within(strings.TrimSuffix(s.URI, "/"+manifest), uri)) {
		return nil, fmt.Errorf("%w: %.200q is no file of the skill %q", ErrChanged, uri, s.URI)
	}
	r, err := s.client.Read(ctx, uri)
	if err != nil {
		return nil, err
	}
	if len(r.Contents) != 1 || r.Contents[0].URI != uri {
		return nil, fmt.Errorf("%w: %q is not answered with one resource of that URI", ErrChanged, uri)
	}
	content := r.Contents[0].Blob
	if content == nil {
		content = []byte(r.Contents[0].Text)
	}
	if got := describe(uri, content); known && got != want {
		return nil, fmt.Errorf("%w: %q has %d bytes and the digest %s; announced are %d and %.80s",
			ErrChanged, uri, got.Size, got.Digest, want.Size, want.Digest)
	}
	if uri != s.URI {
		return content, nil
	}
	front, err := parseFrontmatter(content)
	if err != nil {
		return nil, fmt.Errorf("%w: %q: %w", ErrChanged, uri, err)
	}
	if values, err := front.values(); err != nil || !reflect.DeepEqual(values, s.Frontmatter) {
		return nil, fmt.Errorf("%w: the frontmatter of %q is not the one announced", ErrChanged, uri)
	}
	return content, nil
}
