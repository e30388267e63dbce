package gateway

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/gateway/internal/pin"
	"github.com/farcall-dev/farcall/gateway/internal/route"
	"github.com/farcall-dev/farcall/gateway/internal/upstream"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/ledger"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/store"
)

const (
	// idempotencyMember is the member of _meta with the key of a call, and idempotencyHeader the
	// header (draft-ietf-httpapi-idempotency-key-header).
	idempotencyMember = "idempotencyKey"
	idempotencyHeader = "Idempotency-Key"
	// maxIdempotencyKey bounds a key in bytes.
	maxIdempotencyKey = 256
	// secretKey is how long the key of a caller that shares its address with others must be.
	secretKey = 16
	// answersSize bounds the answers that are kept in memory.
	answersSize = 64 << 20
	// keptFor is the default of Config.Idempotency.TTL.
	keptFor = 24 * time.Hour
)

// keyedCalls are the calls with idempotency keys.
type keyedCalls struct {
	*ledger.Ledger
	own io.Closer // nil: the store is not the gateway's
}

// newKeyedCalls opens what the calls with keys are written down in: what the nodes share, the
// directory of the tasks, or memory.
func (g *Gateway) newKeyedCalls(c *Config) error {
	if g.node != nil {
		g.keyed = &keyedCalls{ledger.New(g.opts.Shared, nil), nil}
		return nil
	}
	o := store.Options{MaxBytes: answersSize, Logger: g.log}
	own := store.New(&o)
	if c.Tasks.Dir != "" {
		var err error
		if own, err = store.Open(filepath.Join(c.Tasks.Dir, "ledger"), &o); err != nil {
			return fmt.Errorf("gateway: idempotency keys: %w", err)
		}
	}
	g.keyed = &keyedCalls{ledger.New(own, nil), own}
	return nil
}

// close closes the store, unless others share it. A nil keyedCalls has none.
func (k *keyedCalls) close() error {
	if k == nil || k.own == nil {
		return nil
	}
	return k.own.Close()
}

// keyOf returns the idempotency key of a call, "" for none: that in _meta, in the header, or in the
// argument that the configuration names.
func (g *Gateway) keyOf(params, args jsonrpc.Raw, header string) (string, error) {
	if raw := scan.Member(scan.Member(params, "_meta"), idempotencyMember); raw != nil {
		return keyText(raw, "_meta."+idempotencyMember)
	}
	if header != "" {
		key := strings.TrimSuffix(strings.TrimPrefix(header, `"`), `"`) // it may be a quoted string
		return keyText(jsonrpc.AppendString(nil, key), idempotencyHeader)
	}
	if name := g.plan.Load().config.Idempotency.Argument; name != "" {
		if raw := scan.Member(args, name); raw != nil {
			return keyText(raw, "the argument "+name)
		}
	}
	return "", nil
}

// keyText reads a key. where names it in errors.
func keyText(raw jsonrpc.Raw, where string) (string, error) {
	if len(raw) > 2 && raw[0] == '"' {
		if key := string(scan.Unquote(raw)); len(key) <= maxIdempotencyKey {
			return key, nil
		}
	}
	return "", refusedKey(
		fmt.Sprintf("%s must be a string of 1 to %d bytes", where, maxIdempotencyKey))
}

func refusedKey(text string) error {
	return &jsonrpc.Error{
		Code: jsonrpc.InvalidParams, Message: "Invalid params: " + text,
		Data: jsonrpc.Raw(`{"sent":"no","retryable":false}`),
	}
}

// callOnce is callHooked for a call that may have an idempotency key. Of those with one key, one is
// made; the others get its answer. The guard has decided about each of them.
func (e *endpoint) callOnce(w *calling, t *route.Target) (upstream.Result, error) {
	header := ""
	if r := mcphttp.RequestFrom(w); r != nil {
		header = r.Header.Get(idempotencyHeader)
	}
	args := orNull(scan.Member(w.Params, "arguments"))
	key, err := e.g.keyOf(w.Params, args, header)
	if err != nil {
		return upstream.Result{}, err
	}
	if key == "" {
		return e.callHooked(w, t)
	}
	c, err := e.g.keyedCall(w.Caller.Owner, key,
		fmt.Appendf(nil, "%q %q %q ", e.name, t.Source, t.Name), args)
	if err != nil {
		return upstream.Result{}, err
	}
	c.Continues = scan.Member(w.Params, "requestState") != nil
	parent := w.Parent()
	defer w.derive(parent)
	return e.g.keyed.once(parent, c, func(ctx context.Context) (upstream.Result, error) {
		w.derive(ctx) // it goes on when its client is away
		return e.callHooked(w, t)
	})
}

// headerKey finds the header Idempotency-Key in the context of a call of JSON-RPC.
type headerKey struct{}

// rpcOnce makes a call of JSON-RPC, once if it has an idempotency key. What its _meta has beside
// that may differ.
func (s *server) rpcOnce(ctx context.Context, req *farcall.Request) (any, error) {
	header, _ := ctx.Value(headerKey{}).(string)
	key, err := s.g.keyOf(req.Params, req.Params, header)
	switch {
	case err != nil:
		return nil, err
	case key == "" || req.IsNotification():
		return s.raw.ServeRPC(ctx, req)
	}
	params := orNull(req.Params)
	if params[0] == '{' {
		rest := []byte("{")
		for name, value := range scan.Members(params) {
			if string(name) != "_meta" {
				rest = append(append(jsonrpc.AppendString(rest, string(name)), ':'), append(value, ',')...)
			}
		}
		params = append(bytes.TrimSuffix(rest, []byte(",")), '}')
	}
	c, err := s.g.keyedCall(owner.From(ctx), key,
		fmt.Appendf(nil, "rpc %q %q ", s.cfg.Name, req.Method), params)
	if err != nil {
		return nil, err
	}
	r, err := s.g.keyed.once(ctx, c, func(ctx context.Context) (upstream.Result, error) {
		result, err := s.raw.ServeRPC(ctx, req)
		raw, _ := result.(jsonrpc.Raw) // nil after an error
		return upstream.Result{Raw: raw}, err
	})
	if err != nil {
		return nil, err
	}
	return r.Raw, nil
}

// once executes a call, or returns the answer of the execution that there is.
func (k *keyedCalls) once(
	ctx context.Context, c *ledger.Call, run func(context.Context) (upstream.Result, error),
) (r upstream.Result, err error) {
	var failed error
	ran := false
	value, err := k.Do(ctx, c, func(ctx context.Context) ([]byte, ledger.Effect) {
		ran = true
		r, failed = run(ctx)
		if failed != nil && !errors.Is(failed, mcp.ErrAsked) && !errors.As(failed, new(*jsonrpc.Error)) {
			return nil, ledger.Unknown // no client gets this error of the call
		}
		return appendAnswer(nil, &r, failed), effectOf(&r, failed)
	})
	switch {
	case err != nil:
		return upstream.Result{}, keyError(ctx, err)
	case ran:
		return r, failed
	}
	return readAnswer(value)
}

// keyedCall is a call as the ledger knows it: what is called, and with which arguments of the
// caller.
func (g *Gateway) keyedCall(
	o owner.Key, key string, what []byte, args jsonrpc.Raw,
) (*ledger.Call, error) {
	switch {
	case o.IsZero():
		return nil, refusedKey(
			"an idempotency key needs a caller that has a principal, a session or an address")
	case !o.Exclusive() && len(key) < secretKey:
		return nil, refusedKey(
			fmt.Sprintf(
				"the idempotency key of a caller without a session and a principal must have at "+
					"least %d bytes, "+
					"since others may have the same address: take a random one", secretKey))
	}
	text, err := pin.AppendCanonical(what, args)
	if err != nil {
		return nil, refusedKey("arguments: " + err.Error())
	}
	return &ledger.Call{
		Owner: o, Key: key, Digest: sha256.Sum256(text), TTL: g.plan.Load().config.Idempotency.TTL,
	}, nil
}

func orNull(raw jsonrpc.Raw) jsonrpc.Raw {
	if raw == nil {
		return jsonrpc.Raw("null")
	}
	return raw
}

// effectOf says what an execution has done: nothing, when its error says that the call was not
// sent. A result of plain JSON-RPC, which has no revision, asks nothing.
func effectOf(r *upstream.Result, err error) ledger.Effect {
	wire, _ := errors.AsType[*jsonrpc.Error](err)
	switch {
	case errors.Is(err, mcp.ErrAsked), err == nil && r.Revision != nil &&
		string(scan.Member(r.Raw, "resultType")) == `"input_required"`:
		return ledger.Asked
	case wire != nil && string(scan.Member(wire.Data, "sent")) == `"no"`:
		return ledger.None
	}
	return ledger.Done
}

// appendAnswer appends what is kept of an answer: a line with the revision and the result, or a
// line without one and the error.
func appendAnswer(dst []byte, r *upstream.Result, err error) []byte {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		text, err := jsonv2.Append(append(dst, '\n'), wire)
		if err != nil { // its data is no JSON
			return append(dst, "\n{\"code\":-32603,\"message\":\"Internal error\"}"...)
		}
		return text
	}
	rev := cmp.Or(r.Revision, era.Latest())
	return append(append(append(dst, rev.Name...), '\n'), r.Raw...)
}

var errAnswer = errors.New("gateway: the kept answer of a call cannot be read")

func readAnswer(value []byte) (r upstream.Result, err error) {
	head, raw, ok := bytes.Cut(value, []byte("\n"))
	if !ok {
		return r, errAnswer
	}
	if len(head) == 0 {
		wire := &jsonrpc.Error{}
		if err := jsonv2.Unmarshal(raw, wire); err != nil {
			return r, errors.Join(errAnswer, err)
		}
		return r, wire
	}
	if r.Revision = era.Lookup(string(head)); r.Revision == nil || jsonrpc.Valid(raw) != nil {
		return r, errAnswer
	}
	r.Raw = bytes.Clone(raw)
	return r, nil
}

// keyError is the error of a call that the ledger has no answer for.
func keyError(ctx context.Context, err error) error {
	wire := &jsonrpc.Error{Cause: err}
	switch {
	case errors.Is(err, ledger.ErrOther):
		return refusedKey(
			"the idempotency key belongs to a call with other arguments; take another key for another call")
	case errors.Is(err, ledger.ErrAsked):
		return refusedKey("the call with this idempotency key waits for answers of its client: " +
			"repeat it with its requestState, or take another key to make another call")
	case errors.Is(err, ledger.ErrLost):
		wire.Code, wire.Data = jsonrpc.Unavailable, jsonrpc.Raw(`{"sent":"unknown","retryable":false}`)
		wire.Message = "the call with this idempotency key was begun and its outcome is unknown; " +
			"find out before you call again with another key"
	case errors.Is(err, ledger.ErrLarge):
		wire.Code, wire.Data = jsonrpc.InternalError, jsonrpc.Raw(`{"sent":"yes","retryable":false}`)
		wire.Message = "the call with this idempotency key was made, and its answer was too " +
			"large to be kept"
	case errors.Is(err, ledger.ErrFull):
		wire.Code, wire.Data = jsonrpc.Overloaded,
			jsonrpc.Raw(`{"sent":"no","retryable":true,"retryAfterMs":1000}`)
		wire.Message = "Overloaded: too many calls with idempotency keys are under way"
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		wire.Code, wire.Data = jsonrpc.Unavailable, jsonrpc.Raw(`{"sent":"no","retryable":true}`)
		wire.Message = "the store of idempotency keys cannot be reached, or has no room; the call " +
			"was not made"
	}
	return wire
}
