package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// mcpList is a list, of all its pages.
type mcpList struct {
	key     string        // the member of a page that has the elements
	items   []jsonrpc.Raw // as they came
	pages   int
	last    jsonrpc.Raw // page; nil: there is none
	missing []missingServer
}

// missingServer says what a gateway's list lacks: its member farcall.dev/missing.
type missingServer struct {
	Upstream string `json:"upstream"`
	State    string `json:"state"`
	Reason   string `json:"reason"` // "": the gateway does not tell
}

const maxPages = 10_000

// all gets all pages of a list.
func (s *mcpSession) all(ctx context.Context, method, key string) (*mcpList, error) {
	l := &mcpList{key: key}
	var params any
	for range maxPages {
		var page jsonrpc.Raw
		if err := s.Request(ctx, method, params, &page); err != nil {
			return nil, err
		}
		next := l.add(page)
		if next == "" {
			return l, nil
		}
		params = &spec.PaginatedRequestParams{Cursor: next}
	}
	return nil, fmt.Errorf("the list has more than %d pages", maxPages)
}

// add adds a page and returns the cursor of the next.
func (l *mcpList) add(page jsonrpc.Raw) (next string) {
	l.last = page
	l.pages++
	l.items = append(l.items, elements(member(page, l.key))...)
	for _, raw := range elements(member(member(page, "_meta"), "farcall.dev/missing")) {
		var one missingServer
		if jsonv2.Unmarshal(raw, &one) == nil && one.Upstream != "" && !slices.Contains(l.missing, one) {
			l.missing = append(l.missing, one)
		}
	}
	next, _ = unquote(member(page, "nextCursor"))
	return next
}

// document returns the list as it came: its page, or the last one with the elements of all.
func (l *mcpList) document() jsonrpc.Raw {
	if l.pages == 1 {
		return l.last
	}
	all := jsonrpc.Raw{'['}
	for i := range l.items {
		if i > 0 {
			all = append(all, ',')
		}
		all = append(all, l.items[i]...)
	}
	out := append(append(append(jsonrpc.AppendString(jsonrpc.Raw{'{'}, l.key), ':'), all...), ']')
	for name, value := range members(l.last) {
		if name != l.key && name != "nextCursor" {
			out = append(append(jsonrpc.AppendString(append(out, ','), name), ':'), value...)
		}
	}
	return append(out, '}')
}

// sayMissing says on standard error which servers a list lacks, and why.
func (m *mcpRemote) sayMissing(missing []missingServer) {
	for _, one := range missing {
		what := map[string]string{
			"stale":   "what %s offers may have changed since",
			"partial": "the list has not all that %s offers",
		}[one.State]
		if what == "" {
			what = "the list lacks what %s offers"
		}
		text := fmt.Sprintf(what, tame(one.Upstream))
		if one.Reason != "" {
			text += ": " + firstLine(one.Reason)
		}
		m.screen.printf("farcall: warning: %s", text)
	}
}
