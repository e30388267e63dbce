package stream

import (
	"bytes"
	"testing"
)

// BenchmarkRead reads 100 small messages and one large one.
func BenchmarkRead(b *testing.B) {
	in := bytes.Repeat([]byte(`{"jsonrpc":"2.0","id":1,"method":"math/add","params":[2,3]}`+"\n"), 100)
	in = append(in, `{"jsonrpc":"2.0","id":1,"method":"echo","params":["`...)
	in = append(append(in, bytes.Repeat([]byte("x"), 20_000)...), "\"]}\n"...)
	for name, framing := range map[string]Framing{"lines": NDJSON, "raw": Raw, "detect": Detect} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(in)))
			b.ReportAllocs()
			for b.Loop() {
				t := New(half{bytes.NewReader(in), nil}, framing, nil)
				for {
					if _, err := t.Read(); err != nil {
						break
					}
				}
			}
		})
	}
}
