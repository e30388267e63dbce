package mock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

// maxPages bounds the pages of one list that are asked for.
const maxPages = 1000

// A pager finds the requests for further pages of a list: their cursors are those of the answers
// before. Pages of equal lists are taken in their order.
type pager[T any] map[string][]T

// pageKey stands for a page of a list. cursor is JSON.
func pageKey(m *message, cursor []byte) string {
	list := message{method: m.method, params: without(m.params, "cursor")}
	return list.key() + "\x00" + string(cursor)
}

// first returns the first page of the list to which the request belongs; ok is false when it asks
// for no further page.
func (p pager[T]) first(m *message) (first T, ok bool) {
	cursor := at(m.params, "cursor")
	if len(cursor) == 0 {
		return first, false
	}
	key := pageKey(m, cursor)
	if len(p[key]) == 0 {
		return first, false
	}
	first, p[key] = p[key][0], p[key][1:]
	return first, true
}

// more expects a request for the page that the answer to a request announces.
func (p pager[T]) more(first T, m *message, answer []byte) {
	if cursor := nextCursor(m.method, answer); cursor != nil {
		key := pageKey(m, cursor)
		p[key] = append(p[key], first)
	}
}

// nextCursor is the JSON of the cursor of the next page, or nil.
func nextCursor(method string, answer []byte) []byte {
	cursor := at(answer, "result", "nextCursor")
	if len(cursor) == 0 || !strings.HasSuffix(method, "/list") {
		return nil
	}
	return cursor
}

// merge returns the answer that has what is in all pages: each array of the result is that of all
// of them, and the rest is the last page's. An error takes the place of all.
func merge(pages [][]byte) []byte {
	if len(pages) == 1 {
		return pages[0]
	}
	last := pages[len(pages)-1]
	if len(at(last, "result")) == 0 {
		return last
	}
	arrays := map[string][]byte{}
	for _, page := range pages {
		for name, value := range scan.Members(at(page, "result")) {
			for element := range scan.Elements(value) {
				arrays[string(name)] = append(append(arrays[string(name)], ','), element...)
			}
		}
	}
	merged := []byte(`{"result":{`)
	for name, value := range scan.Members(at(last, "result")) {
		if all := arrays[string(name)]; all != nil {
			value = slices.Concat([]byte("["), all[1:], []byte("]"))
		}
		merged = scan.AppendMember(merged, name, value)
	}
	return append(merged, "}}"...)
}

// without returns an object without a member.
func without(object []byte, name string) []byte {
	rest := []byte{'{'}
	for key, value := range scan.Members(object) {
		if string(key) != name {
			rest = scan.AppendMember(rest, key, value)
		}
	}
	return append(rest, '}')
}

// withPages asks for the pages behind an answer, and returns all of them as one.
func (c *clientConn) withPages(
	ctx context.Context, link Link, s *sent, answer []byte, answers map[string]int,
) ([]byte, error) {
	pages, seen := [][]byte{answer}, map[string]bool{}
	for cursor := nextCursor(s.method, answer); cursor != nil; cursor = nextCursor(s.method, answer) {
		if seen[string(cursor)] || len(pages) == maxPages {
			return nil, errors.New("the server gives the cursor of a page again, or has too many pages")
		}
		seen[string(cursor)] = true
		id := fmt.Appendf(nil, `"page %d of %d"`, len(pages)+1, s.seq)
		params := without(at(s.frame, "params"), "cursor")
		params = append(scan.AppendMember(params[:len(params)-1], []byte("cursor"), cursor), '}')
		frame := without(without(s.frame, "params"), "id")
		frame = scan.AppendMember(frame[:len(frame)-1], []byte("params"), params)
		frame = scan.AppendMember(frame, []byte("id"), id)
		if err := link.Send(ctx, append(frame, '}')); err != nil {
			return nil, err
		}
		var err error
		if answer, err = c.await(ctx, link, id, answers); err != nil {
			return nil, err
		}
		pages = append(pages, answer)
	}
	return merge(pages), nil
}

// joined returns the exchanges of a script with the pages of each list as one.
func (s *Script) joined() *Script {
	var all []*exchange
	for _, key := range s.order {
		all = append(all, s.calls[key]...)
	}
	slices.SortStableFunc(all, func(a, b *exchange) int { return int(int64(a.seq) - int64(b.seq)) })
	pages, lists := map[*exchange][][]byte{}, pager[*exchange]{}
	out := newScript()
	for _, x := range all {
		m := message{method: x.method, params: x.params}
		first, further := lists.first(&m)
		if !further {
			first = new(*x)
			out.add(first)
		}
		pages[first] = append(pages[first], x.response)
		lists.more(first, &m, x.response)
	}
	for first, all := range pages {
		first.response = merge(all)
	}
	return out
}
