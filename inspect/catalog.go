package inspect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A catalog is one list of what a server offers.
type catalog struct {
	items []item
	index map[string]jsonrpc.Raw
	doc   jsonrpc.Raw // the document of rpc.discover
	note  string      // what is wrong with the list
}

type item struct {
	name string
	raw  jsonrpc.Raw
}

// itemView is an item as it is listed.
type itemView struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"`
	Description string `json:"description,omitzero"`
	// r: read-only, d: destructive, p: has a page, s: streams
	Hints string `json:"hints,omitzero"`
	Size  int    `json:"size"`
}

const (
	maxItems     = 200_000
	maxListBytes = 256 << 20
	maxListPages = 10_000
	maxBatch     = 2000
)

// lists has the method and the member of each list of MCP, and the member that names its items.
var lists = map[string][3]string{
	kindTool:     {spec.MethodToolsList, "tools", "name"},
	kindPrompt:   {spec.MethodPromptsList, "prompts", "name"},
	kindResource: {spec.MethodResourcesList, "resources", "uri"},
	kindTemplate: {spec.MethodResourcesTemplatesList, "resourceTemplates", "uriTemplate"},
}

// forget has the list of a kind fetched again.
func (x *slot) forget(kind string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.lists, kind)
	if kind == kindResource {
		delete(x.lists, kindTemplate)
	}
}

// catalog returns a list, which it fetches when it is not known or fresh is wanted.
func (x *slot) catalog(ctx context.Context, kind string, fresh bool) (*catalog, error) {
	x.mu.Lock()
	known := x.lists[kind]
	x.mu.Unlock()
	client, caller, _ := x.speaks()
	if known != nil && !fresh {
		return known, nil
	}
	if client == nil && caller == nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "the server is not connected")
	}
	c := &catalog{index: map[string]jsonrpc.Raw{}}
	var err error
	if client == nil {
		err = c.methods(ctx, caller)
	} else if shape, ok := lists[kind]; ok {
		err = c.fetch(ctx, client, shape)
	}
	var answered *jsonrpc.Error
	if errors.As(err, &answered) && answered.Code == jsonrpc.MethodNotFound {
		err = nil // it has no such list
	}
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.lists[kind] = c
	return c, nil
}

// fetch gets all pages of a list of MCP.
func (c *catalog) fetch(ctx context.Context, client *mcp.Client, shape [3]string) error {
	size := 0
	var params any
	for range maxListPages {
		var page jsonrpc.Raw
		if err := client.Request(ctx, shape[0], params, &page); err != nil {
			return err
		}
		if size += len(page); size > maxListBytes {
			c.beginning(maxListBytes>>20, "MiB")
			return nil
		}
		for v := range scan.Elements(scan.Member(page, shape[1])) {
			if c.add(v, shape[2]); len(c.items) >= maxItems {
				break
			}
		}
		if len(c.items) >= maxItems {
			c.beginning(maxItems, "items")
			return nil
		}
		next := scan.StringMember(page, "nextCursor")
		if next == "" {
			return nil
		}
		params = &spec.PaginatedRequestParams{Cursor: next}
	}
	c.beginning(maxListPages, "pages")
	return nil
}

// beginning notes that the list has more than it should.
func (c *catalog) beginning(most int, unit string) {
	c.note = fmt.Sprintf("The list has more than %d %s; this is its beginning.", most, unit)
}

func (c *catalog) add(raw []byte, key string) {
	name := scan.StringMember(raw, key)
	if _, twice := c.index[name]; twice {
		c.note = fmt.Sprintf("%q is listed more than once.", shorten(name, 100))
		return
	}
	c.index[name] = bytes.Clone(raw)
	c.items = append(c.items, item{name, c.index[name]})
}

// methods gets what rpc.discover tells of a JSON-RPC server.
func (c *catalog) methods(ctx context.Context, caller farcall.Caller) error {
	if err := caller.Call(ctx, discover, nil, &c.doc); err != nil {
		return err
	}
	for v := range scan.Elements(scan.Member(c.doc, "methods")) {
		if c.add(v, "name"); len(c.items) >= maxItems {
			break
		}
	}
	return nil
}

func (t *item) view() itemView {
	text := func(member string) string { return scan.StringMember(t.raw, member) }
	hints := scan.Member(t.raw, "annotations")
	title := cmp.Or(text("title"), scan.StringMember(hints, "title"))
	if title == "" && text("uri")+text("uriTemplate") != "" {
		title = text("name")
	}
	about, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(text("description"), text("summary"))), "\n")
	v := itemView{
		Name: t.name, Title: shorten(title, 200), Description: shorten(about, 300), Size: len(t.raw),
	}
	is := func(object []byte, member string) bool {
		return string(scan.Member(object, member)) == "true"
	}
	switch {
	case is(hints, "readOnlyHint"):
		v.Hints += "r"
	case is(hints, "destructiveHint"):
		v.Hints += "d"
	}
	if scan.Member(scan.Member(t.raw, "_meta"), "ui") != nil {
		v.Hints += "p"
	}
	if is(t.raw, "x-farcall-streaming") {
		v.Hints += "s"
	}
	return v
}

type validateParams struct {
	Schema jsonrpc.Raw `json:"schema"`
	Value  string      `json:"value"` // JSON as text
}

// validate checks a value by a schema.
func (i *Inspector) validate(_ context.Context, p validateParams) ([]string, error) {
	var value jsonrpc.Raw
	if err := jsonv2.Unmarshal([]byte(p.Value), &value); err != nil {
		//nolint:nilerr // that is what was asked for
		return []string{"not JSON: " + err.Error()}, nil
	}
	bad := validate.CompileForeign(p.Schema, validate.Limits{}).Validate(value)
	return append([]string{}, problems(bad)...), nil
}
