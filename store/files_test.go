package store

import (
	"bytes"
	"testing"
	"time"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte(magic))
	f.Add(encode(&Record{Owner: "o", Group: "g", ID: "id", Version: 3, Expires: time.Unix(1, 2), Value: []byte("value")}))
	lengths := encode(&Record{})
	copy(lengths[headerSize-4:], "\xff\xff\xff\xff")
	f.Add(lengths)
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) >= headerSize { // nothing is learnt from wrong checksums
			sum := checksum(b)
			b = bytes.Clone(b)
			b[4], b[5], b[6], b[7] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
		}
		r, err := decode(b)
		if err != nil {
			return
		}
		if again := encode(r); !bytes.Equal(again, b) {
			t.Errorf("%x is read and written as %x", b, again)
		}
	})
}
