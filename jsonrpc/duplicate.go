package jsonrpc

import (
	"hash/maphash"
	"math/bits"
	"strconv"
)

// refuseDuplicates makes each request invalid that has the id of an earlier request of
// the batch: two answers with one id could not be distinguished. The id null
// identifies nothing and may repeat.
func (b *Batch) refuseDuplicates() {
	if len(b.Messages) > 8 {
		b.refuseDuplicatesHashed()
		return
	}
	for i := range b.Messages {
		for j := range i {
			if b.clash(i, j) {
				break
			}
		}
	}
}

// refuseDuplicatesHashed does it in linear time, with an open-addressed set of
// positions, counted from 1, that is at most half full. The seed is fresh, so
// an attacker cannot choose ids that collide.
func (b *Batch) refuseDuplicatesHashed() {
	size := 2 << bits.Len(uint(len(b.Messages)-1))
	if cap(b.ids) < size {
		b.ids = make([]uint32, size)
	}
	b.ids = b.ids[:size]
	clear(b.ids)
	seed := maphash.MakeSeed()
	for i := range b.Messages {
		if b.Messages[i].Kind != Request || b.Messages[i].ID.IsNull() {
			continue
		}
		slot := maphash.Bytes(seed, b.Messages[i].ID.raw) & uint64(size-1)
		for b.ids[slot] != 0 && !b.clash(i, int(b.ids[slot]-1)) {
			slot = (slot + 1) & uint64(size-1)
		}
		if b.Messages[i].Kind == Request {
			b.ids[slot] = uint32(i) + 1
		}
	}
}

// clash refuses message i if it is a request with the id of request j.
func (b *Batch) clash(i, j int) bool {
	m, earlier := &b.Messages[i], &b.Messages[j]
	if m.Kind != Request || earlier.Kind != Request || m.ID.IsNull() || !m.ID.Equal(earlier.ID) {
		return false
	}
	m.Kind, m.Method, m.Params = Invalid, nil, nil
	m.Err = Refusal(InvalidRequest, "element "+strconv.Itoa(i)+" of the batch has the id of element "+strconv.Itoa(j))
	return true
}
