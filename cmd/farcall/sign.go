package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// maxKeyFile bounds a file with a key or a token.
const maxKeyFile = 64 << 10

// signFlag adds --sign.
func (r *remote) signFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.audience, "sign-for", "",
		"the `URL` that the server calls its resource, where the message itself is signed")
	cmd.Flags().StringVar(&r.sign, "sign", "",
		"sign the call as `ID=FILE`: a secret, or a private key for Ed25519 in PEM ('farcall "+
			"key sign-new')")
}

// readKeyFile returns what is in a file, without white space around it. It warns when other
// users can read it.
func (r *remote) readKeyFile(flag, path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		// Without what was given: a user may take it for the place of the key itself.
		return nil,
			usagef("Give a file with the key: the list of processes shows what is on a command line.",
				"--%s: cannot read the file: %w", flag, pathReason(err))
	}
	if data = bytes.TrimSpace(data); len(data) == 0 || len(data) > maxKeyFile {
		return nil, usagef("", "--%s: there is no key in %s", flag, path)
	}
	if text := exposure(path); text != "" && !r.warned {
		r.warned = true // a call may read it several times
		fmt.Fprintln(r.stderr, "farcall:", text)
	}
	return data, nil
}

// addBearer adds the header of --bearer.
func (r *remote) addBearer(h http.Header) error {
	if r.bearer == "" {
		return nil
	}
	if h.Get("Authorization") != "" {
		return usagef("Leave one out.", "--bearer: there is an Authorization header as well")
	}
	token, err := r.readKeyFile("bearer", r.bearer)
	if err != nil {
		return err
	}
	if bytes.ContainsAny(token, " \t\r\n") {
		return usagef("It must be one word.", "--bearer: what is in %s is no key or token", r.bearer)
	}
	h.Set("Authorization", "Bearer "+string(token))
	return nil
}

// signer reads --sign: a secret in bytes, or an ed25519.PrivateKey. A nil key: nothing is
// to be signed.
func (r *remote) signer() (id string, key any, err error) {
	if r.sign == "" {
		return "", nil, nil
	}
	id, file, ok := strings.Cut(r.sign, "=")
	if !ok || id == "" || file == "" {
		return "", nil, usagef("Write it as --sign ID=FILE.", "--sign: %q has no id or no file", r.sign)
	}
	data, err := r.readKeyFile("sign", file)
	if err != nil {
		return "", nil, err
	}
	if !bytes.HasPrefix(data, []byte("-----BEGIN ")) {
		return id, data, nil
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return "", nil, usagef("", "--sign: the PEM in %s cannot be read", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := parsed.(ed25519.PrivateKey)
	if err != nil || !ok {
		return "", nil, usagef("'farcall key sign-new --ed25519' makes one.",
			"--sign: what is in %s is no private key for Ed25519 (PKCS #8)", file)
	}
	return id, private, nil
}

// signed wraps what sends requests over HTTP, if they are to be signed (RFC 9421).
func (r *remote) signed(next http.RoundTripper) (http.RoundTripper, error) {
	id, key, err := r.signer()
	if err != nil || key == nil {
		return next, err
	}
	return &signing{next: next, id: id, key: key}, nil
}

// signMessage signs a message itself, for a target that has no HTTP.
func (r *remote) signMessage(
	t *target.Target, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, error) {
	id, key, err := r.signer()
	if err != nil || key == nil || t.Kind == target.HTTP || t.Kind == target.WebSocket {
		return params, err
	}
	out, err := guard.SignParams(method, params, id, r.audience, key)
	if err != nil {
		return nil, usagef("Params of a list cannot be signed; write them by name.", "--sign: %w",
			plainError{err})
	}
	return out, nil
}

// signing signs each request.
type signing struct {
	next http.RoundTripper
	id   string
	key  any
}

// RoundTrip implements [http.RoundTripper].
func (s *signing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if err := guard.SignRequest(r, s.id, s.key); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return s.next.RoundTrip(r)
}
