package http1

import (
	"bytes"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// headsVar says how many heads TestHeads makes.
const headsVar = "FARCALL_HEADS"

// TestHeads compares what is ours, in any split, with what net/http reads, as FuzzHead does, for
// heads that are made of the vectors without a guide, and so some ten times as many in the same
// time. make fuzz-http has it make 10^9.
func TestHeads(t *testing.T) {
	t.Parallel()
	total := 100_000
	if text := os.Getenv(headsVar); text != "" {
		var err error
		if total, err = strconv.Atoi(text); err != nil {
			t.Fatalf("%s is how many heads to make: %v", headsVar, err)
		}
	}
	workers := runtime.GOMAXPROCS(0)
	var mu sync.Mutex
	var counts [3]int // by verdict
	var wg sync.WaitGroup
	seed := rand.Uint64()
	for w := range workers {
		wg.Go(func() {
			m := newMaker(seed, uint64(w))
			for range total / workers {
				if m.next(); t.Failed() {
					return
				}
				if err := m.check(); err != "" {
					t.Errorf("seed %d, worker %d: %s: %q, in pieces until %v",
						seed, w, err, m.text, m.cuts)
					return
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for v, n := range m.counts {
				counts[v] += n
			}
		})
	}
	wg.Wait()
	t.Logf("%d heads are ours, %d are for net/http, %d have no end; seed %d",
		counts[ours], counts[foreign], counts[more], seed)
	for v, n := range counts {
		if !t.Failed() && n < total/100 {
			t.Errorf("%d heads have the verdict %d: too few, maker has to make more", n, v)
		}
	}
}

// A maker makes heads of the vectors by changes as a smuggler tries them. It has its memory for all
// of them.
type maker struct {
	r       *rand.Rand
	vectors [][]byte
	text    []byte
	old     []byte
	cuts    []int

	whole, pieces head
	arrays        [2][]byte // what has arrived, in another one each time
	judge         judge
	counts        [3]int
}

func newMaker(seed, worker uint64) *maker {
	m := &maker{r: rand.New(rand.NewPCG(seed, worker))}
	for _, v := range vectors {
		if len(v.text) < 1<<10 {
			m.vectors = append(m.vectors, []byte(v.text))
			for range 15 {
				if v.ours { // what is made of it may still be
					m.vectors = append(m.vectors, []byte(v.text))
				}
			}
		}
	}
	return m
}

// oddBytes and oddTexts are what parsers of HTTP disagree about.
const oddBytes = "\r\n\t :,;+-0159aAzZ/.?#%\"\\\x00\x0b\x0c\x1f\x7f\x80\x85\xa0\xff"

var oddTexts = []string{
	"\r\n", "\n", "\r\n\r\n", "\r\n ", "\r\n\t", "\r\nHost: a\r\n", "Host: b\r\n", "Host:",
	te, last, cl5,
	"Content-Length: 0\r\n", "Content-Length:",
	"Connection: close\r\n", "Connection: keep-alive\r\n",
	"Expect: 100-continue\r\n", "X: 1\r\n", "Cookie: a=b\r\n",
	"X-Long-Name-Of-A-Field: a b c\r\n",
	"POST ", "/rpc", "http://a/", " HTTP/1.1", "HTTP/1.0", "chunked", "//", "/../", "[::1]", ":80",
}

// next makes a head.
func (m *maker) next() {
	m.text = append(m.text[:0], m.vector()...)
	for range m.r.IntN(4) {
		m.change()
	}
	if m.r.IntN(16) == 0 {
		m.text = m.text[:m.r.IntN(len(m.text)+1)]
	}
	m.cuts = m.cuts[:0]
	for range m.r.IntN(3) {
		at := m.r.IntN(len(m.text) + 1)
		if n := len(m.cuts); n == 0 || at > m.cuts[n-1] {
			m.cuts = append(m.cuts, at)
		}
	}
}

func (m *maker) vector() []byte { return m.vectors[m.r.IntN(len(m.vectors))] }

// change changes the text once.
func (m *maker) change() {
	at := m.r.IntN(len(m.text) + 1)
	switch m.r.IntN(8) {
	case 0:
		m.splice(at, at, oddTexts[m.r.IntN(len(oddTexts))])
	case 1:
		m.splice(at, at, oddBytes[m.r.IntN(len(oddBytes)):][:1])
	case 2:
		if at < len(m.text) {
			m.text[at] = oddBytes[m.r.IntN(len(oddBytes))]
		}
	case 3:
		if at < len(m.text) {
			m.text[at] = byte(m.r.Uint32())
		}
	case 4: // the case of a letter
		if at < len(m.text) && (m.text[at]|0x20) >= 'a' && (m.text[at]|0x20) <= 'z' {
			m.text[at] ^= 0x20
		}
	case 5: // a part is missing
		m.splice(at, min(len(m.text), at+1+m.r.IntN(8)), "")
	case 6: // a line comes twice
		from, to := m.line(at)
		m.splice(at, at, string(m.text[from:to]))
	case 7: // a line goes to a place between lines
		other := m.vector()
		from, to := lineOf(other, m.r.IntN(len(other)))
		_, behind := m.line(at)
		m.splice(behind, behind, string(other[from:to]))
	}
}

func (m *maker) line(at int) (from, to int) { return lineOf(m.text, at) }

// lineOf returns where the line with a position begins and ends.
func lineOf(p []byte, at int) (from, to int) {
	from, to = bytes.LastIndexByte(p[:at], '\n')+1, bytes.IndexByte(p[at:], '\n')
	if to < 0 {
		return from, len(p)
	}
	return from, at + to + 1
}

// splice replaces a part of the text.
func (m *maker) splice(from, to int, by string) {
	m.old = append(m.old[:0], m.text...)
	m.text = append(append(append(m.text[:0], m.old[:from]...), by...), m.old[to:]...)
}

// check compares. It returns what differs.
func (m *maker) check() string {
	m.whole.reset()
	at := m.whole.parse(m.text)
	m.counts[at]++
	if v := m.parsePieces(); v != at {
		return "in pieces it has another verdict"
	}
	if at != ours {
		return ""
	}
	if m.pieces.end != m.whole.end || !bytes.HasSuffix(m.text[:m.whole.end], []byte("\r\n\r\n")) {
		return "it ends elsewhere"
	}
	if err := m.judge.same(&m.pieces, m.text); err != nil {
		return err.Error()
	}
	return ""
}

// parsePieces parses what arrives in pieces, as a connection does.
func (m *maker) parsePieces() (v verdict) {
	m.pieces.reset()
	for i := range len(m.cuts) + 1 {
		to := len(m.text)
		if i < len(m.cuts) {
			to = m.cuts[i]
		}
		array := append(m.arrays[i%2][:0], m.text[:to]...)
		m.arrays[i%2] = array
		if v = m.pieces.parse(array); v != more {
			break
		}
		clear(array) // what was parsed of it must not be needed
	}
	return v
}
