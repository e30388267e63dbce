package skills

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

const pdf = "---\nname: pdf\ndescription: Fills PDF forms\nmetadata: {version: \"2.1\"}\n---\n" +
	"# PDF\nSee [the forms](references/FORMS.md).\n"

func skillOf(name string) *fstest.MapFile {
	return &fstest.MapFile{
		Data: []byte("---\nname: " + name + "\ndescription: does " + name + "\n---\n"),
	}
}

// tree has a skill with files of all kinds, one in a folder with another one inside it, and files
// that are no skill.
func tree() fstest.MapFS {
	return fstest.MapFS{
		"pdf/SKILL.md":                    {Data: []byte(pdf)},
		"pdf/references/FORMS.md":         {Data: []byte("Forms\n")},
		"pdf/assets/a b.bin":              {Data: []byte{0, 1, 0xff}},
		"pdf/.git/config":                 {Data: []byte("secret")},
		"pdf/.env":                        {Data: []byte("secret")},
		"acme/refunds/SKILL.md":           skillOf("refunds"),
		"acme/refunds/nested/eu/SKILL.md": skillOf("eu"),
		"README.md":                       {Data: []byte("not of a skill")},
	}
}

func serve(t *testing.T, s *mcp.Server, o *mcp.ClientOptions) *mcp.Client {
	t.Helper()
	mine, theirs := farcall.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.Serve(t.Context(), theirs) }()
	c, err := mcp.Connect(t.Context(), mine, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); <-done })
	return c
}

func offer(t *testing.T, root fs.FS, o *Options) (s *mcp.Server, refresh func() error) {
	t.Helper()
	s = mcp.NewServer("docs", "1.0.0", nil)
	refresh, err := Add(s, root, o)
	if err != nil {
		t.Fatal(err)
	}
	return s, refresh
}

// What is on the wire is what the specification has (ext-skills, specification/stable: Skill
// Entries, Reading Directories).
func TestWire(t *testing.T) {
	s, _ := offer(t, tree(), &Options{CacheTTL: 5 * time.Minute})
	c := serve(t, s, nil)
	sum := func(uri, text string) listed { return describe(uri, []byte(text)) }
	for _, test := range []struct {
		method string
		params any
		want   any
	}{
		{methodGet, getParams{"skill://pdf/SKILL.md"}, map[string]any{
			"skill": map[string]any{
				"uri": "skill://pdf/SKILL.md",
				"frontmatter": map[string]any{
					"name": "pdf", "description": "Fills PDF forms",
					"metadata": map[string]any{"version": "2.1"},
				},
				"resources": []listed{
					sum("skill://pdf/SKILL.md", pdf), sum("skill://pdf/assets/a%20b.bin", "\x00\x01\xff"),
					sum("skill://pdf/references/FORMS.md", "Forms\n"),
				},
			},
		}},
		{methodDirectory, getParams{"skill://pdf"}, map[string]any{"resources": []any{
			map[string]any{
				"uri": "skill://pdf/SKILL.md", "name": "pdf", "description": "Fills PDF forms",
				"mimeType": "text/markdown", "size": len(pdf),
			},
			map[string]any{"uri": "skill://pdf/assets", "name": "assets", "mimeType": "inode/directory"},
			map[string]any{
				"uri": "skill://pdf/references", "name": "references",
				"mimeType": "inode/directory",
			},
		}}},
		{methodDirectory, getParams{"skill://pdf/assets"}, map[string]any{"resources": []any{
			map[string]any{
				"uri": "skill://pdf/assets/a%20b.bin", "name": "a b.bin",
				"mimeType": "application/octet-stream", "size": 3,
			},
		}}},
		{methodDirectory, getParams{"skill://acme"}, map[string]any{"resources": []any{
			map[string]any{"uri": "skill://acme/refunds", "name": "refunds", "mimeType": "inode/directory"},
		}}},
	} {
		var got map[string]any
		if err := c.Request(t.Context(), test.method, test.params, &got); err != nil {
			t.Fatal(err)
		}
		if got["resultType"] != spec.ResultComplete {
			t.Errorf("%s: the result is of the type %v", test.method, got["resultType"])
		}
		if got["ttlMs"] != 300_000.0 || got["cacheScope"] != "private" {
			t.Errorf("%s: kept for %v, %v", test.method, got["ttlMs"], got["cacheScope"])
		}
		delete(got, "ttlMs")
		delete(got, "cacheScope")
		delete(got, "resultType")
		delete(got, "_meta")
		raw, err := json.Marshal(test.want)
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := json.Unmarshal(raw, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s %v:\n%v\nwant\n%v", test.method, test.params, got, want)
		}
	}
	// A nested skill is a skill, and its files are files of the skill around it.
	var all listResult
	if err := c.Request(t.Context(), methodList, nil, &all); err != nil {
		t.Fatal(err)
	}
	var uris []string
	for _, e := range all.Skills {
		uris = append(uris, e.URI)
	}
	if want := []string{
		"skill://acme/refunds/SKILL.md", "skill://acme/refunds/nested/eu/SKILL.md",
		"skill://pdf/SKILL.md",
	}; !slices.Equal(uris, want) {
		t.Errorf("%q, want %q", uris, want)
	}
	if files := all.Skills[0].Resources; len(files) != 2 || files[1].URI != uris[1] {
		t.Errorf("the files of the outer skill are %v", files)
	}
	if got, ok := c.Server().Capabilities.Extensions[extension].(map[string]any); !ok ||
		got["directoryRead"] != true {
		t.Errorf("declared are %v", c.Server().Capabilities.Extensions)
	}
}

// A client of a revision without extensions sees the files as resources.
func TestLegacy(t *testing.T) {
	s, _ := offer(t, tree(), nil)
	c := serve(t, s, &mcp.ClientOptions{Era: "legacy"})
	if c.Server().Capabilities.Extensions != nil {
		t.Errorf("declared are %v", c.Server().Capabilities.Extensions)
	}
	all, err := c.Resources(t.Context())
	if err != nil || len(all) != 5 {
		t.Fatalf("%d resources, %v", len(all), err)
	}
	r, err := c.Read(t.Context(), "skill://pdf/assets/a%20b.bin")
	if err != nil || len(r.Contents) != 1 || string(r.Contents[0].Blob) != "\x00\x01\xff" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := List(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "does not offer skills") {
		t.Errorf("List: %v", err)
	}
}

// Whatever the size of the pages, they have everything once, and in the same order.
func TestPages(t *testing.T) {
	root := fstest.MapFS{}
	for _, c := range "abcdefg" {
		root["x/"+string(c)+"/SKILL.md"] = skillOf(string(c))
	}
	for size := 1; size <= 8; size++ {
		s, refresh := offer(t, root, &Options{PageSize: size})
		c := serve(t, s, nil)
		all, err := List(t.Context(), c)
		if err != nil || len(all) != 7 || !slices.IsSortedFunc(all, func(a, b *Skill) int {
			return strings.Compare(a.URI, b.URI)
		}) {
			t.Errorf("pages of %d: %d skills, %v", size, len(all), err)
		}
		var children []string
		for p := (directoryParams{URI: "skill://x"}); ; {
			var r directoryResult
			if err := c.Request(t.Context(), methodDirectory, p, &r); err != nil || len(r.Resources) > size {
				t.Fatalf("%v, %v", r, err)
			}
			for _, child := range r.Resources {
				children = append(children, child.Name)
			}
			if p.Cursor = r.NextCursor; p.Cursor == "" {
				break
			}
		}
		if strings.Join(children, "") != "abcdefg" {
			t.Errorf("pages of %d: the directory has %q", size, children)
		}
		if size > 6 {
			continue
		}
		// A cursor stays valid when the files change.
		var first, second listResult
		if err := c.Request(t.Context(), methodList, nil, &first); err != nil {
			t.Fatal(err)
		}
		without := maps.Clone(root)
		delete(without, strings.TrimPrefix(first.Skills[size-1].URI, scheme))
		clear(root)
		maps.Copy(root, without)
		if err := refresh(); err != nil {
			t.Fatal(err)
		}
		if err := c.Request(t.Context(), methodList, listParams{first.NextCursor}, &second); err != nil ||
			second.Skills[0].URI != all[size].URI {
			t.Errorf("pages of %d: after a change the next begins with %s, %v", size,
				second.Skills[0].URI, err)
		}
		root["x/"+all[size-1].Name+"/SKILL.md"] = skillOf(all[size-1].Name)
	}
}

func TestInvalidParams(t *testing.T) {
	s, _ := offer(t, tree(), nil)
	c := serve(t, s, nil)
	for _, test := range []struct {
		method string
		params any
	}{
		{methodGet, getParams{"skill://pdf"}},
		{methodGet, getParams{"skill://pdf/references/FORMS.md"}},
		{methodGet, getParams{"skill://../SKILL.md"}},
		{methodGet, getParams{"file:///etc/passwd"}},
		{methodGet, nil},
		{methodDirectory, getParams{"skill://"}},
		{methodDirectory, getParams{"skill://pdf/"}},
		{methodDirectory, getParams{"skill://pdf/SKILL.md"}},
		{methodDirectory, getParams{"skill://pdf/.git"}},
		{methodDirectory, getParams{"skill://pdf/../acme"}},
		{methodList, listParams{"x"}},
		{methodList, listParams{"!"}},
		{spec.MethodResourcesRead, getParams{"skill://pdf/.env"}},
		{spec.MethodResourcesRead, getParams{"skill://pdf/../README.md"}},
		{spec.MethodResourcesRead, getParams{"skill://README.md"}},
	} {
		var wire *jsonrpc.Error
		if err := c.Request(t.Context(), test.method, test.params, nil); !errors.As(err, &wire) ||
			wire.Code != jsonrpc.InvalidParams {
			t.Errorf("%s %v: %v", test.method, test.params, err)
		}
	}
}

// What a caller may not see is in no list and no directory, and cannot be read.
func TestVisible(t *testing.T) {
	s, _ := offer(t, tree(), &Options{Visible: func(_ context.Context, uri string) bool {
		return uri != "skill://pdf/SKILL.md"
	}})
	c := serve(t, s, nil)
	all, err := List(t.Context(), c)
	if err != nil || len(all) != 2 || all[0].Name != "refunds" || all[1].Name != "eu" {
		t.Errorf("%v, %v", all, err)
	}
	for method, uri := range map[string]string{
		methodGet: "skill://pdf/SKILL.md", methodDirectory: "skill://pdf",
		spec.MethodResourcesRead: "skill://pdf/references/FORMS.md",
	} {
		if err := c.Request(t.Context(), method, getParams{uri}, nil); err == nil {
			t.Errorf("%s %s is answered", method, uri)
		}
	}
	var r directoryResult
	if err := c.Request(t.Context(), methodDirectory, getParams{"skill://acme"}, &r); err != nil ||
		len(r.Resources) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// After Refresh clients see what is there now, and those who subscribed to a file are notified.
// After an error everything is as it was.
func TestRefresh(t *testing.T) {
	root := tree()
	s, refresh := offer(t, root, nil)
	updated, changed, listening := make(chan string, 64), make(chan string, 64), make(chan struct{})
	c := serve(t, s, &mcp.ClientOptions{
		OnResourceUpdated: func(uri string) { updated <- uri },
		OnListChanged:     func(kind string) { changed <- kind },
		OnListening:       func(spec.SubscriptionFilter) { close(listening) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- c.Listen(ctx, spec.SubscriptionFilter{
			ResourcesListChanged:  true,
			ResourceSubscriptions: []string{"skill://pdf/SKILL.md", "skill://pdf/references/FORMS.md"},
		})
	}()
	defer func() { cancel(); <-ended }()
	<-listening
	held, err := Get(t.Context(), c, "skill://pdf/SKILL.md")
	if err != nil {
		t.Fatal(err)
	}
	// of the same length
	root["pdf/SKILL.md"] = &fstest.MapFile{Data: []byte(strings.Replace(pdf, "forms", "Forms", 1))}
	if err := refresh(); err != nil {
		t.Fatal(err)
	}
	if got := <-updated; got != held.URI {
		t.Errorf("%s is updated", got)
	}
	if _, err := held.Read(t.Context(), held.URI); !errors.Is(err, ErrChanged) {
		t.Errorf("the file is used: %v", err)
	}
	delete(root, "acme/refunds/nested/eu/SKILL.md")
	root["new/SKILL.md"] = skillOf("new")
	if err := refresh(); err != nil {
		t.Fatal(err)
	}
	<-changed
	all, err := List(t.Context(), c)
	if err != nil || len(all) != 3 || all[1].Name != "new" || len(all[0].Files) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := c.Read(t.Context(), "skill://acme/refunds/nested/eu/SKILL.md"); err == nil {
		t.Error("a file that was removed can be read")
	}
	root["new/SKILL.md"] = skillOf("old")
	if err := refresh(); err == nil || !strings.Contains(err.Error(), `"new/SKILL.md"`) {
		t.Errorf("refresh: %v", err)
	}
	if again, err := Get(t.Context(), c, "skill://new/SKILL.md"); err != nil || again.Name != "new" {
		t.Errorf("%v, %v", again, err)
	}
}
