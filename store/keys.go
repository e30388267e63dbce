package store

import (
	"container/heap"
	"time"
)

// keyCost is what a key takes beside its text.
const keyCost = 160

// keys is a map of keys that expire, each with a number. What has expired goes as others come: it
// needs no timer. It is not safe for concurrent use.
type keys struct {
	max, used int // bytes
	index     map[string]*key
	order     keyOrder
}

type key struct {
	text  string
	until time.Time
	n     int64
	place int // in order
}

func newKeys(size int) *keys { return &keys{max: size, index: map[string]*key{}} }

// get returns a key that has not expired, or nil.
func (k *keys) get(text string, now time.Time) *key {
	k.expire(now)
	return k.index[text]
}

// add adds a key that is not there, or returns nil where it finds no room.
func (k *keys) add(text string, until, now time.Time) *key {
	k.expire(now)
	cost := keyCost + len(text)
	if cost > k.max-k.used {
		return nil
	}
	k.used += cost
	e := &key{text: text, until: until}
	k.index[text] = e
	heap.Push(&k.order, e)
	return e
}

func (k *keys) remove(text string) {
	e := k.index[text]
	if e == nil {
		return
	}
	k.used -= keyCost + len(text)
	delete(k.index, text)
	heap.Remove(&k.order, e.place)
}

func (k *keys) expire(now time.Time) {
	for len(k.order) > 0 && !k.order[0].until.After(now) {
		k.remove(k.order[0].text)
	}
}

// keyOrder is a heap: the key that expires first is at its top.
type keyOrder []*key

func (o keyOrder) Len() int           { return len(o) }
func (o keyOrder) Less(i, j int) bool { return o[i].until.Before(o[j].until) }

func (o keyOrder) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].place, o[j].place = i, j
}

func (o *keyOrder) Push(x any) {
	e := x.(*key) //nolint:errcheck // keys pushes nothing else
	e.place = len(*o)
	*o = append(*o, e)
}

func (o *keyOrder) Pop() any {
	last := len(*o) - 1
	e := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	return e
}
