package inspect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// What a page may call.
const (
	kindTool     = "tools"
	kindPrompt   = "prompts"
	kindResource = "resources"
	kindTemplate = "templates"
	kindMethod   = "methods"
	kindNotify   = "notify"
	kindStart    = "start" // a tool, as a task that is not waited for
	kindTask     = "task"  // the end of a task is waited for
)

const discover = "rpc.discover"

type callParams struct {
	Conn int    `json:"conn"`
	Call string `json:"call" maxLength:"64"` // a name for progress and questions
	Kind string `json:"kind"                enum:"tools,prompts,resources,methods,notify,start,task"`
	// Name is a tool, a prompt, the URI of a resource, a method or the id of a task.
	Name   string      `json:"name"`
	Params jsonrpc.Raw `json:"params,omitzero"`
}

// params are nil when there are none.
func (p *callParams) params() any {
	if p.Params == nil {
		return nil
	}
	return p.Params
}

// outcome is how a call has ended.
type outcome struct {
	Result string     `json:"result,omitzero"` // JSON as text, so that no digit is lost
	Cut    bool       `json:"cut,omitzero"`    // Result is only its beginning; the frame has all
	Size   int        `json:"size"`
	Error  *wireError `json:"error,omitzero"` // that the server answered
	Fault  string     `json:"fault,omitzero"` // why there is no answer
	Micros int64      `json:"us"`             // how long it took
	// Schema is why the structured content does not fit the output schema.
	Schema []string `json:"schema,omitzero"`
	From   uint64   `json:"from"`             // the frames of the call are among those from here
	To     uint64   `json:"to"`               // up to here
	After  uint64   `json:"after"`            // the events of the call are before this one
	Judged bool     `json:"judged,omitzero"`  // there is an output schema
	Failed bool     `json:"failed,omitzero"`  // the tool says that it failed
	Stop   bool     `json:"stopped,omitzero"` // the page has given up
}

type wireError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    string `json:"data,omitzero"` // JSON as text
}

// maxResult bounds a result that a page gets whole.
const maxResult = 4 << 20

// call makes a call for a page.
func (i *Inspector) call(ctx context.Context, p callParams) (*outcome, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	client, caller, state := x.speaks()
	if client == nil && caller == nil {
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "the server is not connected (%s)", state)
	}
	ctx = withCall(ctx, p.Call)
	o := &outcome{}
	_, o.From = i.store.First()
	began := time.Now()
	var raw jsonrpc.Raw
	if client != nil {
		raw, err = x.callMCP(ctx, client, &p)
	} else {
		raw, err = x.callRPC(ctx, caller, &p)
	}
	o.Micros = time.Since(began).Microseconds()
	_, o.To = i.store.First()
	o.After = i.events.after()
	o.fill(raw, err)
	o.Stop = ctx.Err() != nil
	if err == nil || o.Error != nil {
		x.works()
	}
	if p.Kind == kindTool && client != nil {
		x.judge(p.Name, raw, o)
	}
	return o, nil
}

// fill says what came of a call.
func (o *outcome) fill(raw jsonrpc.Raw, err error) {
	var answered *jsonrpc.Error
	switch {
	case raw != nil:
		o.Size, o.Result = len(raw), string(raw)
		if len(raw) > maxResult {
			o.Result, o.Cut = shorten(o.Result[:64<<10], 64<<10), true
		}
	case errors.As(err, &answered):
		o.Error = &wireError{
			Code:    int(answered.Code),
			Message: shorten(answered.Message, 64<<10),
			Data:    shorten(string(answered.Data), 64<<10),
		}
	case err != nil:
		o.Fault = shorten(err.Error(), maxEventText)
	default:
		o.Result = "null"
	}
}

// judge validates a result by the output schema of its tool.
func (x *slot) judge(tool string, raw jsonrpc.Raw, o *outcome) {
	var r struct {
		Structured jsonrpc.Raw `json:"structuredContent"`
		IsError    bool        `json:"isError"`
	}
	if len(raw) == 0 || len(raw) > maxResult || jsonv2.Unmarshal(raw, &r) != nil {
		return
	}
	o.Failed = r.IsError
	var schema jsonrpc.Raw
	x.mu.Lock()
	if c := x.lists[kindTool]; c != nil {
		schema = scan.Member(c.index[tool], "outputSchema")
	}
	x.mu.Unlock()
	if len(schema) == 0 || r.IsError {
		return
	}
	o.Judged = true
	if r.Structured == nil {
		o.Schema = []string{"The tool has an output schema, but the result has no structuredContent."}
		return
	}
	o.Schema = problems(validate.CompileForeign(schema, validate.Limits{}).Validate(r.Structured))
}

// problems lists why a value does not fit a schema.
func problems(err error) (list []string) {
	var bad *validate.Error
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &bad):
		return []string{err.Error()}
	}
	for _, p := range bad.Problems {
		text := strings.TrimPrefix(p.Pointer+": "+p.Message, ": ") // the whole value has no pointer
		list = append(list, shorten(text, 1000))
	}
	if bad.More {
		list = append(list, "There are more problems.")
	}
	return list
}

// callMCP calls a tool, a prompt, a resource or any other method.
func (x *slot) callMCP(ctx context.Context, c *mcp.Client,
	p *callParams,
) (raw jsonrpc.Raw, err error) {
	ctx = context.WithValue(ctx, resultKey{}, &raw)
	var last time.Time
	ctx = mcp.OnProgress(ctx, func(v spec.ProgressNotificationParams) {
		if now := time.Now(); now.Sub(last) > progressTime || v.Total != nil && v.Progress >= *v.Total {
			last = now
			v.Message = shorten(v.Message, 2000)
			x.i.events.add(eventProgress, x.id, p.Call, v)
		}
	})
	switch p.Kind {
	case kindTool, kindTask:
		var r *spec.CallToolResult
		if p.Kind == kindTask {
			r, err = c.WaitTask(ctx, p.Name)
		} else {
			r, err = c.CallTool(ctx, p.Name, p.params())
		}
		if p.Kind == kindTask || isTask(raw) { // what the task has come to came later
			if raw = nil; err == nil {
				raw, err = marshal(r)
			}
		}
	case kindStart:
		var t *spec.DetailedTask
		if t, err = c.StartTask(ctx, p.Name, p.params(), 0); err == nil {
			raw, err = marshal(t)
		}
	case kindPrompt:
		if p.Params == nil {
			p.Params = jsonrpc.Raw("{}")
		}
		err = c.Request(ctx, spec.MethodPromptsGet,
			map[string]any{"name": p.Name, "arguments": p.Params}, nil)
	case kindResource:
		err = c.Request(ctx, spec.MethodResourcesRead, map[string]any{"uri": p.Name}, nil)
	case kindNotify:
		err = c.Notify(ctx, p.Name, p.Params)
	default:
		err = c.Request(ctx, p.Name, p.params(), &raw)
	}
	return raw, err
}

// progressTime is the least time between two reports to a page; the traffic has all of them.
const progressTime = 50 * time.Millisecond

// isTask reports whether a result is a task.
func isTask(raw jsonrpc.Raw) bool {
	return scan.Member(raw, "task") != nil || scan.Member(raw, "taskId") != nil
}

// callRPC calls a method of a JSON-RPC server.
func (x *slot) callRPC(ctx context.Context, c farcall.Caller,
	p *callParams,
) (raw jsonrpc.Raw, err error) {
	if p.Kind == kindNotify {
		return nil, c.Notify(ctx, p.Name, p.params())
	}
	if p.Kind != kindMethod {
		return nil, fmt.Errorf("a JSON-RPC server has methods, but no %s", p.Kind)
	}
	left := maxValues
	ctx = farcall.OnProgress(ctx, func(value jsonrpc.Raw) {
		if left--; left >= 0 {
			x.i.events.add(eventValue, x.id, p.Call, shorten(string(value), maxEventText))
		}
	})
	err = c.Call(ctx, p.Name, p.params(), &raw)
	return raw, err
}

// maxValues is how many values of a stream a page is sent; the traffic has all.
const maxValues = 5000

func marshal(v any) (jsonrpc.Raw, error) { return jsonv2.Append(nil, v) }
