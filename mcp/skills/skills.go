package skills

import (
	"context"
	"encoding/base64"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// The extension and its methods.
const (
	extension       = "io.modelcontextprotocol/skills"
	methodList      = "skills/list"
	methodGet       = "skills/get"
	methodDirectory = "resources/directory/read"
)

// Options adjust Add. The zero value, and nil, mean the defaults.
type Options struct {
	// PageSize bounds the skills, or files of a directory, on one page. Default 100.
	PageSize int
	// CacheTTL is how long a client may use an entry again. Default 0: not at all.
	CacheTTL time.Duration
	// Visible reports whether the caller may use the skill that has its SKILL.md at a URI. It holds
	// for the methods of the extension and for reading; for resources/list, set
	// [mcp.ServerOptions].Visible as well. Default: every caller may use every skill.
	Visible func(ctx context.Context, uri string) bool
}

// Add offers the skills below root, and declares the extension. Each folder with a SKILL.md is a
// skill, at any depth; its path below root is that of its URI: acme/refunds is
// skill://acme/refunds/SKILL.md. The files are read now and kept in memory, so that what is served
// is what was listed. A server has the skills of one root: call Add once.
//
// Add returns an error that says all that is wrong, and offers nothing then. A skill must satisfy
// the specification of Agent Skills (name, description) and the limits of the extension (512 files,
// 16 MiB). Files and folders with names that begin with a dot are left out. A symbolic link is an
// error: it could lead out of root. [os.DirFS] follows links that are made while a file is opened;
// the FS of an [os.Root] does not leave its directory then either. With either of them, a named
// pipe that takes the place of a file while the files are read blocks Add and refresh until it has
// a writer.
//
// refresh reads root again. Clients learn of new and removed files by the changed list of
// resources, and subscribers of a file of its update. After an error what was offered stays as it
// was. It may be called by any number of goroutines at once.
func Add(s *mcp.Server, root fs.FS, o *Options) (refresh func() error, err error) {
	set := &set{server: s, root: root}
	if o != nil {
		set.opts = *o
	}
	if set.opts.PageSize <= 0 {
		set.opts.PageSize = 100
	}
	if err := set.refresh(); err != nil {
		return nil, err
	}
	mux := farcall.NewMux()
	mux.IgnoreUnknown()
	farcall.Handle(mux, methodList, set.list)
	farcall.Handle(mux, methodGet, set.get)
	farcall.Handle(mux, methodDirectory, set.directory)
	for _, method := range []string{methodList, methodGet, methodDirectory} {
		s.Handle(method, mux)
	}
	s.AddExtension(extension, map[string]any{"directoryRead": true})
	return set.refresh, nil
}

// set is what Add has added to a server.
type set struct {
	server *mcp.Server
	root   fs.FS
	opts   Options

	refreshing sync.Mutex
	now        atomic.Pointer[catalog]
}

// refresh reads the files and tells the server what has changed.
func (t *set) refresh() error {
	t.refreshing.Lock()
	defer t.refreshing.Unlock()
	next, err := load(t.root)
	if err != nil {
		return err
	}
	old := t.now.Swap(next)
	if old == nil {
		old = &catalog{}
	}
	for uri := range old.files {
		if next.files[uri] == nil {
			t.server.RemoveResource(uri)
		}
	}
	for _, uri := range next.order {
		f, before := next.files[uri], old.files[uri]
		if before == nil || !f.sameResource(before) {
			t.server.AddResource(f.resource(), t.read)
		}
		if before != nil && f.Digest != before.Digest {
			t.server.ResourceUpdated(uri)
		}
	}
	return nil
}

// read returns a file.
func (t *set) read(ctx context.Context, uri string) ([]mcp.ResourceContents, error) {
	c := t.now.Load()
	f := c.files[uri]
	if f == nil || !t.sees(ctx, c, f.skills) {
		return nil, mcp.ErrNotFound
	}
	if f.text {
		return []mcp.ResourceContents{{MIMEType: f.mime, Text: string(f.content)}}, nil
	}
	return []mcp.ResourceContents{{MIMEType: f.mime, Blob: f.content}}, nil
}

// sees reports whether the caller may use one of the skills.
func (t *set) sees(ctx context.Context, c *catalog, skills []int) bool {
	return t.opts.Visible == nil || slices.ContainsFunc(skills, func(i int) bool {
		return t.opts.Visible(ctx, c.skills[i].URI)
	})
}

// The params and results of the extension's methods.
type (
	listParams struct {
		Cursor string `json:"cursor,omitempty"`
	}
	getParams struct {
		URI string `json:"uri"`
	}
	directoryParams struct {
		URI    string `json:"uri"`
		Cursor string `json:"cursor,omitempty"`
	}
	listResult struct {
		caching
		Skills     []entry `json:"skills"`
		NextCursor string  `json:"nextCursor,omitempty"`
	}
	getResult struct {
		caching
		Skill entry `json:"skill"`
	}
	// The extension does not ask for caching here; the MCP Inspector does.
	directoryResult struct {
		caching
		Resources  []mcp.Resource `json:"resources"`
		NextCursor string         `json:"nextCursor,omitempty"`
	}
	// caching is in results that a client may keep: CacheableResult.
	caching struct {
		TTL        int64  `json:"ttlMs"`
		CacheScope string `json:"cacheScope"`
	}
)

func (t *set) caching() caching {
	return caching{t.opts.CacheTTL.Milliseconds(), spec.CachePrivate}
}

func (t *set) list(ctx context.Context, p listParams) (r listResult, err error) {
	c := t.now.Load()
	r.caching, r.Skills = t.caching(), []entry{}
	r.NextCursor, err = t.page(p.Cursor, len(c.skills), func(i int) string {
		return c.skills[i].URI
	}, func(i int) bool {
		if !t.sees(ctx, c, []int{i}) {
			return false
		}
		r.Skills = append(r.Skills, c.skills[i])
		return true
	})
	return r, err
}

func (t *set) get(ctx context.Context, p getParams) (getResult, error) {
	c := t.now.Load()
	i, found := slices.BinarySearchFunc(c.skills, p.URI, func(e entry, uri string) int {
		return strings.Compare(e.URI, uri)
	})
	if !found || !t.sees(ctx, c, []int{i}) {
		return getResult{}, jsonrpc.Errorf(jsonrpc.InvalidParams, "no skill is served at %.200s", p.URI)
	}
	return getResult{t.caching(), c.skills[i]}, nil
}

func (t *set) directory(ctx context.Context, p directoryParams) (r directoryResult, err error) {
	c := t.now.Load()
	dir := c.directories[p.URI]
	if dir == nil || !t.sees(ctx, c, dir.skills) {
		return r, jsonrpc.Errorf(jsonrpc.InvalidParams, "%.200s is not a directory resource", p.URI)
	}
	r.caching, r.Resources = t.caching(), []mcp.Resource{}
	r.NextCursor, err = t.page(p.Cursor, len(dir.children), func(i int) string {
		return dir.children[i]
	}, func(i int) bool {
		uri := dir.children[i]
		file, sub := c.files[uri], c.directories[uri]
		switch {
		case file != nil && t.sees(ctx, c, file.skills):
			r.Resources = append(r.Resources, file.resource())
		case sub != nil && t.sees(ctx, c, sub.skills):
			r.Resources = append(r.Resources,
				mcp.Resource{URI: uri, Name: sub.name, MIMEType: "inode/directory"})
		default:
			return false
		}
		return true
	})
	return r, err
}

// page adds those of n items, which are in the order of their URIs, that are on the page at a
// cursor, and returns the cursor of the next page. add reports whether it has added one. A cursor
// is the URI that the page before ended with: so it stays valid when the files change.
func (t *set) page(
	cursor string, n int, uri func(int) string, add func(int) bool,
) (next string, err error) {
	after, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || cursor != "" && !strings.HasPrefix(string(after), scheme) {
		return "", jsonrpc.Errorf(jsonrpc.InvalidParams,
			"invalid cursor: use nextCursor from the previous page, or omit it")
	}
	added, last := 0, ""
	for i := range n {
		if uri(i) <= string(after) {
			continue
		}
		if added == t.opts.PageSize {
			return base64.RawURLEncoding.EncodeToString([]byte(last)), nil
		}
		if add(i) {
			added, last = added+1, uri(i)
		}
	}
	return "", nil
}
