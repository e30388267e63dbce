package route

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"strings"
)

// A position is a place in a merged list: after an item of a source. It names
// both by what they are and by their number, so that it keeps its meaning when
// something is added or removed before it.
type position struct {
	source, item       int    // numbers; the item's is within the source
	sourceSum, itemSum uint64 // of the names
}

const (
	cursorVersion = 1
	cursorCheck   = 8 // bytes of the check sum
	maxCursor     = 64
)

// cursor returns the text of a position. It gives its bearer nothing: what is
// shown from there on is what they may see. The check sum finds what was made up,
// cut or taken from another list.
func (p position) cursor(k kind) string {
	b := make([]byte, 0, maxCursor)
	b = append(b, cursorVersion)
	b = binary.AppendUvarint(b, uint64(p.source))
	b = binary.AppendUvarint(b, uint64(p.item))
	b = binary.BigEndian.AppendUint64(b, p.sourceSum)
	b = binary.BigEndian.AppendUint64(b, p.itemSum)
	sum := cursorSum(k, b)
	return base64.RawURLEncoding.EncodeToString(append(b, sum[:cursorCheck]...))
}

func cursorSum(k kind, b []byte) [sha256.Size]byte {
	return sha256.Sum256(append([]byte("farcall route "+layouts[k].name+" "), b...))
}

// readCursor returns the position of a cursor, or ErrCursor.
func readCursor(k kind, text string) (p position, err error) {
	if len(text) > 2*maxCursor || strings.ContainsAny(text, "\r\n") {
		return p, ErrCursor
	}
	all, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(all) < 1+cursorCheck || all[0] != cursorVersion {
		return p, ErrCursor
	}
	b, check := all[:len(all)-cursorCheck], all[len(all)-cursorCheck:]
	if sum := cursorSum(k, b); string(sum[:cursorCheck]) != string(check) {
		return p, ErrCursor
	}
	b = b[1:]
	source, n := binary.Uvarint(b)
	if n <= 0 || source > 1<<30 {
		return p, ErrCursor
	}
	item, m := binary.Uvarint(b[n:])
	if m <= 0 || item > 1<<30 || len(b) != n+m+16 {
		return p, ErrCursor
	}
	b = b[n+m:]
	return position{
		int(source), int(item), binary.BigEndian.Uint64(b),
		binary.BigEndian.Uint64(b[8:]),
	}, nil
}

func nameSum(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:])
}

// after returns the number of the first item of the merged list that comes after
// a position.
func (m *merged) after(sources []*source, p position) int {
	at := -1
	if p.source < len(sources) && nameSum(sources[p.source].Name) == p.sourceSum {
		at = p.source
	} else {
		for i, s := range sources {
			if nameSum(s.Name) == p.sourceSum {
				at = i
				break
			}
		}
	}
	if at < 0 { // it is gone; the next one has its number now
		return m.start[min(p.source, len(sources))]
	}
	items := m.items[m.start[at]:m.start[at+1]]
	if p.item < len(items) && nameSum(items[p.item].entry.name) == p.itemSum {
		return m.start[at] + p.item + 1
	}
	for i := range items {
		if nameSum(items[i].entry.name) == p.itemSum {
			return m.start[at] + i + 1
		}
	}
	return m.start[at] + min(p.item, len(items))
}

// position returns that of an item of the merged list.
func (m *merged) position(sources []*source, i int) position {
	it := &m.items[i]
	return position{
		it.source, i - m.start[it.source], nameSum(sources[it.source].Name),
		nameSum(it.entry.name),
	}
}
