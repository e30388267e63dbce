package guard

import (
	"net/http"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// SignRequest signs a request over HTTP (RFC 9421, with the digest of its body), as the Signer id. The key is
// a []byte for HMAC-SHA-256 or an ed25519.PrivateKey.
func SignRequest(r *http.Request, id string, key any) error { return errTodo }

// SignParams returns the params of a message with its signature in _meta (see docs/security.md for the bytes that
// are signed). The key is as for SignRequest. Params of a list cannot be signed.
func SignParams(method string, params jsonrpc.Raw, id string, key any) (jsonrpc.Raw, error) {
	return nil, errTodo
}
