package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// A catalog is one list of what a server offers.
type catalog struct {
	items []item
	index map[string]int
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
	known, client, caller := x.lists[kind], x.mcp, x.rpc
	x.mu.Unlock()
	if known != nil && !fresh {
		return known, nil
	}
	if client == nil && caller == nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "the server is not connected")
	}
	c := &catalog{index: map[string]int{}}
	var err error
	if client == nil {
		err = x.methods(ctx, c)
	} else if shape, ok := lists[kind]; ok {
		err = x.fetch(ctx, c, shape)
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
	if x.lists == nil {
		x.lists = map[string]*catalog{}
	}
	x.lists[kind] = c
	return c, nil
}

// fetch gets all pages of a list of MCP.
func (x *slot) fetch(ctx context.Context, c *catalog, shape [3]string) error {
	x.mu.Lock()
	client := x.mcp
	x.mu.Unlock()
	if client == nil {
		return errors.New("the server is not connected")
	}
	size := 0
	var params any
	for range maxListPages {
		var page jsonrpc.Raw
		if err := client.Request(ctx, shape[0], params, &page); err != nil {
			return err
		}
		if size += len(page); size > maxListBytes {
			c.note = fmt.Sprintf(
				"The list has more than %d MiB; this is its beginning.",
				maxListBytes>>20,
			)
			return nil
		}
		scan.Array(scan.Member(page, shape[1]), func(v []byte) bool {
			c.add(v, shape[2])
			return len(c.items) < maxItems
		})
		if len(c.items) >= maxItems {
			c.note = fmt.Sprintf(
				"The list has more than %d items; this is its beginning.",
				maxItems,
			)
			return nil
		}
		next := text(page, "nextCursor")
		if next == "" {
			return nil
		}
		params = &spec.PaginatedRequestParams{Cursor: next}
	}
	c.note = fmt.Sprintf("The list has more than %d pages; this is its beginning.", maxListPages)
	return nil
}

func (c *catalog) add(raw []byte, key string) {
	name := text(raw, key)
	if _, twice := c.index[name]; twice {
		c.note = fmt.Sprintf("%q is listed more than once.", shorten(name, 100))
		return
	}
	c.index[name] = len(c.items)
	c.items = append(c.items, item{name, append(jsonrpc.Raw(nil), raw...)})
}

// methods gets what rpc.discover tells of a JSON-RPC server.
func (x *slot) methods(ctx context.Context, c *catalog) error {
	x.mu.Lock()
	caller := x.rpc
	x.mu.Unlock()
	if caller == nil {
		return errors.New("the server is not connected")
	}
	if err := caller.Call(ctx, discover, nil, &c.doc); err != nil {
		return err
	}
	scan.Array(scan.Member(c.doc, "methods"), func(v []byte) bool {
		c.add(v, "name")
		return len(c.items) < maxItems
	})
	return nil
}

func (t *item) view() itemView {
	v := itemView{
		Name:        t.name,
		Title:       shorten(text(t.raw, "title"), 200),
		Description: text(t.raw, "description"),
		Size:        len(t.raw),
	}
	if v.Description == "" {
		v.Description = text(t.raw, "summary")
	}
	v.Description = shorten(firstLine(v.Description), 300)
	hints := scan.Member(t.raw, "annotations")
	if v.Title == "" {
		v.Title = shorten(text(hints, "title"), 200)
	}
	if v.Title == "" && text(t.raw, "uri")+text(t.raw, "uriTemplate") != "" {
		v.Title = shorten(text(t.raw, "name"), 200)
	}
	is := func(object []byte, member string) bool {
		return string(scan.Member(object,
			member)) == "true"
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

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// text returns the string that a member of an object is, "" when it is not a string.
func text(object []byte, member string) string {
	if len(object) == 0 || object[0] != '{' {
		return ""
	}
	v := scan.Member(object, member)
	if len(v) == 0 || v[0] != '"' {
		return ""
	}
	return string(scan.Unquote(v))
}

// schemaOf returns a schema of an item that was listed, nil when there is none.
func (x *slot) schemaOf(kind, name, member string) jsonrpc.Raw {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.lists[kind]
	if c == nil {
		return nil
	}
	at, ok := c.index[name]
	if !ok {
		return nil
	}
	return scan.Member(c.items[at].raw, member)
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
	return append(
		[]string{},
		problems(validate.CompileForeign(p.Schema, validate.Limits{}).Validate(value))...), nil
}
