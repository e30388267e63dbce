package mcp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// What a server may ask for in one result, and how much of it at once.
const (
	maxQuestions = 100
	maxAtOnce    = 8
)

// answerAll answers what a server asks for in a result.
func (c *Client) answerAll(
	ctx context.Context, requests map[string]spec.InputRequest,
) (jsonrpc.Raw, error) {
	if len(requests) > maxQuestions {
		return nil, fmt.Errorf("%w: the server asks for %d things at once; %d are answered at most",
			farcall.ErrProtocol, len(requests), maxQuestions)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		first error
	)
	answers := make(map[string]jsonrpc.Raw, len(requests))
	room := make(chan struct{}, maxAtOnce)
	for key, request := range requests {
		if room <- struct{}{}; ctx.Err() != nil {
			break
		}
		wait.Go(func() {
			defer func() { <-room }()
			answer, err := c.answerSafely(ctx, request)
			mu.Lock()
			defer mu.Unlock()
			answers[key] = answer
			if err != nil && first == nil {
				first = fmt.Errorf("the server asked for %s, which got no answer: %w", request.Method, err)
				cancel()
			}
		})
	}
	wait.Wait()
	if first == nil {
		first = ctx.Err()
	}
	if first != nil {
		return nil, first
	}
	o := object.New(nil)
	for _, key := range slices.Sorted(maps.Keys(answers)) {
		o.Add(key, answers[key])
	}
	return o.End(), nil
}

// answerSafely turns the panic of a callback into an error. A request that comes
// on its own has that of the peer.
func (c *Client) answerSafely(
	ctx context.Context, request spec.InputRequest,
) (answer jsonrpc.Raw, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the callback panicked: %v", v)
		}
	}()
	return c.answerRequest(ctx, request.Method, request.Params)
}

// answerRequest answers one thing that the server asks for. Both are in the form
// of the newest revision.
func (c *Client) answerRequest(
	ctx context.Context, method string, params jsonrpc.Raw,
) (jsonrpc.Raw, error) {
	var result any
	var err error
	switch {
	case c.opts.Ask != nil:
		return c.opts.Ask(ctx, method, params)
	case method == spec.MethodElicitationCreate && c.opts.Elicit != nil:
		return c.elicit(ctx, params)
	case method == spec.MethodSamplingCreateMessage && c.opts.Sample != nil:
		p := new(spec.CreateMessageRequestParams)
		if err := jsonv2.Unmarshal(object.OrEmpty(params), p); err != nil {
			return nil, badParams(err)
		}
		result, err = c.opts.Sample(ctx, p)
	case method == spec.MethodRootsList && c.opts.Roots != nil:
		var roots []spec.Root
		roots, err = c.opts.Roots(ctx)
		result = &spec.ListRootsResult{Roots: roots}
	default:
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound, "this client does not offer %q", method)
	}
	if err != nil {
		return nil, err
	}
	return jsonv2.Append(nil, result)
}

func badParams(err error) error {
	return &jsonrpc.Error{Code: jsonrpc.InvalidParams, Message: "Invalid params", Cause: err}
}

// elicit asks the user.
func (c *Client) elicit(ctx context.Context, params jsonrpc.Raw) (jsonrpc.Raw, error) {
	p := new(spec.ElicitRequestParams)
	if err := jsonv2.Unmarshal(object.OrEmpty(params), p); err != nil {
		return nil, badParams(err)
	}
	fields, err := c.form(p)
	if err != nil {
		return nil, err
	}
	r, err := c.opts.Elicit(ctx, p)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, errors.New("ClientOptions.Elicit returned neither a result nor an error")
	}
	answer := *r
	switch answer.Action {
	case spec.ElicitAccept:
	case spec.ElicitDecline, spec.ElicitCancel:
		fields = nil
	default:
		return nil, fmt.Errorf(
			"ClientOptions.Elicit returned the action %q; it is accept, decline or cancel", answer.Action)
	}
	if fields == nil {
		answer.Content = nil
		return jsonv2.Append(nil, answer)
	}
	answer.Content = withDefaults(answer.Content, p.RequestedSchema)
	if err := fields.Validate(answer.Content); err != nil {
		return nil, fmt.Errorf("what ClientOptions.Elicit returned does not fit the form: %w", err)
	}
	return jsonv2.Append(nil, answer)
}

// form returns the schema of the form that is to be filled in; nil: it is a URL
// to be visited.
func (c *Client) form(p *spec.ElicitRequestParams) (*validate.Schema, error) {
	offered := c.capabilities(true).Elicitation
	switch {
	case offered == nil:
	case p.Mode == spec.ElicitURL && offered.URL != nil:
		return nil, nil
	case (p.Mode == "" || p.Mode == spec.ElicitForm) && (offered.Form != nil || offered.URL == nil):
		p.Mode = spec.ElicitForm
		fields, err := validate.Compile(object.OrEmpty(p.RequestedSchema), validate.Limits{})
		if errors.Is(err, validate.ErrUnsupported) {
			fields, err = validate.CompileForeign(p.RequestedSchema, validate.Limits{}), nil
			for _, what := range fields.Unjudged() {
				c.warn("a part of a requested schema is not enforced: %s", what)
			}
		}
		if err != nil {
			return nil, jsonrpc.Errorf(jsonrpc.InvalidParams, "the requested schema is not valid: %w", err)
		}
		return fields, nil
	}
	// client/elicitation, "Error Handling"
	return nil, jsonrpc.Errorf(jsonrpc.InvalidParams,
		"this client does not offer elicitation in the mode %q", p.Mode)
}

// visiting makes one round of a call, and again when the user has first to visit
// URLs and agrees (2025-11-25, Elicitation, "URL Elicitation Required Error").
func (c *Client) visiting(ctx context.Context, q *outgoing) (jsonrpc.Raw, error) {
	raw, err := c.once(ctx, q)
	wire, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || wire.Code != spec.URLElicitationRequired {
		return raw, err
	}
	agreed, failed := c.visit(ctx, wire)
	switch {
	case failed != nil:
		return nil, fmt.Errorf("mcp: %q: %w; %w", q.method, wire, failed)
	case agreed:
		return c.once(ctx, q)
	}
	return nil, err
}

// visit asks the user to visit the URLs in an error, and reports whether they
// agree to all of them.
func (c *Client) visit(ctx context.Context, wire *jsonrpc.Error) (agreed bool, err error) {
	var data spec.URLElicitationRequiredData
	offered := c.capabilities(false).Elicitation
	if c.opts.Elicit == nil || offered == nil || offered.URL == nil {
		return false, nil
	}
	if err := jsonv2.Unmarshal(wire.Data, &data); err != nil {
		return false, fmt.Errorf("%w: the data of the error are not valid: %w", farcall.ErrProtocol, err)
	}
	requests := make(map[string]spec.InputRequest, len(data.Elicitations))
	for i := range data.Elicitations {
		p := &data.Elicitations[i]
		p.Mode = spec.ElicitURL // there are no others in this error
		params, err := jsonv2.Append(nil, p)
		if err != nil {
			return false, err
		}
		requests[strconv.Itoa(i)] = spec.InputRequest{
			Method: spec.MethodElicitationCreate,
			Params: params,
		}
	}
	raw, err := c.answerAll(ctx, requests)
	if err != nil {
		return false, err
	}
	for _, answer := range scan.Members(raw) {
		if string(scan.Member(answer, "action")) != `"`+spec.ElicitAccept+`"` {
			return false, nil
		}
	}
	return len(requests) > 0, nil
}
