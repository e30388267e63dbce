package mcp

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// Why a user gave no answer.
var (
	ErrDeclined  = errors.New("the user declined to answer")
	ErrCancelled = errors.New("the user gave no answer")
)

// ErrAsked is what [Ask] and its like return in the modern era while the client is
// being asked: the handler returns it, and runs again when the answer is there.
var ErrAsked = errors.New(
	"mcp: the client is being asked; return this error, the handler runs again when the " +
		"answer is there")

var errSurrounds = errors.New(
	"mcp: middleware cannot ask the client; ask in the handler that it surrounds")

var errOutside = errors.New(
	"mcp: only the handler of a tool, a prompt or a resource can ask the client; pass on the " +
		"context that it got")

// Elicit asks the user to fill in a form and returns what it was filled in with.
// T is a struct: its fields are the form's, of the types string, number, bool or
// slice of string, with the struct tags that the arguments of a tool have.
//
// The same handler asks clients of every revision. In the legacy era, and in a
// task, Elicit waits for the answer. In the modern era it returns an error for
// the handler to return, the client collects the answers and calls again, and
// the handler runs again, from its start; then Elicit returns the answer. So a
// handler that asks must ask the same in each of its runs, and what it does
// before it asks, it does several times: see [Once]. To ask for several things
// in one round, ask all of them before looking at the errors; asking in several
// goroutines is fine.
//
// When T cannot be a form, the call fails with an internal error, and the log says what is wrong
// with T; [Form] finds that when the program starts. Otherwise the error is [ErrDeclined] or
// [ErrCancelled] when that is what the user did, and another one when the client cannot ask its
// user or when its answer does not fit the form.
func Elicit[T any](ctx context.Context, message string) (T, error) {
	form, err := schema.Elicitation(reflect.TypeFor[T]())
	if err != nil {
		var v T
		return v, &jsonrpc.Error{ // the program is wrong, which is neither for the user nor for the model
			Code: jsonrpc.InternalError, Message: "Internal error",
			Cause: fmt.Errorf("mcp: Elicit: %w", err),
		}
	}
	return elicit[T](ctx, message, form)
}

// Form is [Elicit] for a form that is known when the program starts, in a variable of the package:
//
//	var askOrder = mcp.Form[order]()
//
// It panics when T cannot be a form, so that no user and no model finds that out. What it returns
// asks with a message, and may be used by several goroutines at once.
func Form[T any]() func(ctx context.Context, message string) (T, error) {
	form, err := schema.Elicitation(reflect.TypeFor[T]())
	if err != nil {
		panic(fmt.Sprintf("mcp: Form: %v", err)) //nolint:forbidigo // as at each registration
	}
	return func(ctx context.Context, message string) (T, error) {
		return elicit[T](ctx, message, form)
	}
}

func elicit[T any](ctx context.Context, message string, form jsonrpc.Raw) (v T, err error) {
	var answer spec.ElicitResult
	err = Ask(ctx, spec.MethodElicitationCreate, &spec.ElicitRequestParams{
		Mode: spec.ElicitForm, Message: message, RequestedSchema: form,
	}, &answer)
	if err == nil {
		err = userError(&answer)
	}
	if err != nil {
		return v, err
	}
	if err := jsonv2.Unmarshal(withDefaults(answer.Content, form), &v); err != nil {
		return v, fmt.Errorf("mcp: the user's answer fits the form, but not the type %s: %w",
			reflect.TypeFor[T](), err)
	}
	return v, nil
}

// ElicitURL asks the user to visit a page, to sign in for example, and returns
// when the user has agreed to. That something was done there is for the page's
// own server to find out. It is like [Elicit] in everything else.
func ElicitURL(ctx context.Context, message, url string) error {
	var answer spec.ElicitResult
	err := Ask(ctx, spec.MethodElicitationCreate,
		&spec.ElicitRequestParams{Mode: spec.ElicitURL, Message: message, URL: url}, &answer)
	if err != nil {
		return err
	}
	return userError(&answer)
}

// Sample asks the client's language model. It is like [Elicit] in everything
// else.
func Sample(
	ctx context.Context, params *spec.CreateMessageRequestParams,
) (*spec.CreateMessageResult, error) {
	var answer spec.CreateMessageResult
	if err := Ask(ctx, spec.MethodSamplingCreateMessage, params, &answer); err != nil {
		return nil, err
	}
	return &answer, nil
}

// Roots asks the client in which places it lets the server work. It is like
// [Elicit] in everything else.
func Roots(ctx context.Context) ([]Root, error) {
	var answer spec.ListRootsResult
	if err := Ask(ctx, spec.MethodRootsList, nil, &answer); err != nil {
		return nil, err
	}
	return answer.Roots, nil
}

// Ask is what [Elicit], [ElicitURL], [Sample] and [Roots] are made of: it sends
// elicitation/create, sampling/createMessage or roots/list with any params, in
// the form of the newest revision, and stores the result, in that form too. A
// form that was filled in has been checked against its requestedSchema, which must be
// valid; that of another server, in a relay, is enforced as far as it can be judged.
func Ask(ctx context.Context, method string, params, result any) error {
	c := callFrom(ctx)
	if c == nil {
		return errOutside
	}
	q, err := newQuestion(ctx, method, params, c.srv.relays())
	if err != nil {
		return fmt.Errorf("mcp: ask %q: %w", method, err)
	}
	raw, err := c.ask(ctx, q)
	if err != nil {
		return err
	}
	if out, ok := result.(*jsonrpc.Raw); ok {
		*out = raw
		return nil
	}
	return jsonv2.Unmarshal(raw, result)
}

// userError returns what the action of a user means for the handler.
func userError(r *spec.ElicitResult) error {
	switch r.Action {
	case spec.ElicitDecline:
		return ErrDeclined
	case spec.ElicitCancel:
		return ErrCancelled
	}
	return nil
}

// ask asks the client, in the way that there is, and returns its answer in
// canonical form.
func (c *call) ask(ctx context.Context, q *question) (jsonrpc.Raw, error) {
	if r := c.request; r != nil && r.call != nil && !r.running.Load() && !c.isOver() {
		return nil, errSurrounds
	}
	if !q.need.met(c) {
		return nil, q.need.refuse(c)
	}
	if c.task != nil && c.task.asks { // its handler runs once
		if err := c.beginTask(); err != nil {
			return nil, err
		}
	}
	switch {
	case c.task.started():
		return c.task.ask(ctx, q)
	case !c.rev.InputRounds:
		if c.isOver() {
			return nil, errOver
		}
		return c.askNow(ctx, q)
	case !c.mayAsk: // 2026-07-28 basic/patterns/mrtr, "Supported Requests"
		return nil,
			fmt.Errorf(
				"mcp: ask %q: no client may be asked while %q is answered; only tools/call, prompts/get and "+
					"resources/read can ask", q.method, c.method)
	}
	a, err := c.rounds()
	if err != nil {
		return nil, err
	}
	return a.ask(q)
}

// need is what a client must be able to do, to be asked something.
type need struct {
	name string // for people
	caps spec.ClientCapabilities
	in   func(*era.Revision) bool
	has  func(*spec.ClientCapabilities) bool
}

var (
	needForm = &need{
		name: "elicitation",
		caps: spec.ClientCapabilities{Elicitation: &spec.ElicitationCapability{}},
		in:   func(r *era.Revision) bool { return r.Elicitation },
		has: func(c *spec.ClientCapabilities) bool {
			e := c.Elicitation // that of neither mode is of the form
			return e != nil && (e.Form != nil || e.URL == nil)
		},
	}
	needURL = &need{
		name: "elicitation.url",
		caps: spec.ClientCapabilities{Elicitation: &spec.ElicitationCapability{URL: spec.JSONObject{}}},
		in:   func(r *era.Revision) bool { return r.ElicitationURL },
		has: func(c *spec.ClientCapabilities) bool {
			return c.Elicitation != nil && c.Elicitation.URL != nil
		},
	}
	needSampling = &need{
		name: "sampling", caps: spec.ClientCapabilities{Sampling: &spec.SamplingCapability{}}, in: every,
		has: func(c *spec.ClientCapabilities) bool { return c.Sampling != nil },
	}
	needSamplingTools = &need{
		name: "sampling.tools",
		caps: spec.ClientCapabilities{Sampling: &spec.SamplingCapability{Tools: spec.JSONObject{}}},
		in:   func(r *era.Revision) bool { return r.SamplingTools },
		has: func(c *spec.ClientCapabilities) bool {
			return c.Sampling != nil && c.Sampling.Tools != nil
		},
	}
	needRoots = &need{
		name: "roots", caps: spec.ClientCapabilities{Roots: &spec.RootsCapability{}}, in: every,
		has: func(c *spec.ClientCapabilities) bool { return c.Roots != nil },
	}
	needTasks = &need{
		name: "extensions[" + spec.ExtensionTasks + "]",
		caps: spec.ClientCapabilities{Extensions: map[string]any{spec.ExtensionTasks: spec.JSONObject{}}},
		in:   func(r *era.Revision) bool { return r.TasksExtension },
		has:  func(c *spec.ClientCapabilities) bool { return c.Extensions[spec.ExtensionTasks] != nil },
	}
)

// met reports whether the client can be asked.
func (n *need) met(c *call) bool { return n.in(c.rev) && n.has(c.caps()) }

// refuse returns the error of a client that cannot. Where the protocol has one
// that belongs to it, it is that (2026-07-28, basic, "Missing required capabilities").
func (n *need) refuse(c *call) error {
	if !c.rev.ReservedCodes {
		if !n.in(c.rev) {
			return fmt.Errorf("mcp: the client cannot be asked: revision %s has no %s", c.rev.Name, n.name)
		}
		return fmt.Errorf("mcp: the client cannot be asked: it does not declare the capability %s",
			n.name)
	}
	data, err := jsonv2.Append(nil,
		spec.MissingRequiredClientCapabilityData{RequiredCapabilities: n.caps})
	if err != nil {
		return err
	}
	return &jsonrpc.Error{
		Code: spec.MissingRequiredClientCapability, Data: data,
		Message: "Missing required client capability: " + n.name,
	}
}

// Once returns what f returns and does not run it again when the handler does,
// after it has asked the client: see [Elicit]. So what costs or changes
// something is done once for each call, as long as the client goes on with it.
// The key tells one Once of a handler from another.
//
// The T goes through JSON, also the first time. It is kept by the client, sealed
// so that the client can neither read nor change it; all the answers and Ts of a
// call may take up 64 KiB. An error of f is not kept.
func Once[T any](ctx context.Context, key string, f func() (T, error)) (T, error) {
	var v T
	c := callFrom(ctx)
	if c == nil || !c.mayAsk { // its handler runs once anyway
		return f()
	}
	a, err := c.rounds()
	if err != nil {
		return v, err
	}
	raw, err := a.once(ctx, key, func() (jsonrpc.Raw, error) {
		v, err := f()
		if err != nil {
			return nil, err
		}
		raw, err := jsonv2.Append(nil, v)
		if err != nil {
			return nil, fmt.Errorf("mcp: Once %q: %w", key, err)
		}
		return raw, nil
	})
	if err != nil {
		return v, err
	}
	if err := jsonv2.Unmarshal(raw, &v); err != nil {
		return v, fmt.Errorf("mcp: Once %q: its JSON is no %s again: %w", key, reflect.TypeFor[T](), err)
	}
	return v, nil
}

// memos are the results of Once. asks guards them.
type memos struct {
	done    map[string]jsonrpc.Raw
	running map[string]chan struct{} // closed when it runs no more
}

func (a *asks) once(
	ctx context.Context, key string, f func() (jsonrpc.Raw, error),
) (jsonrpc.Raw, error) {
	for {
		raw, wait := a.begin(key)
		if raw != nil {
			return raw, nil
		}
		if wait == nil {
			return a.run(key, f)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// begin returns the result, or what to wait for while another one is at it, or
// neither: then it is the caller's.
func (a *asks) begin(key string) (raw jsonrpc.Raw, wait <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if raw, ok := a.memos.done[key]; ok {
		return raw, nil
	}
	if ch, ok := a.memos.running[key]; ok {
		return nil, ch
	}
	setEntry(&a.memos.running, key, make(chan struct{}))
	return nil, nil
}

func (a *asks) run(key string, f func() (jsonrpc.Raw, error)) (raw jsonrpc.Raw, err error) {
	defer func() { // also when f panics
		a.mu.Lock()
		defer a.mu.Unlock()
		close(a.memos.running[key])
		delete(a.memos.running, key)
		if raw != nil && err == nil {
			if err = a.grow(key, raw); err == nil {
				setEntry(&a.memos.done, key, raw)
			}
		}
	}()
	return f()
}
