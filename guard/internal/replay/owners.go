package replay

// owners count nonces by owner. Owners without nonces are forgotten.
type owners struct {
	index   map[uint64]uint32 // by the hash of an owner
	counts  []count           // by index; the first is not used
	free    []uint32          // indexes
	counted uint32            // the second in which all were counted again
}

type count struct {
	tag uint64
	n   uint32
}

func newOwners() owners { return owners{index: map[uint64]uint32{}, counts: make([]count, 1)} }

// take counts one more of an owner.
func (o *owners) take(tag uint64) uint32 {
	i := o.index[tag]
	if i == 0 {
		if last := len(o.free) - 1; last >= 0 {
			i, o.free = o.free[last], o.free[:last]
		} else {
			i = uint32(len(o.counts))
			o.counts = append(o.counts, count{})
		}
		o.index[tag] = i
		o.counts[i].tag = tag
	}
	o.counts[i].n++
	return i
}

// give counts one less. 0 is one that is not counted.
func (o *owners) give(i uint32) {
	if i == 0 {
		return
	}
	c := &o.counts[i]
	if c.n--; c.n == 0 {
		delete(o.index, c.tag)
		o.free = append(o.free, i)
	}
}

// of returns how many are counted of an owner.
func (o *owners) of(tag uint64) int { return int(o.counts[o.index[tag]].n) }
