package httprpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/budget"
)

// ErrConnect is wrapped by the failure of a call that reached nobody: the
// connection could not be made, it broke before the answer was complete, or a
// proxy could not reach the server (502, 503, 504).
//
// A call that took too long fails with context.DeadlineExceeded, and one whose
// answer was not JSON-RPC over HTTP with farcall.ErrProtocol.
var ErrConnect = errors.New("httprpc: cannot reach the server")

// StatusError is an HTTP status without a JSON-RPC answer. It wraps
// farcall.ErrProtocol, or [ErrConnect] for 502, 503 and 504.
type StatusError struct {
	Code int    // the HTTP status
	Body string // the begin of the body, quoted
}

// Error says what came, and what may help.
func (e *StatusError) Error() string {
	s := "HTTP status " + strconv.Itoa(e.Code)
	if text := http.StatusText(e.Code); text != "" {
		s += " " + text
	}
	switch e.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		s += " (does the call need an Authorization header?)"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		s += " (is the path of the URL right?)"
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
