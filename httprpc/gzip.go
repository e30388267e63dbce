package httprpc

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/onhttp"
)

const encodingGzip = "gzip"

// leastGzip is the size from which a body is compressed: a smaller one fits a packet as it is.
const leastGzip = 1 << 10

var (
	errGzip = errors.New("the body is not valid gzip")

	gzipHeader = []string{encodingGzip}
)

// gzipWriters lends compressors, which are large. It is a table of memory, not state.
var gzipWriters = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // the level is valid
	return z
}}

// compressed returns a body in gzip; nil when that is not smaller.
func compressed(body []byte) []byte {
	if len(body) < leastGzip {
		return nil
	}
	z := gzipWriters.Get().(*gzip.Writer) //nolint:errcheck // only those are in it
	defer gzipWriters.Put(z)
	var out bytes.Buffer
	z.Reset(&out)
	_, err := z.Write(body)
	if err = errors.Join(err, z.Close()); err != nil || out.Len() >= len(body) {
		return nil
	}
	return out.Bytes()
}

// acceptsGzip reports whether an Accept-Encoding header allows gzip (RFC 9110 §12.5.3).
func acceptsGzip(accept []string) bool {
	others := false
	for _, line := range accept {
		for item := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(item, ";")
			_, q, _ := strings.Cut(strings.ReplaceAll(strings.ToLower(params), " ", ""), "q=")
			allowed := q == "" || strings.Trim(q, "0.") != ""
			switch strings.ToLower(strings.TrimSpace(name)) {
			case encodingGzip:
				return allowed
			case "*":
				others = allowed
			}
		}
	}
	return others
}

// An inflater reads a body that was compressed: one gzip member and nothing after it. What it
// yields is for the reader to bound.
type inflater struct {
	src *bufio.Reader
	z   *gzip.Reader // nil before the first Read
}

// inflate bounds what is read of a body, too: gzip can hold any number of blocks that yield
// nothing. No bound is less than 0.
func inflate(body io.Reader, most int) *inflater {
	if most >= 0 {
		body = &bounded{src: body, left: int64(most) + int64(most)/8 + 1<<10}
	}
	return &inflater{src: bufio.NewReader(body)}
}

func (f *inflater) Read(p []byte) (n int, err error) {
	if f.z == nil {
		if f.z, err = gzip.NewReader(f.src); err != nil {
			f.z = nil
			return 0, gzipError(err)
		}
		f.z.Multistream(false)
	}
	if n, err = f.z.Read(p); err != io.EOF { //nolint:errorlint // gzip returns it bare
		return n, gzipError(err)
	}
	if _, more := f.src.ReadByte(); more == nil {
		return n, fmt.Errorf("%w: more comes after its end", errGzip)
	} else if more != io.EOF {
		return n, more
	}
	return n, io.EOF
}

// gzipError tells a body that is no gzip from one that cannot be read.
func gzipError(err error) error {
	if err == io.EOF || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, new(flate.CorruptInputError)) { //nolint:errorlint // as above
		return fmt.Errorf("%w: %w", errGzip, err)
	}
	return err
}

// bounded fails when more is read than it has left.
type bounded struct {
	src  io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, budget.ErrTooLarge
	}
	n, err := b.src.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

// encoded reports whether the body of a request is compressed. ok is false when it is refused.
func (h *handler) encoded(w http.ResponseWriter, r *http.Request) (gzipped, ok bool) {
	if h.opts.Gzip {
		header := w.Header()
		header["Accept-Encoding"] = gzipHeader // RFC 9110 §12.5.3: of requests to come
		header.Add("Vary", "Accept-Encoding")
	}
	lines := r.Header["Content-Encoding"]
	switch {
	case len(lines) == 0 || len(lines) == 1 && lines[0] == "":
		return false, true
	case h.opts.Gzip && len(lines) == 1 && strings.EqualFold(lines[0], encodingGzip):
		return true, true
	case h.opts.Gzip:
		refuse(w, http.StatusUnsupportedMediaType,
			"This Content-Encoding is not supported: send gzip, or the body as it is")
	default:
		w.Header().Set("Accept-Encoding", "identity")
		refuse(w, http.StatusUnsupportedMediaType,
			"Content-Encoding is not supported: send the body as it is")
	}
	return false, false
}

// encode compresses an answer for who accepts it.
func (h *handler) encode(w http.ResponseWriter, r *http.Request, body []byte) []byte {
	if !h.opts.Gzip || !acceptsGzip(r.Header["Accept-Encoding"]) {
		return body
	}
	if z := compressed(body); z != nil {
		w.Header()["Content-Encoding"] = gzipHeader
		return z
	}
	return body
}

// decode makes an answer what it was before it was compressed. Event streams are bounded by the
// event.
func (c *client) decode(resp *http.Response) error {
	if c.opts.Gzip {
		if accept := resp.Header["Accept-Encoding"]; accept != nil ||
			resp.StatusCode == http.StatusUnsupportedMediaType {
			c.takesGzip.Store(acceptsGzip(accept))
		}
	}
	encoding := resp.Header.Get("Content-Encoding")
	switch {
	case encoding == "" || strings.EqualFold(encoding, "identity"):
		return nil
	case !strings.EqualFold(encoding, encodingGzip):
		// gzip is read also when a server sends it unasked
		return fmt.Errorf("%w: the answer has the Content-Encoding %.40q, which was not asked for",
			farcall.ErrProtocol, encoding)
	}
	most := c.opts.MaxMessage
	if onhttp.MediaType(resp.Header.Get("Content-Type")) == mediaSSE {
		most = -1
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{inflate(resp.Body, most), resp.Body}
	if resp.ContentLength != 0 {
		resp.ContentLength = -1
	}
	return nil
}
