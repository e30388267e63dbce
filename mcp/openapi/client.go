package openapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/farcall-dev/farcall/internal/backoff"
	"github.com/farcall-dev/farcall/internal/fetch"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

const (
	maxTextBody   = 1 << 20
	maxBinaryBody = 8 << 20
	maxRedirects  = 3
	maxRetryWait  = 5 * time.Second
	retryWait     = 200 * time.Millisecond
	maxIdle       = 16 // connections to the API that are kept open between calls
	maxChallenges = 2  // of an API to the Authorizer, for one request
)

// A sender sends requests to the origin of an API.
type sender struct {
	client  *http.Client
	origin  string
	header  http.Header
	auth    mcphttp.Authorizer
	timeout time.Duration
	maxText int
}

func (b *builder) newSender() (*sender, error) {
	s := &sender{
		client: &http.Client{}, origin: originOf(b.base), header: b.o.Header.Clone(),
		auth: b.o.Authorizer, timeout: b.o.Timeout, maxText: b.o.MaxText,
	}
	if b.o.Client != nil {
		client := *b.o.Client
		s.client = &client
	} else if b.o.BaseURL == "" {
		t, err := fetch.Transport(b.base, b.origin, b.o.AllowPrivate)
		if err != nil {
			return nil, err
		}
		s.client.Transport = t
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		t.MaxIdleConnsPerHost = maxIdle
		s.client.Transport = t
	}
	s.client.CheckRedirect = checkRedirect
	return s, nil
}

// checkBase refuses an origin that the document chose and may not choose.
func (b *builder) checkBase() error {
	_, err := fetch.Transport(b.base, b.origin, b.o.AllowPrivate)
	if err != nil {
		err = errors.New("the document's server " + originOf(b.base) + ": " + err.Error() +
			"; set Options.BaseURL to reach it")
	}
	return err
}

// trusts reports whether credentials are sent with a request, of an operation that may need none.
func (s *sender) trusts(r *http.Request, open bool) bool {
	return !open && originOf(r.URL) == s.origin
}

// addHeader adds the headers of the options, for the origin that they are for.
func (s *sender) addHeader(r *http.Request, open bool) {
	if !s.trusts(r, open) {
		return
	}
	for name, values := range s.header {
		if name == "Cookie" {
			for _, v := range r.Header.Values(name) {
				values = []string{values[0] + "; " + v}
			}
		}
		r.Header[name] = values
	}
}

// checkRedirect follows redirects of GET within an origin, and leaves any other to the model.
func checkRedirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	if first.Method != http.MethodGet || len(via) > maxRedirects ||
		originOf(r.URL) != originOf(first.URL) || r.URL.User != nil {
		return http.ErrUseLastResponse
	}
	return nil
}

// A response is what came back, with its body.
type response struct {
	*http.Response
	media string
	body  []byte
	whole bool // the body is within the limits
}

// do sends a request, and reads the response. What may be repeated is sent a second time when the
// API could not be reached, or says that it is busy.
func (s *sender) do(r *http.Request, open bool, event func(data string) error) (*response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), s.timeout)
	defer cancel()
	r = r.WithContext(ctx)
	for attempt := 0; ; attempt++ {
		resp, err := s.authorized(r, open)
		wait, again := s.again(r, resp, err)
		if attempt > 0 || !again || backoff.Sleep(ctx, wait) != nil {
			if err != nil {
				return nil, s.failure(ctx, err)
			}
			return s.read(ctx, resp, event)
		}
		if resp != nil {
			resp.Body.Close()
		}
		if err := rewind(r); err != nil {
			return nil, err
		}
	}
}

// rewind makes a request ready to be sent once more.
func rewind(r *http.Request) (err error) {
	if r.GetBody != nil {
		r.Body, err = r.GetBody()
	}
	return err
}

// authorized sends a request with the credentials of the Authorizer, and again when it has better
// ones for the API.
func (s *sender) authorized(r *http.Request, open bool) (*http.Response, error) {
	if s.auth == nil || !s.trusts(r, open) {
		return s.client.Do(r)
	}
	for try := 0; ; try++ {
		if err := s.auth.Authorize(r.Context(), r); err != nil {
			return nil, &authError{err}
		}
		resp, err := s.client.Do(r)
		if err != nil || try == maxChallenges ||
			resp.StatusCode != http.StatusUnauthorized && resp.StatusCode != http.StatusForbidden {
			return resp, err
		}
		again, err := s.auth.Challenge(r.Context(), resp)
		if err != nil {
			resp.Body.Close()
			return nil, &authError{err}
		}
		if !again {
			return resp, nil
		}
		resp.Body.Close()
		if err := rewind(r); err != nil {
			return nil, err
		}
	}
}

// authError is a failure of the Authorizer: the API was not asked, or its answer does not count.
type authError struct{ err error }

func (e *authError) Error() string {
	return "the request to the API cannot be authorized: " + e.err.Error()
}
func (e *authError) Unwrap() error { return e.err }

// again reports whether a request is worth a second attempt, and after which time.
func (s *sender) again(r *http.Request, resp *http.Response, err error) (time.Duration, bool) {
	if !idempotent(r.Method) || r.Context().Err() != nil {
		return 0, false
	}
	if err != nil {
		op, ok := errors.AsType[*net.OpError](err)
		return retryWait, ok && op.Op == "dial" && !errors.Is(err, fetch.ErrAddress)
	}
	after := backoff.RetryAfter(resp.Header.Get("Retry-After"), time.Now())
	known := after > 0
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if !known {
			after = retryWait
		}
		return after, after <= maxRetryWait
	case http.StatusTooManyRequests:
		return after, known && after <= maxRetryWait
	}
	return 0, false
}

// failure says why there is no response, without what the address may hold of secrets.
func (s *sender) failure(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return errors.New("the API did not answer within " + s.timeout.String())
	}
	if auth, ok := errors.AsType[*authError](err); ok {
		return auth
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, fetch.ErrAddress) {
		return errors.New(
			"the API at " + s.origin +
				" may not be reached: its name leads to an address that is not public")
	}
	return errors.New("the API at " + s.origin + " cannot be reached: " + clean(err.Error()))
}

// read reads the body of a response, as far as the limits allow. Each event of a stream is passed
// on when it comes; what has come when the time is over is the response.
func (s *sender) read(
	ctx context.Context, resp *http.Response, event func(data string) error,
) (*response, error) {
	defer resp.Body.Close()
	out := &response{Response: resp, media: mediaName(resp.Header.Get("Content-Type")), whole: true}
	limit := int64(maxTextBody)
	if binary(out.media) {
		limit = maxBinaryBody
	}
	var buf bytes.Buffer
	var err error
	in := io.LimitReader(resp.Body, limit+1)
	stream := out.media == "text/event-stream"
	if stream {
		err = readEvents(io.TeeReader(in, &buf), event)
	} else {
		_, err = buf.ReadFrom(in)
	}
	switch {
	case err == nil:
	case stream && buf.Len() > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded):
		out.whole = false
	default:
		return nil, s.failure(ctx, err)
	}
	out.body = buf.Bytes()
	if int64(len(out.body)) > limit {
		out.body, out.whole = out.body[:limit], false
	}
	return out, nil
}
