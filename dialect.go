package farcall

import (
	"github.com/farcall-dev/farcall/internal/cancel"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A Dialect is how two peers write what JSON-RPC leaves open: cancellation and
// progress. The zero value means that of the Language Server Protocol and its
// kin (LSP 3.17, "Cancellation Support" and "Progress Support"):
//
//	Dialect{
//		CancelMethod: "$/cancelRequest", CancelID: "id",
//		ProgressMethod: "$/progress", ProgressToken: "token", ProgressValue: "value",
//		CreditMethod: "$/credit", // not LSP's: sent only to peers that know it
//	}
type Dialect struct {
	// CancelMethod is the notification that cancels a call, and CancelID the
	// member of its params that holds the id of that call.
	CancelMethod, CancelID string
	// CancelReason is the member of those params that says why: the cause of the caller's context
	// ([context.Cause]), unless that is [context.Canceled], as text of at most 1 KiB. The handler gets
	// it as a [CancelError]. Empty: no reason is sent, and none is taken.
	CancelReason string
	// ProgressMethod is the notification that reports progress, and
	// ProgressToken the member of its params that names the call.
	ProgressMethod, ProgressToken string
	// ProgressValue is the member of the params that holds the value. Empty: the
	// value is an object with its members beside the token, and there is no [WorkDone].
	ProgressValue string
	// CreditMethod is the notification that lets the producer of a stream send more, so that a slow
	// consumer slows it; the wire is described in docs/streams.md. Empty: there is no credit, and
	// none is announced. It needs a CancelID and a ProgressValue.
	CreditMethod string
	// Meta is the member of the params that a request for progress and the trace
	// context stand in, "_meta" for example. Empty: they are members of the
	// message itself. Both are understood in either place.
	Meta string
	// TimeoutMember is the member of a request that says how long its caller waits, in milliseconds:
	// "timeoutMs", for example. Calls with a deadline in their context carry it, and the context of a
	// handler ends with it, or with this end's own timeout if that is shorter. Alone, it adds to
	// the dialect of LSP. Empty: no deadline is sent, and none is taken.
	TimeoutMember string
	// PartialResults asks for progress by the member partialResultToken of the params,
	// as LSP does, where the params are an object. [Subscribe] then calls the method
	// itself, and its progress notifications are the events. Otherwise it subscribes as go-ethereum
	// does. Both are understood.
	PartialResults bool
	// CancelSilent leaves a call unanswered that the other end has cancelled.
	CancelSilent bool
}

func lspDialect() Dialect {
	return Dialect{
		CancelMethod: "$/cancelRequest", CancelID: "id",
		ProgressMethod: "$/progress", ProgressToken: "token", ProgressValue: "value",
		CreditMethod: "$/credit",
	}
}

// withDefaults returns LSP's dialect for one that has at most a TimeoutMember.
func (d Dialect) withDefaults() Dialect {
	if d != (Dialect{TimeoutMember: d.TimeoutMember}) {
		return d
	}
	lsp := lspDialect()
	lsp.TimeoutMember = d.TimeoutMember
	return lsp
}

func (d *Dialect) appendCancel(dst []byte, v jsonrpc.Version, id jsonrpc.ID, reason string) []byte {
	params := append(jsonrpc.AppendString([]byte{'{'}, d.CancelID), ':')
	params = append(params, id.Raw()...)
	if d.CancelReason != "" && reason != "" {
		params = append(jsonrpc.AppendString(append(params, ','), d.CancelReason), ':')
		params = jsonrpc.AppendString(params, reason)
	}
	params = append(params, '}')
	return v.AppendRequest(dst, jsonrpc.ID{}, d.CancelMethod, params)
}

// appendProgress appends a report. counts tells the caller that this end keeps to its credit.
func (d *Dialect) appendProgress(
	dst []byte, v jsonrpc.Version, token, value jsonrpc.Raw, counts bool,
) []byte {
	params := append(jsonrpc.AppendString([]byte{'{'}, d.ProgressToken), ':')
	params = append(params, token...)
	if counts {
		params = append(params, `,"credit":true`...)
	}
	switch {
	case d.ProgressValue != "":
		params = append(jsonrpc.AppendString(append(params, ','), d.ProgressValue), ':')
		params = append(append(params, value...), '}')
	case len(value) > 2 && value[0] == '{':
		params = append(append(params, ','), value[1:]...)
	default:
		params = append(params, '}')
	}
	return v.AppendRequest(dst, jsonrpc.ID{}, d.ProgressMethod, params)
}

// cancelled returns the id of the call that a notification cancels, and why.
func (d *Dialect) cancelled(m *jsonrpc.Message) (id jsonrpc.Raw, reason string, ok bool) {
	if string(m.Method) != d.CancelMethod {
		return nil, "", false
	}
	if d.CancelReason != "" {
		reason = cancel.Given(scan.Member(m.Params, d.CancelReason))
	}
	return scan.Member(m.Params, d.CancelID), reason, true
}

// progress returns the token and the value that a notification reports. ok is
// false when it is no progress notification.
func (d *Dialect) progress(m *jsonrpc.Message) (token, value jsonrpc.Raw, ok bool) {
	if string(m.Method) != d.ProgressMethod {
		return nil, nil, false
	}
	if d.ProgressValue == "" {
		return scan.Member(m.Params, d.ProgressToken), m.Params, true
	}
	return scan.Member(m.Params, d.ProgressToken), scan.Member(m.Params, d.ProgressValue), true
}
