package wsrpc

import "testing"

// Only what Read returns without waiting counts: no ping, and no beginning of a message.
func TestWhole(t *testing.T) {
	const ping, text = "\x89\x80mask", "\x81\x82mask{}"
	for in, want := range map[string]bool{
		"": false, "\x81": false, ping: false, ping + ping + "\x89": false, "\x8a\x82maskab": false,
		text: true, ping + text: true, text[:7]: false, text[:5]: false,
		"\x01\x81mask{": false, "\x01\x81mask{" + ping: false, "\x01\x81mask{\x80\x81mask}": true,
		"\x88\x80mask": true, "\x81\xfe\x00\x7e": false,
		"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xffmask{": false, "\x83\x80mask": true,
	} {
		if got := whole([]byte(in)); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}
