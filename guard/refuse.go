package guard

import (
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// invalidText tells the caller what is wrong with what it has sent.
func invalidText(err error) string {
	return jsonrpc.InvalidParams.Condition().Name + ": " + err.Error()
}

// invalid refuses params; err is public.
func invalid(err error, reason string) *refusal {
	r := refuse(jsonrpc.InvalidParams, reason)
	r.text = invalidText(err)
	return r
}

// tooLarge is for what exceeds a bound of HTTP.
func tooLarge(what string, size, limit int64, status int) *refusal {
	r := refuse(jsonrpc.TooLarge, "it has "+strconv.FormatInt(size, 10)+" bytes")
	r.text, r.status, r.limit = what+" too large", status, limit
	return r
}

// noCredentials is the reason of a refusal that does not count as a wrong credential.
const noCredentials = "there are no credentials" //nolint:gosec // it is not a secret

// A refusal says why something may not proceed.
type refusal struct {
	kind   jsonrpc.Code  // of the registry, see jsonrpc.Condition
	text   string        // for the caller
	status int           // of HTTP
	reason string        // for the operator; see wire for who else gets it
	after  time.Duration // when to try again
	limit  int64         // of bytes, that the request exceeds
	scopes []string      // that would be enough
	nonce  bool          // for DPoP
	locked bool          // the credentials are good, and locked
	shadow bool          // the call proceeds all the same
}

// refuse returns a refusal with the text and the status of the registry.
func refuse(kind jsonrpc.Code, reason string) *refusal {
	c := kind.Condition()
	return &refusal{kind: kind, text: c.Name, status: c.HTTPStatus, reason: reason}
}

// code is the number for a call.
func (r *refusal) code(call *Call) jsonrpc.Code {
	c := r.kind.Condition()
	switch {
	case call == nil || !call.MCP && !call.Modern:
		return c.Plain
	case call.Modern:
		return c.Modern
	}
	return c.Legacy
}

func (r *refusal) Error() string { return "guard: " + r.text + ": " + r.reason }

// HTTPStatus is the status of the answer, where the transport has one for each call: the table of
// conditions decides, whichever handler refuses.
func (r *refusal) HTTPStatus() int { return r.status }

// wire is the answer to a call. It has the reason where the registry says that every caller gets
// it, and with details.
func (r *refusal) wire(c *Call, details bool) *jsonrpc.Error {
	e := &jsonrpc.Error{Code: r.code(c), Message: r.text, Cause: r}
	var data []string
	if r.limit > 0 {
		data = append(data, `"maxSize":`+strconv.FormatInt(r.limit, 10), `"unit":"bytes"`)
	}
	if r.after > 0 {
		data = append(data, `"retryable":true`, `"retryAfterMs":`+strconv.FormatInt((r.after+time.Millisecond-1).Milliseconds(), 10))
	}
	if len(r.scopes) > 0 {
		data = append(data, `"scope":`+string(jsonrpc.AppendString(nil, strings.Join(r.scopes, " "))))
	}
	if c := r.kind.Condition(); details || c.Explained() && r.limit == 0 {
		data = append(data, `"reason":`+string(jsonrpc.AppendString(nil, r.reason)))
	}
	if len(data) > 0 {
		e.Data = jsonrpc.Raw("{" + strings.Join(data, ",") + "}")
	}
	return e
}
