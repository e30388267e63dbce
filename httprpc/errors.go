package httprpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/scan"
)

// ErrConnect is wrapped by the failure of a call that reached no server: the
// connection could not be made, it broke before the answer was complete, or a
// proxy could not reach the server (502, 503, 504).
//
// A call that took too long fails with context.DeadlineExceeded, and one with an
// answer that is not JSON-RPC over HTTP with farcall.ErrProtocol.
var ErrConnect = errors.New("httprpc: cannot reach the server")

// StatusError is an HTTP status without a JSON-RPC answer. It wraps
// farcall.ErrProtocol, or [ErrConnect] for 502, 503 and 504.
type StatusError struct {
	Code int    // the HTTP status
	Body string // the begin of the body, quoted
	// Challenge is the header WWW-Authenticate of a 401, which names the credentials that the server
	// wants (RFC 9110, section 11.6.1), at most 200 bytes of it. "": there is none.
	Challenge string
	// RetryAfter is what the header Retry-After says: at least a millisecond and at most an hour. 0:
	// the server does not say when to come back.
	RetryAfter time.Duration
}

// Error says what came. It does not guess why.
func (e *StatusError) Error() string {
	s := "HTTP status " + strconv.Itoa(e.Code)
	if text := http.StatusText(e.Code); text != "" {
		s += " " + text
	}
	if e.Challenge != "" {
		s += fmt.Sprintf(" (the server wants credentials: %q)", e.Challenge)
	}
	return s + ": " + e.Body
}

// Unwrap returns the class of the failure.
func (e *StatusError) Unwrap() error {
	switch e.Code {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return ErrConnect
	}
	return farcall.ErrProtocol
}

// incomplete is the error of a JSON answer that ends too early, which differs from one that is
// malformed. net/http reports it of an answer with a length, but not of one that ends with its
// connection, and proxies pass on what they got.
func incomplete(resp *http.Response, answer []byte) error {
	toTheEnd := resp.ProtoMajor == 1 && resp.ContentLength < 0 && len(resp.TransferEncoding) == 0
	if text := bytes.TrimRight(answer, " \t\r\n"); !toTheEnd && len(text) > 0 && (text[len(text)-1] == '}' || text[len(text)-1] == ']') {
		return nil // it spares a look at all of it
	}
	if _, fault := scan.Text(answer, -1); fault == scan.End {
		return fmt.Errorf("%w: the answer is incomplete: %w", ErrConnect, io.ErrUnexpectedEOF)
	}
	return nil
}

// classify gives an error of net/http its class.
func classify(err error) error {
	switch {
	case errors.Is(err, farcall.ErrProtocol), errors.Is(err, ErrConnect), errors.Is(err, budget.ErrNoRoom),
		errors.Is(err, context.DeadlineExceeded): // http.Client.Timeout
		return err
	case errors.Is(err, errGzip):
		return fmt.Errorf("%w: %w", farcall.ErrProtocol, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: the answer is incomplete: %w", ErrConnect, err)
	case strings.Contains(err.Error(), "malformed"): // net/http has no type for it
		return fmt.Errorf("%w: not an HTTP server: %w", farcall.ErrProtocol, err)
	}
	return fmt.Errorf("%w: %w", ErrConnect, err)
}

func mediaType(contentType string) string {
	media, _, _ := mime.ParseMediaType(contentType)
	return media
}
