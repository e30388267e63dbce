package httprpc

import (
	"errors"
	"io"
	"mime"
	"slices"
	"strings"
)

var errTooLarge = errors.New("body too large")

// firstRead bounds what is allocated on the word of a Content-Length alone.
const firstRead = 64 << 10

const minGrow = 4 << 10

// readBody appends the whole of r to buf. length is the declared length, or -1.
// It fails with errTooLarge when there are more than limit bytes.
func readBody(buf []byte, r io.Reader, length int64, limit int) ([]byte, error) {
	if length > int64(limit) {
		return buf, errTooLarge
	}
	if length >= 0 && length <= firstRead {
		// Exactly the declared length: no read beyond it, no growth.
		if int(length) > cap(buf) {
			buf = make([]byte, 0, length)
		}
		n, err := io.ReadFull(r, buf[:length])
		return buf[:n], err
	}
	for {
		if len(buf) == cap(buf) {
			more := max(len(buf), minGrow)
			if left := length - int64(len(buf)); left >= 0 {
				more = min(more, int(left)+1) // one more, to see the end
			}
			buf = slices.Grow(buf, more)
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > limit:
			return buf, errTooLarge
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, err
		}
	}
}

const (
	jsonType = "application/json"
	mediaSSE = "text/event-stream"
	// acceptBoth is what our client and most others of event streams send.
	acceptBoth = jsonType + ", " + mediaSSE
)

// isJSON reports whether a Content-Type declares JSON in UTF-8 (RFC 8259 §8.1).
// application/json-rpc and application/jsonrequest are names from before the
// standard one.
func isJSON(contentType string) bool {
	if contentType == jsonType {
		return true
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	switch media {
	case jsonType, "application/json-rpc", "application/jsonrequest":
		charset, ok := params["charset"]
		return !ok || strings.EqualFold(charset, "utf-8")
	}
	return false
}

// acceptsEvents reports whether an Accept header names event streams and does
// not rule them out with q=0 (RFC 9110 §12.5.1).
func acceptsEvents(accept []string) bool {
	for _, line := range accept {
		if line == acceptBoth {
			return true
		}
		if !strings.Contains(line, mediaSSE) {
			continue
		}
		for item := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(item)
			if err == nil && media == mediaSSE {
				q := strings.TrimRight(params["q"], "0.")
				return q != "" || params["q"] == ""
			}
		}
	}
	return false
}
