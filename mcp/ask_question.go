package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/validate"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/era"
	"github.com/farcall-dev/farcall/mcp/internal/inbound"
	"github.com/farcall-dev/farcall/mcp/internal/object"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// question is something that the client is asked.
type question struct {
	method string
	params jsonrpc.Raw // canonical, an object
	name   string      // as relay.Named has it, or ""
	mode   string      // of an elicitation
	form   *validate.Schema
	need   *need
}

// newQuestion reads what is asked. It is foreign when another server asks.
func newQuestion(ctx context.Context, method string, params any, foreign bool) (*question, error) {
	raw := jsonrpc.Raw("{}")
	if params != nil {
		var err error
		if raw, err = jsonv2.Append(nil, params); err != nil {
			return nil, err
		}
		if string(raw) == "null" { // some clients refuse that, and some refuse a request without params
			raw = jsonrpc.Raw("{}")
		}
	}
	q := &question{method: method, params: raw, name: inbound.NameFrom(ctx)}
	if err := q.read(foreign); err != nil {
		return nil, err
	}
	return q, nil
}

// read reads the params.
func (q *question) read(foreign bool) error {
	switch q.method {
	case spec.MethodElicitationCreate:
		return q.readElicitation(foreign)
	case spec.MethodSamplingCreateMessage:
		var p struct {
			Tools      jsonrpc.Raw `json:"tools"`
			ToolChoice jsonrpc.Raw `json:"toolChoice"`
		}
		q.need = needSampling
		if err := jsonv2.Unmarshal(q.params, &p); err != nil {
			return err
		}
		if p.Tools != nil || p.ToolChoice != nil {
			q.need = needSamplingTools
		}
	case spec.MethodRootsList:
		q.need = needRoots
	default:
		return fmt.Errorf("a client can be asked %s, %s and %s only", spec.MethodElicitationCreate,
			spec.MethodSamplingCreateMessage, spec.MethodRootsList)
	}
	return nil
}

func (q *question) readElicitation(foreign bool) error {
	var p spec.ElicitRequestParams
	err := jsonv2.Unmarshal(q.params, &p)
	if err != nil {
		return err
	}
	if q.mode = p.Mode; q.mode == spec.ElicitURL {
		q.need = needURL
		return nil
	}
	q.need = needForm
	if foreign {
		q.form = validate.CompileForeign(p.RequestedSchema, validate.Limits{})
		return nil
	}
	if q.form, err = validate.Compile(p.RequestedSchema, validate.Limits{}); err != nil {
		return fmt.Errorf("requestedSchema: %w", err)
	}
	return nil
}

// keys gives the questions of a call their keys. A key depends on what is asked
// and not on when, so that goroutines and repeated runs agree on it.
type keys struct{ given map[string]bool }

func (k *keys) next(q *question) string {
	base := q.name
	if base == "" {
		sum := sha256.Sum256(validate.AppendCanonical(append([]byte(q.method), 0), q.params))
		base = askKinds[q.method] + "-" + hex.EncodeToString(sum[:4])
	}
	key := base
	for n := 2; k.given[key]; n++ {
		key = base + "-" + strconv.Itoa(n)
	}
	setEntry(&k.given, key, true)
	return key
}

var askKinds = map[string]string{
	spec.MethodElicitationCreate:     "elicit",
	spec.MethodSamplingCreateMessage: "sample",
	spec.MethodRootsList:             "roots",
}

var (
	errNotObject = errors.New("it must be an object")
	errNoAction  = errors.New(`"action" must be accept, decline or cancel`)
	errNoModel   = errors.New(`"role", "content" and "model" must be those of a message`)
	errNoRoots   = errors.New(`"roots" must be an array of objects with a "uri"`)
)

// check reports what is wrong with an answer, in words for the client.
func (q *question) check(raw jsonrpc.Raw) error {
	if len(raw) == 0 || raw[scan.Space(raw, 0)] != '{' {
		return errNotObject
	}
	switch q.method {
	case spec.MethodElicitationCreate:
		return q.checkElicitation(raw)
	case spec.MethodSamplingCreateMessage:
		var r spec.CreateMessageResult
		if err := jsonv2.Unmarshal(raw, &r); err != nil || r.Role == "" || r.Model == "" ||
			r.Content == nil {
			return errNoModel
		}
	case spec.MethodRootsList:
		var r spec.ListRootsResult
		if err := jsonv2.Unmarshal(raw, &r); err != nil || r.Roots == nil {
			return errNoRoots
		}
		if slices.ContainsFunc(r.Roots, func(root Root) bool { return root.URI == "" }) {
			return errNoRoots
		}
	}
	return nil
}

func (q *question) checkElicitation(raw jsonrpc.Raw) error {
	var r spec.ElicitResult
	if err := jsonv2.Unmarshal(raw, &r); err != nil {
		return errNoAction
	}
	switch r.Action {
	case spec.ElicitDecline, spec.ElicitCancel:
		return nil
	case spec.ElicitAccept:
	default:
		return errNoAction
	}
	if q.form == nil {
		return nil
	}
	if err := q.form.Validate(object.OrEmpty(r.Content)); err != nil {
		return fmt.Errorf(`"content" does not fit the requested schema: %w`, err)
	}
	return nil
}

// withDefaults adds to what a form was filled in with the members that are
// missing and have a default (SEP-1034).
func withDefaults(content, form jsonrpc.Raw) jsonrpc.Raw {
	full := object.New(content)
	for name, field := range scan.Members(scan.Member(form, "properties")) {
		if value := scan.Member(field, "default"); value != nil &&
			scan.Member(content, string(name)) == nil {
			full.Add(string(name), value)
		}
	}
	return full.End()
}

// askNow asks a client of the legacy era and waits for its answer.
func (c *call) askNow(ctx context.Context, q *question) (jsonrpc.Raw, error) {
	raw, err := request(ctx, c.client, c.rev, q, "")
	if err == nil {
		err = q.check(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("mcp: ask the client %q: %w", q.method, err)
	}
	return raw, nil
}

// request sends a question as a request of the revision, on behalf of the task,
// if any, and returns the answer in canonical form.
func request(
	ctx context.Context, client farcall.Caller, rev *era.Revision, q *question, taskID string,
) (jsonrpc.Raw, error) {
	params, err := era.Translate(era.Params, q.method, q.params, era.Latest(), rev)
	if err != nil {
		return nil, err
	}
	if q.mode == spec.ElicitURL && rev.ElicitationComplete {
		params = withElicitationID(params, q.params)
	}
	if taskID != "" {
		params = withRelatedTask(params, taskID)
	}
	if q.name != "" {
		params = withMeta(params, inbound.MetaName, scan.AppendQuoted(nil, q.name))
	}
	var raw jsonrpc.Raw
	if err := client.Call(ctx, q.method, params, &raw); err != nil {
		// The client's code is not the one to answer the client's own request with.
		if wire := new(jsonrpc.Error); errors.As(err, &wire) {
			return nil, fmt.Errorf("it refused: %s (code %d)", wire.Message, int(wire.Code))
		}
		return nil, err
	}
	return era.Translate(era.Result, q.method, raw, rev, era.Latest())
}

// withRelatedTask marks params or a result as a task's (2025-11-25
// basic/utilities/tasks, "Related Task Metadata").
func withRelatedTask(in jsonrpc.Raw, taskID string) jsonrpc.Raw {
	id := object.With(nil, "taskId", scan.AppendQuoted(nil, taskID))
	return withMeta(in, spec.MetaRelatedTask, id)
}

func withMeta(in jsonrpc.Raw, key string, value jsonrpc.Raw) jsonrpc.Raw {
	return object.With(in, "_meta", object.With(scan.Member(in, "_meta"), key, value))
}
