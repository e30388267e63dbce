package port

import (
	"bytes"
	"unicode/utf8"
)

// kind is what a connection speaks.
type kind uint8

const (
	undecided kind = iota // too few bytes yet
	unknown               // no text: neither a protocol we know, nor a line that could be answered
	speaksTLS
	speaksHTTP
	speaksLines  // JSON texts, one per line
	speaksHeader // JSON texts, each after a Content-Length
)

// sniffSize is as long as the longest of what classify looks for.
const sniffSize = len("CONNECT ")

// opening is how a connection may begin.
type opening struct {
	text string
	fold bool // upper and lower case are the same
	kind kind
}

var openings = []opening{
	{"\x16\x03", false, speaksTLS}, // a handshake record of SSL 3 and up (RFC 8446, section 5.1)
	{"GET ", false, speaksHTTP},
	{"HEAD ", false, speaksHTTP},
	{"POST ", false, speaksHTTP},
	{"PUT ", false, speaksHTTP},
	{"PATCH ", false, speaksHTTP},
	{"DELETE ", false, speaksHTTP},
	{"OPTIONS ", false, speaksHTTP},
	{"TRACE ", false, speaksHTTP},
	{"CONNECT ", false, speaksHTTP},
	{"PRI * HT", false, speaksHTTP}, // the preface of HTTP/2 (RFC 9113, section 3.4)
	{"Content-", true, speaksHeader},
}

// classify tells what a connection speaks by the first bytes that came. Text that begins like
// nothing else is a line: one that is no JSON is answered with -32700, and the next line may be
// better.
func classify(p []byte) kind {
	if len(p) == 0 {
		return undecided
	}
	k := unknown
	if text(p[0]) {
		k = speaksLines
	}
	for _, o := range openings {
		n := min(len(p), len(o.text))
		head := []byte(o.text[:n])
		switch same := bytes.Equal(p[:n], head) || o.fold && bytes.EqualFold(p[:n], head); {
		case same && n == len(o.text):
			return o.kind
		case same:
			k = undecided
		}
	}
	return k
}

// text reports whether UTF-8 text may begin with a byte.
func text(b byte) bool {
	switch b {
	case '\t', '\n', '\r':
		return true
	}
	return b >= ' ' && b != 0x7f && utf8.RuneStart(b)
}
