package port

import "testing"

func TestClassify(t *testing.T) {
	tests := map[string]kind{
		"":                             undecided,
		"\x16":                         undecided,
		"\x16\x03\x01":                 speaksTLS,
		"\x16\x02":                     unknown,
		"GET / HTTP/1.1\r\n":           speaksHTTP,
		"GET /":                        speaksHTTP,
		"GE":                           undecided,
		"GET":                          undecided,
		"GETX":                         speaksLines,
		"get / HTTP/1.1":               speaksLines,
		"P":                            undecided,
		"POST ":                        speaksHTTP,
		"PUT ":                         speaksHTTP,
		"PATCH ":                       speaksHTTP,
		"OPTIONS ":                     speaksHTTP,
		"CONNECT ":                     speaksHTTP,
		"PRI * HTTP/2.0\r\n\r\nSM":     speaksHTTP,
		"PRI * X":                      speaksLines,
		"CON":                          undecided,
		"CONN":                         undecided,
		"CONT":                         undecided,
		"CONTENT-LENGTH: 2":            speaksHeader,
		"Content-Length: 2":            speaksHeader,
		"content-type: x":              speaksHeader,
		"Co":                           undecided,
		"Cookie: x":                    speaksLines,
		"{":                            speaksLines,
		"[1]":                          speaksLines,
		" {}":                          speaksLines,
		"\r\n{}":                       speaksLines,
		`"x"`:                          speaksLines,
		"7":                            speaksLines,
		"true":                         speaksLines,
		"\xef\xbb\xbf{}":               speaksLines,
		"\xef\xbb":                     speaksLines,
		"hello\n":                      speaksLines,
		"SSH-2.0-OpenSSH_9.6\r\n":      speaksLines,
		"é":                            speaksLines,
		"\x7fELF":                      unknown,
		"\x00\x00":                     unknown,
		"EHLO example.com\r\n":         speaksLines,
		"*1\r\n$4\r\nPING\r\n":         speaksLines,
		"\x80\x2e\x01\x03\x01\x00\x15": unknown,
	}
	for in, want := range tests {
		if got := classify([]byte(in)); got != want {
			t.Errorf("%q: got %d, want %d", in, got, want)
		}
	}
}

// FuzzClassify: the verdict comes within sniffSize bytes, and more bytes do not
// change it.
func FuzzClassify(f *testing.F) {
	f.Add([]byte("CONTENT-LENGTH: 2\r\n\r\n{}"))
	f.Add([]byte("CONNECT x HTTP/1.1"))
	f.Fuzz(func(t *testing.T, in []byte) {
		verdict := undecided
		for n := range in {
			k := classify(in[:n+1])
			if verdict != undecided && k != verdict {
				t.Fatalf("%q: %d after %d bytes, %d before", in, k, n+1, verdict)
			}
			if verdict = k; k == undecided && n+1 >= sniffSize {
				t.Fatalf("%q: undecided after %d bytes", in, n+1)
			}
		}
	})
}
