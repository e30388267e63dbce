package gateway

import (
	"context"
	"errors"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// meant adds the tool or prompt to err that was probably meant by a name that nothing has. It is
// one of those that the caller may use: a hidden one is as one that is not there.
func (e *endpoint) meant(ctx context.Context, kind, name string, err error) error {
	view, _ := e.servers()
	all, failed := view.Whole(ctx, kind)
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if failed != nil || !ok {
		return err
	}
	near := e.nearest(ctx, kind, name, all.Entries())
	if near == "" {
		return err
	}
	return jsonrpc.Errorf(jsonrpc.InvalidParams, "%s; did you mean %s?", wire.Message, near)
}

// nearest returns the shown name that is nearest to one that nothing has, "" if none is near. A
// name without a qualifier is compared with names without theirs.
func (e *endpoint) nearest(ctx context.Context, kind, name string, all []route.Entry) string {
	bare := !strings.Contains(name, "__")
	byName := make(map[string][]int, len(all))
	names := make([]string, 0, len(all))
	for i := range all {
		word := all[i].Shown
		if _, own, qualified := strings.Cut(word, "__"); bare && qualified {
			word = own
		}
		names, byName[word] = append(names, word), append(byName[word], i)
	}
	near := ""
	nearestOf(name, names, func(word string) bool {
		for _, i := range byName[word] {
			if e.shown(ctx, kind, &all[i].Target) {
				near = all[i].Shown
				return true
			}
		}
		return false
	})
	return near
}
