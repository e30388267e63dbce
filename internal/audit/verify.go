package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/internal/scan"
)

const (
	maxFindings = 1000
	maxOpen     = 1 << 20 // calls without an outcome that are counted one by one
)

// A Checkpoint is a line of a chain that was noted somewhere else.
type Checkpoint struct {
	Seq  uint64
	Hash string
}

var errCheckpoint = errors.New("no NUMBER:HASH of a line")

// ParseCheckpoint reads a checkpoint that is written NUMBER:HASH.
func ParseCheckpoint(text string) (c Checkpoint, err error) {
	number, hash, _ := strings.Cut(text, ":")
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil || seq == 0 || number[0] == '+' || !isHash(hash) {
		return c, errCheckpoint
	}
	return Checkpoint{Seq: seq, Hash: hash}, nil
}

// VerifyOptions adjust Verify. Nil means the defaults.
type VerifyOptions struct {
	// Key is that of the log; none by default.
	Key []byte
	// Since is a line that must be there, as it was, or end what was moved away: what is before it is
	// not looked at. Default: the chain is verified from its beginning.
	Since *Checkpoint
}

// A Finding is something about a line.
type Finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"` // in the file, from 1; 0: it is about the whole
	Message string `json:"message"`
}

// A Report is what Verify has found.
type Report struct {
	Lines       int // with a seal that is right
	First, Last uint64
	// Head is the last line. Noted elsewhere it proves later that nothing before it was cut off.
	Head Checkpoint
	// Open is how many calls were allowed and have no outcome: they run, or ended with the process.
	Open int
	// Findings are what must not be: at most 1000, of More there are more. Notes are what may be.
	Findings, Notes []Finding
	More            int
}

// A Text is a file of a log.
type Text struct {
	Name string
	In   io.Reader
}

// Verify checks the chain of a log, given its files in their order, the oldest first. Its error is
// that of a reader.
//
// It finds each line that was changed, removed, cut, put in or moved, unless the hashes were made
// again: without a key, all who can write the files can do that. It finds that lines at the end are
// missing only when Since is one of them.
func Verify(files []Text, o *VerifyOptions) (*Report, error) {
	o = cmp.Or(o, new(VerifyOptions))
	v := &verifier{o: o, chain: newChain(o.Key), open: map[uint64]struct{}{}}
	for i, f := range files {
		v.file, v.line, v.plain = f.Name, 0, 0
		if err := v.read(f.In, i == len(files)-1); err != nil {
			return nil, fmt.Errorf("audit: %s: %w", f.Name, err)
		}
	}
	v.end()
	return &v.report, nil
}

// Files returns the file of a log and those before it that are there, the oldest first.
func Files(path string) ([]string, error) {
	names, err := older(path)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	if _, err := os.Stat(path); err == nil || len(names) == 0 {
		names = append(names, path)
	}
	return names, nil
}

// A verifier reads lines one after the other.
//
//	line ──▶ sealed? ──no──▶ held as torn ──▶ does the next line, "opened", account for it?
//	          │yes
//	          ▼
//	         hash right? ──▶ number follows? ──▶ hash of the line before right? ──▶ counted
type verifier struct {
	o      *VerifyOptions
	chain  chain
	report Report

	file string
	line int

	begun  bool // a line of the chain was read
	last   seal
	lastAt Finding // where
	closed bool    // it is the last of a process
	since  bool    // Since was found

	torn     *Finding // a line without a seal
	tornLen  int
	tornHash string

	lost   *seal // what is before the first line, and must be on record as deleted
	lostAt Finding

	unkeyed, plain int // lines sealed otherwise than with the key; lines before the first seal
	open           map[uint64]struct{}
}

func (v *verifier) read(in io.Reader, last bool) error {
	r := bufio.NewReaderSize(in, maxLine)
	for {
		line, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			v.line++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = r.ReadSlice('\n')
			}
			v.find("it is too long for a line of an audit")
		case err == nil:
			v.line++
			v.next(line[:len(line)-1])
		case len(line) > 0 && errors.Is(err, io.EOF):
			v.line++
			v.rest(line, last)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if v.begun {
		return nil // the next file may account for its last line
	}
	switch v.settle(); {
	case v.plain > 0 && len(v.o.Key) > 0: // anyone could have written them
		v.find("its %d lines have no seal, and the log has a key: they were forged, or written before "+
			"the key was set; move such a file away", v.plain)
	case v.plain > 0:
		v.note("its %d lines have no seal: it was written by a version that had none", v.plain)
	}
	v.plain = 0
	return nil
}

// rest takes a line without a line feed.
func (v *verifier) rest(line []byte, last bool) {
	if _, _, ok := readSeal(line); ok || !last {
		v.next(line)
		return
	}
	v.settle()
	v.note("an unfinished line of %d bytes: the process is writing it, or was killed meanwhile",
		len(line))
}

// next takes a line.
func (v *verifier) next(line []byte) {
	s, body, ok := readSeal(line)
	if !ok {
		v.settle()
		v.unsealed(line)
		return
	}
	m := readMembers(body)
	if v.torn != nil && m.event == "opened" && m.torn == v.tornLen && m.tornHash == v.tornHash {
		v.report.Notes = append(v.report.Notes, Finding{v.torn.File, v.torn.Line, fmt.Sprintf(
			"an unfinished line of %d bytes: the process was killed meanwhile, as the next one found",
			v.tornLen)})
		v.torn = nil
	}
	v.settle()
	if !v.since && v.o.Since != nil && s.seq <= v.o.Since.Seq {
		v.before(s, m)
		return
	}
	err := v.chain.check(line)
	switch {
	case errors.Is(err, errKeyed):
		v.unkeyed++
	case err != nil:
		v.find("it was changed: %v", err)
	default:
		v.report.Lines++
	}
	v.follow(s, m)
	v.count(s, m)
}

// before looks for the line that was noted, among those that need not be there.
func (v *verifier) before(s seal, m members) {
	if s.seq == v.o.Since.Seq && s.hash == v.o.Since.Hash {
		v.since, v.begun, v.last, v.lastAt, v.closed = true, true, s, v.here(""), m.event == "closed"
	}
}

// unsealed holds a line until it is known whether the next one accounts for it.
func (v *verifier) unsealed(line []byte) {
	at := v.here("it has no seal: it was changed, cut, or put in")
	v.torn, v.tornLen, v.tornHash = &at, len(line), digest(line)
}

// settle reports a line without a seal that nothing accounts for. Where no line of the file had one
// so far, it may be of a version that had none.
func (v *verifier) settle() {
	switch {
	case v.torn == nil:
	case !v.begun && v.torn.Line == v.plain+1:
		v.plain++
	default:
		v.add(*v.torn)
	}
	v.torn = nil
}

// follow compares a line with the one before it.
func (v *verifier) follow(s seal, m members) {
	if v.begun {
		v.compare(s)
	} else {
		v.begin(s)
	}
	if v.plain > 0 {
		v.addPlain()
	}
	if v.begun && m.event == "opened" && !v.closed {
		v.note("the process before ended without closing the log: up to a second of lines may be " +
			"missing before it")
	}
	v.begun, v.last, v.lastAt, v.closed = true, s, v.here(""), m.event == "closed"
}

// begin takes the first line.
func (v *verifier) begin(s seal) {
	v.report.First = s.seq
	switch {
	case v.o.Since != nil && s.seq == v.o.Since.Seq+1 && s.prev == v.o.Since.Hash:
		v.since = true
	case s.seq > 1:
		v.lost, v.lostAt = &seal{seq: s.seq - 1, hash: s.prev}, v.here("")
	case s.prev != "":
		v.find("it is the first line and names one before it")
	}
}

func (v *verifier) compare(s seal) {
	switch want := v.last.seq + 1; {
	case s.seq > want+1:
		v.find("%d lines are missing before it: it is number %d, and the one before is %d", s.seq-want,
			s.seq, v.last.seq)
	case s.seq > want:
		v.find("a line is missing before it: it is number %d, and the one before is %d", s.seq,
			v.last.seq)
	case s.seq < want:
		v.find("it is not in its place: it is number %d, and the one before is %d", s.seq, v.last.seq)
	case s.prev != v.last.hash:
		v.add(Finding{
			v.lastAt.File, v.lastAt.Line,
			fmt.Sprintf("it was replaced: line %d of %s bears another hash of it", v.line, v.file),
		})
	}
}

// addPlain reports lines without a seal before the first one that has one.
func (v *verifier) addPlain() {
	v.add(Finding{v.file, 1, "lines without a seal: put in, or written by a version that had none"})
	v.plain = 0
}

// count takes what a line says.
func (v *verifier) count(s seal, m members) {
	switch {
	case m.event == "deleted" && v.lost != nil && m.through == *v.lost:
		v.lost = nil
	case m.event == "opened":
		v.report.Open += len(v.open)
		clear(v.open)
	case m.outcome:
		delete(v.open, m.of)
	case m.passed && len(v.open) < maxOpen:
		v.open[s.seq] = struct{}{}
	}
}

func (v *verifier) end() {
	v.settle()
	r := &v.report
	r.Last, r.Head, r.Open = v.last.seq, Checkpoint{v.last.seq, v.last.hash}, r.Open+len(v.open)
	if v.lost != nil {
		v.add(Finding{v.lostAt.File, v.lostAt.Line, fmt.Sprintf(
			"lines 1 to %d are missing before it, and no line after it says that they were deleted",
			v.lost.seq)})
	}
	if v.o.Since != nil && !v.since {
		v.add(Finding{Message: fmt.Sprintf("line %d is not there as it was noted", v.o.Since.Seq)})
	}
	if v.unkeyed > 0 {
		v.add(Finding{
			Message: fmt.Sprintf("%d lines are sealed with a key, and can be verified with it only",
				v.unkeyed),
		})
	}
	if v.begun && !v.closed {
		v.note("the log is not closed after its last line: the process runs, or was killed")
	}
}

func (v *verifier) here(message string) Finding { return Finding{v.file, v.line, message} }

func (v *verifier) find(format string, args ...any) { v.add(v.here(fmt.Sprintf(format, args...))) }

func (v *verifier) add(f Finding) {
	if len(v.report.Findings) >= maxFindings {
		v.report.More++
		return
	}
	v.report.Findings = append(v.report.Findings, f)
}

func (v *verifier) note(format string, args ...any) {
	if len(v.report.Notes) < maxFindings {
		v.report.Notes = append(v.report.Notes, v.here(fmt.Sprintf(format, args...)))
	}
}

// members are what a line says that matters to a verifier.
type members struct {
	event           string
	torn            int
	tornHash        string
	through         seal
	passed, outcome bool
	of              uint64
}

func readMembers(body []byte) (m members) {
	for key, value := range scan.Members(body) {
		text := func() string {
			if len(value) == 0 || value[0] != '"' {
				return ""
			}
			return string(scan.Unquote(value))
		}
		number := func() uint64 { n, _ := strconv.ParseUint(string(value), 10, 64); return n }
		switch string(key) {
		case "event":
			m.event = text()
		case "torn":
			m.torn = int(min(number(), maxLine*4))
		case "tornHash":
			m.tornHash = text()
		case "through":
			m.through.seq = number()
		case "throughHash":
			m.through.hash = text()
		case "decision":
			word := text()
			m.passed = word == "allowed" || strings.HasPrefix(word, "would ")
		case "outcome":
			m.outcome = true
		case "of":
			m.of = number()
		}
	}
	return m
}

// A line ends with its seal:
//
//	… ,"seq":17,"prev":"HASH OF LINE 16","hash":"HASH"}
//
// hash is the SHA-256 of all that stands before `,"hash"`, in base64 (RFC 4648, section 5, without
// padding). With a key the member is called mac, and is the HMAC-SHA-256 of it. prev is the hash or
// mac of the line before, "" in the first line of all.
const (
	hashLen  = 43 // of SHA-256 in base64
	seqName  = `,"seq":`
	prevName = `,"prev":"`
	hashName = `,"hash":"`
	macName  = `,"mac":"`
	lineEnd  = `"}`
)

// A seal is what ends a line.
type seal struct {
	seq   uint64
	prev  string
	hash  string
	keyed bool
}

// A chain seals lines one after the other.
type chain struct {
	seq  uint64
	prev []byte
	mac  hash.Hash // nil: no key
	sum  [sha256.Size]byte
}

func newChain(key []byte) chain {
	c := chain{prev: make([]byte, 0, hashLen)}
	if len(key) > 0 {
		c.mac = hmac.New(sha256.New, key)
	}
	return c
}

// resume goes on after a line.
func (c *chain) resume(s seal) { c.seq, c.prev = s.seq, append(c.prev[:0], s.hash...) }

// seal completes a line, which lacks its closing brace.
func (c *chain) seal(dst []byte) []byte {
	c.seq++
	dst = strconv.AppendUint(append(dst, seqName...), c.seq, 10)
	dst = append(append(append(dst, prevName...), c.prev...), '"')
	c.prev = base64.RawURLEncoding.AppendEncode(c.prev[:0], c.digest(dst))
	name := hashName
	if c.mac != nil {
		name = macName
	}
	return append(append(append(append(dst, name...), c.prev...), lineEnd...), '\n')
}

func (c *chain) digest(text []byte) []byte {
	if c.mac == nil {
		c.sum = sha256.Sum256(text)
		return c.sum[:]
	}
	c.mac.Reset()
	c.mac.Write(text)
	return c.mac.Sum(c.sum[:0])
}

var (
	errUnsealed = errors.New("it has no seal")
	errChanged  = errors.New("its hash is another one")
	errUnkeyed  = errors.New("it is sealed without the key")
	errKeyed    = errors.New("it is sealed with a key")
)

// check returns why the text of a line, without its line feed, is not what was sealed.
func (c *chain) check(line []byte) error {
	s, body, ok := readSeal(line)
	switch {
	case !ok:
		return errUnsealed
	case s.keyed && c.mac == nil:
		return errKeyed
	case !s.keyed && c.mac != nil:
		return errUnkeyed
	}
	var text [hashLen]byte
	if !hmac.Equal(base64.RawURLEncoding.AppendEncode(text[:0], c.digest(body)), []byte(s.hash)) {
		return errChanged
	}
	return nil
}

// readSeal reads the seal of a line, and returns what is under it.
func readSeal(line []byte) (s seal, body []byte, ok bool) {
	rest, ok := bytes.CutSuffix(line, []byte(lineEnd))
	if !ok || len(rest) < hashLen {
		return s, nil, false
	}
	rest, s.hash = rest[:len(rest)-hashLen], string(rest[len(rest)-hashLen:])
	if body, ok = bytes.CutSuffix(rest, []byte(hashName)); !ok {
		if body, s.keyed = bytes.CutSuffix(rest, []byte(macName)); !s.keyed {
			return s, nil, false
		}
	}
	rest, ok = bytes.CutSuffix(body, []byte{'"'})
	if !ok {
		return s, nil, false
	}
	at := max(0, len(rest)-hashLen-len(prevName))
	i := bytes.LastIndex(rest[at:], []byte(prevName))
	if i < 0 {
		return s, nil, false
	}
	rest, s.prev = rest[:at+i], string(rest[at+i+len(prevName):])
	at = max(0, len(rest)-20-len(seqName))
	i = bytes.LastIndex(rest[at:], []byte(seqName))
	if i < 0 || !isHash(s.hash) || s.prev != "" && !isHash(s.prev) {
		return s, nil, false
	}
	digits := string(rest[at+i+len(seqName):])
	seq, err := strconv.ParseUint(digits, 10, 64)
	s.seq = seq
	return s, body, err == nil && digits == strconv.FormatUint(seq, 10) && line[0] == '{'
}

func isHash(text string) bool {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(b) == sha256.Size
}
