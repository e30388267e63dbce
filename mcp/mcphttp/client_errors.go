package mcphttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/budget"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

var (
	// ErrConnect is wrapped by the failure of an exchange that reached no server, or
	// that lost its answer: the connection could not be made or did not last,
	// or a proxy could not reach the server (502, 503, 504).
	ErrConnect = errors.New("mcphttp: cannot reach the server")
	// ErrSessionLost is wrapped by the failure of an exchange in a session that
	// the server does not know, or knows no more. The next thing to send is
	// initialize.
	ErrSessionLost = errors.New("mcphttp: the server has ended the session")
)

// maxExcerpt bounds StatusError.Body.
const maxExcerpt = 4 << 10

// StatusError is an HTTP answer that does not carry an exchange: its status is
// not 2xx, or its content is neither JSON nor an event stream. It wraps the
// JSON-RPC error in its body when there is one, and otherwise
// farcall.ErrProtocol; and [ErrConnect] for 502, 503 and 504.
type StatusError struct {
	Status      int
	ContentType string
	Body        []byte         // its begin
	RPC         *jsonrpc.Error // the JSON-RPC error in the body, or nil
	// Challenge is the header WWW-Authenticate of a 401, which names the credentials that the server
	// wants (RFC 9110, section 11.6.1), at most 200 bytes of it. "": there is none.
	Challenge string
	// RetryAfter is what the header Retry-After says: at least a millisecond and at most an hour. 0:
	// the server does not say when to come back.
	RetryAfter time.Duration
}

// Error says what came. It does not guess why.
func (e *StatusError) Error() string {
	s := "HTTP status " + strconv.Itoa(e.Status)
	if text := http.StatusText(e.Status); text != "" {
		s += " " + text
	}
	if e.RPC != nil {
		return s + ": " + e.RPC.Error()
	}
	if e.Challenge != "" {
		s += fmt.Sprintf(" (the server wants credentials: %q)", e.Challenge)
	}
	if e.ContentType != "" {
		s += ", " + e.ContentType
	}
	return s + ": " + quoted(e.Body)
}

// Unwrap returns the JSON-RPC error, or the class of the failure.
func (e *StatusError) Unwrap() []error {
	var wrapped []error
	if e.RPC != nil {
		wrapped = append(wrapped, e.RPC)
	}
	switch e.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return append(wrapped, ErrConnect)
	}
	if e.RPC == nil {
		wrapped = append(wrapped, farcall.ErrProtocol)
	}
	return wrapped
}

// newStatusError reads the begin of the body, which it does not close.
func newStatusError(resp *http.Response) *StatusError {
	const most = 1 << 20 // more is no error message
	e := &StatusError{
		Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"),
		RetryAfter: backoff.RetryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
	if e.Status == http.StatusUnauthorized {
		e.Challenge = resp.Header.Get("WWW-Authenticate")
		e.Challenge = e.Challenge[:min(len(e.Challenge), 200)]
	}
	var loan *budget.Loan // so little needs none
	body, err := loan.ReadAll(nil, resp.Body, min(resp.ContentLength, most), most, nil)
	if err == nil {
		e.RPC = errorIn(body)
	}
	e.Body = body[:min(len(body), maxExcerpt)]
	return e
}

// errorIn returns the error of a body that is a JSON-RPC answer. In an answer
// to no request in particular the id may be missing (Streamable HTTP, "Sending
// Messages").
func errorIn(body []byte) *jsonrpc.Error {
	var answer struct {
		Version string         `json:"jsonrpc"`
		Error   *jsonrpc.Error `json:"error"`
	}
	if err := jsonv2.Unmarshal(body, &answer); err == nil && answer.Version == "2.0" {
		return answer.Error
	}
	return nil
}

// classify gives an error of net/http its class, and says what to do about it.
func classify(err error) error {
	var (
		auth   *authError
		status *StatusError
		dns    *net.DNSError
		record tls.RecordHeaderError
		cert   *tls.CertificateVerificationError
		hint   string
	)
	switch {
	case errors.As(err, &auth), errors.As(err, &status), errors.Is(err, farcall.ErrProtocol), errors.Is(err, ErrConnect), errors.Is(err, budget.ErrNoRoom),
		errors.Is(err, farcall.ErrClosed), errors.Is(err, context.DeadlineExceeded): // http.Client.Timeout
		return err
	case strings.Contains(err.Error(), "malformed HTTP"): // net/http has no type for it
		return fmt.Errorf("%w: not an HTTP server: %w", farcall.ErrProtocol, err)
	case strings.Contains(err.Error(), "server response headers exceeded"): // nor for this
		return fmt.Errorf("%w: %w", farcall.ErrProtocol, err)
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		hint = "it does not speak TLS: "
	case errors.As(err, &cert) && errors.As(err, new(x509.UnknownAuthorityError)):
		hint = "its certificate is not signed by an authority known here; if it is meant, set DialOptions.TLS.RootCAs: "
	case errors.As(err, &cert):
		hint = "its certificate is not valid for it: "
	case errors.As(err, &dns):
		hint = "its name is not known: "
	case errors.Is(err, syscall.ECONNREFUSED):
		hint = "no server listens there: "
	case errors.Is(err, io.ErrUnexpectedEOF):
		hint = "the answer is incomplete: "
	}
	return fmt.Errorf("%w: %s%w", ErrConnect, hint, err)
}

// incomplete is the error of a JSON answer that ends too early, which is to be distinguished from
// one that is malformed. net/http reports it of an answer with a length, but not of one that ends
// with its connection, and proxies pass on what they got.
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

// transient reports whether the same request may succeed in a moment.
func transient(err error) bool {
	if status, ok := errors.AsType[*StatusError](err); ok {
		switch status.Status {
		case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError:
			return true
		}
	}
	return errors.Is(err, ErrConnect)
}

// quoted shows the begin of a body.
func quoted(body []byte) string {
	const most = 200
	body = bytes.TrimSpace(body)
	if len(body) > most {
		return fmt.Sprintf("%q…", body[:most])
	}
	return fmt.Sprintf("%q", body)
}
