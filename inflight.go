package farcall

import (
	"slices"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// fewServed is how many requests in flight are searched one by one. Most
// connections never have more, and an idle one then holds no map.
const fewServed = 8

// inflight is the requests of the other end that are being handled, by id.
type inflight struct {
	few  []*serving
	many map[string]*serving
}

func (f *inflight) len() int { return len(f.few) + len(f.many) }

// find returns what is being handled under an id, compared byte by byte. The id
// null finds nothing: any number of requests may have it.
func (f *inflight) find(id jsonrpc.ID) *serving {
	if id.IsNull() {
		return nil
	}
	for _, v := range f.few {
		if v.req.ID.Equal(id) {
			return v
		}
	}
	return f.many[string(id.Raw())]
}

// add reports false when the id is in use.
func (f *inflight) add(v *serving) bool {
	if f.find(v.req.ID) != nil {
		return false
	}
	if len(f.few) < fewServed || v.req.ID.IsNull() {
		f.few = append(f.few, v)
		return true
	}
	if f.many == nil {
		f.many = map[string]*serving{}
	}
	f.many[string(v.req.ID.Raw())] = v
	return true
}

func (f *inflight) remove(v *serving) {
	i := slices.Index(f.few, v)
	if i < 0 {
		delete(f.many, string(v.req.ID.Raw()))
		return
	}
	last := len(f.few) - 1
	f.few[i], f.few[last] = f.few[last], nil
	f.few = f.few[:last]
}

// all returns every request.
func (f *inflight) all() []*serving {
	all := slices.Clone(f.few)
	for _, v := range f.many {
		all = append(all, v)
	}
	return all
}
