package audit

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash"
	"strconv"
)

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
