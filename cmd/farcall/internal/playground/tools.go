package playground

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

type sleepParams struct {
	MS int `json:"ms" doc:"milliseconds" min:"0" max:"600000"`
}

type sleepProgress struct {
	MS int `json:"ms"`
	Of int `json:"of"`
}

type failParams struct {
	Kind string `json:"kind,omitzero" doc:"what goes wrong" enum:"error,panic,internal,validation,permission,timeout,dependency"`
}

type callbackParams struct {
	Method string      `json:"method" doc:"a method that the caller serves"`
	Params jsonrpc.Raw `json:"params,omitempty" doc:"an object or an array"`
}

func registerTools(mux *farcall.Mux) {
	farcall.Handle(mux, "echo", echo,
		"Give the params back, byte for byte",
		"Numbers keep their digits, strings their escapes, and white space its place.")
	farcall.Handle(mux, "update", nothing, "Take anything and do nothing, as in the examples of the specification")
	farcall.Handle(mux, "notify_hello", nothing, "Take a notification, as in the examples of the specification")
	farcall.Handle(mux, "notify_sum", nothing, "Take a notification, as in the examples of the specification")
	farcall.Handle(mux, "get_data", getData, "Give a word and a number, as in the examples of the specification")
	farcall.Handle(mux, "sleep", sleep,
		"Wait, tell the progress, and stop when the call is cancelled")
	farcall.Handle(mux, "fail", fail,
		"Fail in a chosen way",
		"error is an application error, internal an error with a cause that stays in the log, and panic a panic in the handler. The others are application errors with their own codes.")
	farcall.Handle(mux, "callback", callback,
		"Call a method of the caller over the same connection, and give its answer back",
		"This needs a connection that goes both ways: WebSocket, TCP, a unix socket or stdio.")
}

func echo(_ context.Context, params jsonrpc.Raw) (jsonrpc.Raw, error) {
	return bytes.Clone(params), nil // the memory of the request ends with the handler
}

func getData(context.Context, none) ([]any, error) { return []any{"hello", 5}, nil }

// nothing takes any params and answers null.
func nothing(context.Context, jsonrpc.Raw) (none, error) { return none{}, nil }

// sleep reports its progress ten times, but not more often than every 10 ms
// and not more seldom than every second.
func sleep(ctx context.Context, p sleepParams) (sleepProgress, error) {
	step := min(max(p.MS/10, 10), 1000)
	for slept := 0; slept < p.MS; {
		next := min(step, p.MS-slept)
		timer := time.NewTimer(time.Duration(next) * time.Millisecond)
		select {
		case <-ctx.Done():
			timer.Stop()
			return sleepProgress{}, ctx.Err()
		case <-timer.C:
		}
		slept += next
		if err := farcall.Progress(ctx, sleepProgress{slept, p.MS}); err != nil {
			return sleepProgress{}, err
		}
	}
	return sleepProgress{p.MS, p.MS}, nil
}

func fail(_ context.Context, p failParams) (none, error) {
	switch p.Kind {
	case "", "error":
		return none{}, fault(errFailed, "Failed as asked", "kind", "error")
	case "panic":
		panic("playground: asked to panic") //nolint:forbidigo // it shows that a panic ends one call only
	case "internal":
		return none{}, errors.New("playground: a cause that stays in the log")
	case "validation":
		return none{}, fault(errValidation, "Invalid user data", "kind", p.Kind)
	case "permission":
		return none{}, fault(errPermission, "Unauthorized", "kind", p.Kind)
	case "timeout":
		return none{}, fault(errTimeout, "Request timeout", "kind", p.Kind)
	case "dependency":
		return none{}, fault(errDependency, "Upstream service failed", "kind", p.Kind)
	}
	return none{}, invalid("kind", "must be error, panic, internal, validation, permission, timeout or dependency")
}

func callback(ctx context.Context, p callbackParams) (jsonrpc.Raw, error) {
	var params any
	if len(p.Params) > 0 {
		params = p.Params
	}
	var answer jsonrpc.Raw
	err := farcall.CallerFrom(ctx).Call(ctx, p.Method, params, &answer)
	return answer, farcall.PassOn(err) // about the method that the caller has named
}

// The application errors of the playground. The numbers are its own choice
// from the range that JSON-RPC leaves to servers (section 5.1).
const (
	errFailed     jsonrpc.Code = -32000
	errValidation jsonrpc.Code = -32001
	errPermission jsonrpc.Code = -32002
	errTimeout    jsonrpc.Code = -32003
	errDependency jsonrpc.Code = -32004
)

// fault makes an error with the data that the caller may see: an object of the given
// names and texts.
func fault(code jsonrpc.Code, message string, data ...string) error {
	raw := jsonrpc.Raw{'{'}
	for i, text := range data {
		switch {
		case i%2 == 1:
			raw = append(raw, ':')
		case i > 0:
			raw = append(raw, ',')
		}
		raw = jsonrpc.AppendString(raw, text)
	}
	return &jsonrpc.Error{Code: code, Message: message, Data: append(raw, '}')}
}

// invalid refuses params that have the right type and a value the method
// cannot work with.
func invalid(member, reason string) error {
	return fault(errValidation, "Invalid user data", "member", member, "reason", reason)
}
