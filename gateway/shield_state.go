package gateway

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A seal binds the request state of a modern server to that server: after a reload the name of a
// tool may lead to another one. With a guard it is bound to the caller, too: to the server all
// callers are the gateway. What is bound is a MAC, a dot and the server's own. Without a guard the
// key is empty, so that a state outlives the process: a client could as well make one up. The nodes
// of a cluster have the same key, so that each accepts what another has bound.
type seal struct{ key []byte }

func newSeal(guarded bool, nodes []byte) *seal {
	s := &seal{}
	switch {
	case guarded && nodes != nil:
		s.key = nodes
	case guarded:
		s.key = make([]byte, 32)
		_, _ = rand.Read(s.key) // it does not fail
	}
	return s
}

var errState = &jsonrpc.Error{
	Code: jsonrpc.InvalidParams, Message: "Invalid params: the requestState is of another caller or server, or from before a restart; repeat the call without it",
}

// sum is different for every server and state, and with a guard for every owner.
func (s *seal) sum(w *calling, server, state string) string {
	mac := hmac.New(sha256.New, s.key)
	owner := ""
	if len(s.key) > 0 {
		owner = w.Caller.Owner.Text()
	}
	for _, part := range []string{owner, server, state} {
		n := sha256.Sum256([]byte(part))
		mac.Write(n[:])
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:24])
}

// open returns the params of a call with the server's own state.
func (s *seal) open(w *calling, server string) (jsonrpc.Raw, error) {
	if scan.Member(w.Params, "requestState") == nil {
		return w.Params, nil
	}
	given, _ := text(w.Params, "requestState")
	sum, state, ok := strings.Cut(given, ".")
	if !ok || !hmac.Equal([]byte(sum), []byte(s.sum(w, server, state))) {
		return nil, errState
	}
	return withMember(w.Params, "requestState", jsonrpc.AppendString(nil, state)), nil
}

// close binds the state in a result.
func (s *seal) close(w *calling, server string, r upstream.Result) upstream.Result {
	if state, ok := text(r.Raw, "requestState"); ok {
		r.Raw = withMember(r.Raw, "requestState", jsonrpc.AppendString(nil, s.sum(w, server, state)+"."+state))
	}
	return r
}
