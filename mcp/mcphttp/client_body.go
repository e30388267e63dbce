package mcphttp

import (
	"errors"
	"io"
	"slices"
)

var errAnswerTooLarge = errors.New("mcphttp: the answer is too large")

// readAnswer reads the whole of r. length is the declared length, or -1. It
// fails with errAnswerTooLarge when there are more than limit bytes, and returns
// what it has read all the same.
func readAnswer(r io.Reader, length int64, limit int) ([]byte, error) {
	// What is allocated on the word of a Content-Length alone.
	const trusted, least = 64 << 10, 4 << 10
	if length >= 0 && length <= trusted && length <= int64(limit) {
		buf := make([]byte, length) // no read beyond it, no growth
		n, err := io.ReadFull(r, buf)
		return buf[:n], err
	}
	var buf []byte
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(len(buf), least))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return buf[:limit], errAnswerTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}
