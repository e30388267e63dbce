package guard

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/farcall-dev/farcall/guard/internal/sign"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// SignRequest signs a request over HTTP (RFC 9421, with the digest of its body), as the Signer id.
// The key is a []byte for HMAC-SHA-256 or an ed25519.PrivateKey. The body is read, and may be read
// again.
func SignRequest(r *http.Request, id string, key any) error {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return fmt.Errorf("guard: cannot read the body to be signed: %w", err)
		}
		_ = r.Body.Close() // it was read
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		r.ContentLength = int64(len(body))
	}
	if err := sign.HTTP(r, body, id, key, time.Now(), rand.Text()); err != nil {
		return fmt.Errorf("guard: %w", err)
	}
	return nil
}

// SignParams returns the params of a message with its signature in _meta (see docs/security.md for
// the bytes that are signed). audience is the Resource.URL of the server, "" where it has none. The
// key is as for SignRequest. Params that are a list cannot be signed.
func SignParams(method string, params jsonrpc.Raw, id, audience string, key any) (jsonrpc.Raw, error) {
	signed, err := sign.Message(method, params, id, key, time.Now(), rand.Text(), audience)
	if err != nil {
		return nil, fmt.Errorf("guard: %w", err)
	}
	return signed, nil
}
