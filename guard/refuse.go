package guard

import (
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// A condition is a reason to refuse, as the registry has it (see jsonrpc.Conditions).
type condition struct {
	text                  string
	plain, legacy, modern jsonrpc.Code
	status                int // of HTTP
}

var (
	unauthenticated  = condition{"Unauthenticated", -32051, -32051, -31051, 401}
	permissionDenied = condition{"Permission denied", -32002, -32056, -31056, 403}
	rateLimited      = condition{"Rate limited", -32050, -32050, -31050, 429}
	replayed         = condition{"Replayed request", -32052, -32052, -31052, 401}
	badSignature     = condition{"Bad signature", -32053, -32053, -31053, 401}
	stale            = condition{"Stale request", -32054, -32054, -31054, 401}
	unjudged         = condition{"Schema not supported", -32040, -32040, -31040, 422}
	unavailable      = condition{"Unavailable", -32008, -32008, -31008, 503}
	overloaded       = condition{"Overloaded", jsonrpc.Overloaded, jsonrpc.Overloaded, jsonrpc.Overloaded, 503}
)

// invalidParams tells the caller what is wrong with what it has sent.
func invalidParams(err error) condition {
	return condition{"Invalid params: " + err.Error(), jsonrpc.InvalidParams, jsonrpc.InvalidParams, jsonrpc.InvalidParams, 400}
}

// tooLarge is for what exceeds a bound of HTTP.
func tooLarge(what string, size, limit int64, status int) *refusal {
	r := refuse(condition{what + " too large", jsonrpc.TooLarge, jsonrpc.TooLarge, -31012, status}, "it has "+strconv.FormatInt(size, 10)+" bytes")
	r.limit = limit
	return r
}

// noCredentials is the reason of a refusal that does not count as a wrong credential.
const noCredentials = "there are no credentials" //nolint:gosec // it is none

// code is its number for a call.
func (c *condition) code(call *Call) jsonrpc.Code {
	switch {
	case call == nil || !call.MCP && !call.Modern:
		return c.plain
	case call.Modern:
		return c.modern
	}
	return c.legacy
}

// A refusal says why something may not proceed.
type refusal struct {
	condition
	reason string        // for the operator; a caller with Options.Details gets it
	after  time.Duration // when to try again
	limit  int64         // of bytes, that the request exceeds
	scopes []string      // that would be enough
	nonce  bool          // for DPoP
	locked bool          // the credentials are good, and locked
	shadow bool          // the call proceeds all the same
}

func refuse(c condition, reason string) *refusal { return &refusal{condition: c, reason: reason} }

func (r *refusal) Error() string { return "guard: " + r.text + ": " + r.reason }

// HTTPStatus is the status of the answer, where the transport has one for each call: the table of
// conditions decides, whichever handler refuses.
func (r *refusal) HTTPStatus() int { return r.status }

// wire is the answer to a call.
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
	if details {
		data = append(data, `"reason":`+string(jsonrpc.AppendString(nil, r.reason)))
	}
	if len(data) > 0 {
		e.Data = jsonrpc.Raw("{" + strings.Join(data, ",") + "}")
	}
	return e
}
