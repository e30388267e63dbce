package mcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/schema"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/internal/arguments"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// ToolError is the failure of a tool itself: which the function CallTool returns, and which a
// handler returns to say more than a text. Its Result is what the client gets then, with IsError.
type ToolError struct{ Result *spec.CallToolResult }

// Error returns the text of the result.
func (e *ToolError) Error() string {
	if text := textOf(e.Result); text != "" {
		return text
	}
	return "the tool failed and does not say why"
}

func textOf(r *spec.CallToolResult) string {
	var texts []string
	for i := range r.Content {
		if r.Content[i].Type == spec.TypeText {
			texts = append(texts, r.Content[i].Text)
		}
	}
	return strings.Join(texts, "\n")
}

// CallTool calls a tool and returns its structured content as an Out. Where there is none, an Out
// that is a string gets the text of the result, and any other Out what is in that text as JSON. A
// [Result] gets all of it. The failure of the tool is a *[ToolError].
func CallTool[Out any](ctx context.Context, c *Client, tool string, args any) (Out, error) {
	var out Out
	r, err := c.CallTool(ctx, tool, args)
	switch {
	case err != nil:
		return out, err
	case r.IsError:
		return out, &ToolError{r}
	}
	if all := resultIn(&out); all != nil {
		return out, all.read(tool, r)
	}
	raw := r.StructuredContent
	if raw == nil {
		text := textOf(r)
		if s, ok := any(&out).(*string); ok {
			*s = text
			return out, nil
		}
		if raw = jsonrpc.Raw(text); jsonrpc.Valid(raw) != nil {
			return out,
				fmt.Errorf("mcp: the tool %q answered neither structured content nor JSON as its text, for a "+
					"%T; Client.CallTool returns what it answered", tool, out)
		}
	}
	if err := jsonv2.Unmarshal(raw, &out); err != nil {
		return out, fmt.Errorf("mcp: the answer of the tool %q does not fit %T: %w", tool, out, err)
	}
	return out, nil
}

// CallTool calls a tool. The arguments marshal to an object, or are nil. A result
// with IsError is the tool's own failure. Structured content is checked against the
// tool's output schema, if Tools has returned the tool.
//
// A server may answer with a task when ClientOptions.Tasks allows it, or because
// the tool says that it always runs as one; CallTool waits for the end of it, and
// cancels it when the context ends and when what it asks gets no answer.
func (c *Client) CallTool(
	ctx context.Context, name string, args any,
) (*spec.CallToolResult, error) {
	p, err := toolParams(name, args)
	if err != nil {
		return nil, err
	}
	raw, err := c.callTool(ctx, name, p)
	if err != nil {
		return nil, err
	}
	if t := createdTask(raw); t != nil {
		// It is not known elsewhere: it is cancelled when the context ends.
		if raw, _, err = c.follower().finish(ctx, t); err != nil {
			return nil, err
		}
	}
	return c.toolResult(name, raw)
}

func toolParams(name string, args any) (*spec.CallToolRequestParams, error) {
	arguments, err := objectOf(args)
	if err != nil {
		return nil, fmt.Errorf("mcp: call the tool %q: of its arguments: %w", name, err)
	}
	return &spec.CallToolRequestParams{Name: name, Arguments: arguments}, nil
}

// callTool makes a tools/call, which the server may turn into a task.
func (c *Client) callTool(
	ctx context.Context, name string, p *spec.CallToolRequestParams,
) (jsonrpc.Raw, error) {
	for attempt := 0; ; attempt++ {
		l, err := c.link(ctx)
		if err != nil {
			return nil, fmt.Errorf("%w: the call of the tool %q: %w", farcall.ErrNotSent, name, err)
		}
		known, err := c.knownTool(ctx, l, name, attempt > 0)
		if err != nil {
			return nil, err
		}
		if known != nil && known.task == spec.TaskRequired && p.Task == nil && l.callsTasks() {
			p.Task = &spec.TaskMetadata{}
		}
		params, err := jsonv2.Append(nil, p)
		if err != nil {
			return nil, fmt.Errorf("mcp: call the tool %q: %w", name, err)
		}
		q := &outgoing{method: spec.MethodToolsCall, params: params, task: true}
		if known != nil {
			q.header, q.tool = arguments.Headers(known.headers, p.Arguments), known
		}
		raw, err := c.call(ctx, q)
		if attempt == 0 && l.http != nil && errors.Is(err, spec.HeaderMismatch) {
			// the tool's definition may have changed (2026-07-28, Streamable HTTP, "Client Behavior")
			continue
		}
		return raw, err
	}
}

// toolResult reads a result and checks it against the tool's schema.
func (c *Client) toolResult(name string, raw jsonrpc.Raw) (*spec.CallToolResult, error) {
	r := new(spec.CallToolResult)
	if err := decodeResult(spec.MethodToolsCall, raw, r); err != nil {
		return nil, err
	}
	known := c.shelf.find(name)
	if r.IsError || known == nil {
		return r, nil
	}
	output := known.validator(c)
	switch {
	case output == nil:
	case r.StructuredContent == nil:
		return nil, fmt.Errorf("mcp: the tool %q has an output schema but answered no structured content",
			name)
	default:
		if err := output.Validate(r.StructuredContent); err != nil {
			return nil,
				fmt.Errorf(
					"mcp: the tool %q answered structured content that does not fit its output schema: %w",
					name, err)
		}
	}
	return r, nil
}

// Tools returns the tools. Over HTTP those are left out with headers that are not
// valid; ClientOptions.OnWarning receives.
func (c *Client) Tools(ctx context.Context) ([]spec.Tool, error) { return c.listTools(ctx, false) }

func (c *Client) listTools(ctx context.Context, fresh bool) ([]spec.Tool, error) {
	all, err := allPages(ctx, c, spec.MethodToolsList, "tools", fresh,
		func(r *spec.ListToolsResult) ([]spec.Tool, string) {
			return r.Tools, r.NextCursor
		})
	if err != nil {
		return nil, err
	}
	l, err := c.link(ctx)
	if err != nil {
		return nil, fmt.Errorf("mcp: %q: %w", spec.MethodToolsList, err)
	}
	mirror := l.http != nil && l.rev.MirroredHeaders
	var kept []spec.Tool
	names := map[string]bool{}
	for i := range all {
		names[all[i].Name] = true
		known, isNew := c.shelf.learn(&all[i])
		switch {
		case !mirror || known.invalid == nil:
			kept = append(kept, all[i])
		case isNew:
			c.warn("the tool %q is left out: %w", all[i].Name, known.invalid)
		}
	}
	c.shelf.keep(l, names)
	return kept, nil
}

// knownTool returns what is known of a tool, or nil. Where its arguments may have
// to be mirrored in headers, and where it may be that it only runs as a task, the
// tools are listed for it.
func (c *Client) knownTool(
	ctx context.Context, l *link, name string, fresh bool,
) (*knownTool, error) {
	known := c.shelf.find(name)
	mirror := l.http != nil && l.rev.MirroredHeaders
	if !mirror && !l.callsTasks() {
		return known, nil
	}
	if fresh || known == nil {
		if err := c.fillShelf(ctx, l, fresh); err != nil && (fresh || ctx.Err() != nil) {
			return nil, err
		} else if err != nil {
			c.warn("the tools cannot be listed, so that it is not known which headers the tool %q needs, "+
				"or that it runs as a task only: %w", name, err)
		}
		known = c.shelf.find(name) // a listing may have ended since it was looked for
	}
	if mirror && known != nil && known.invalid != nil {
		return nil, fmt.Errorf("mcp: the tool %q cannot be called over HTTP: %w", name, known.invalid)
	}
	return known, nil
}

// fillShelf lists the tools for what calls need to know of them. Calls that need
// it at once share a listing.
func (c *Client) fillShelf(ctx context.Context, l *link, fresh bool) error {
	s := &c.shelf
	if fresh {
		_, err := c.listTools(ctx, true)
		return err
	}
	// One that was waited for may have ended with the call that it was made for.
	for range 2 {
		over, mine := s.list(l)
		switch {
		case mine:
			defer s.listed()
			_, err := c.listTools(ctx, false)
			if errors.Is(err, farcall.ErrProtocol) {
				s.settle(l)
			}
			return err
		case over == nil:
			return nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// A shelf holds what is known of tools.
type shelf struct {
	mu      sync.Mutex
	tools   map[string]*knownTool
	link    *link         // on which all tools were listed
	listing chan struct{} // closed at the end of a listing that is under way; nil: none
}

// A knownTool is what calls of a tool need to know of it.
type knownTool struct {
	input, output jsonrpc.Raw // its schemas
	task          string      // whether it runs as a task
	headers       []schema.Header
	invalid       error // why it must not be called over HTTP

	compile sync.Once
	valid   *validate.Schema // of the output; nil: anything is valid
}

func (s *shelf) find(name string) *knownTool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tools[name]
}

// learn notes a tool. What is known of it stays when it has not changed.
func (s *shelf) learn(t *spec.Tool) (known *knownTool, isNew bool) {
	support := ""
	if t.Execution != nil {
		support = t.Execution.TaskSupport
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.tools[t.Name]
	if known != nil && known.task == support && bytes.Equal(known.input, t.InputSchema) &&
		bytes.Equal(known.output, t.OutputSchema) {
		return known, false
	}
	known = &knownTool{input: t.InputSchema, output: t.OutputSchema, task: support}
	known.headers, known.invalid = schema.Headers(t.InputSchema)
	setEntry(&s.tools, t.Name, known)
	return known, true
}

// keep notes that all tools have been listed on a link: these are all there are.
func (s *shelf) keep(l *link, names map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.tools, func(name string, _ *knownTool) bool { return !names[name] })
	s.link = l
}

// list begins a listing. Where one is under way, over is closed at its end; nil:
// all tools have been listed on the link.
func (s *shelf) list(l *link) (over chan struct{}, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l || s.listing != nil {
		return s.listing, false
	}
	s.listing = make(chan struct{})
	return s.listing, true
}

// settle notes that there is no use in listing the tools of a link again before they have changed;
// nil: there may be other tools by now.
func (s *shelf) settle(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link = l
}

func (s *shelf) listed() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.listing)
	s.listing = nil
}

// validator returns the compiled output schema, or nil when there is none. What cannot be judged in
// it is left out. Schemas are never fetched.
func (t *knownTool) validator(c *Client) *validate.Schema {
	t.compile.Do(func() {
		if t.output == nil {
			return
		}
		t.valid = validate.CompileForeign(t.output, validate.Limits{})
		for _, what := range t.valid.Unjudged() {
			c.warn("a part of a tool's output schema is not enforced: %s", what)
		}
	})
	return t.valid
}
