package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/creachadair/jrpc2"
	"github.com/creachadair/jrpc2/handler"
	"github.com/creachadair/jrpc2/server"
	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sourcegraph "github.com/sourcegraph/jsonrpc2"

	"github.com/farcall-dev/farcall/jsonrpc"
)

// The messages to decode.
const (
	smallRequest = `{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"add",` +
		`"arguments":{"a":1,"b":2}}}`
	smallResponse = `{"jsonrpc":"2.0","id":12345,"result":{"content":[{"type":"text","text":"3"}],` +
		`"structuredContent":{"sum":3}}}`
	errorResponse = `{"jsonrpc":"2.0","id":12345,"error":{"code":-32602,"message":"Invalid params",` +
		`"data":{"member":"a"}}}`
	notification = `{"jsonrpc":"2.0","method":"notifications/progress",` +
		`"params":{"progressToken":"t-1","progress":50,"total":100}}`
)

type message struct {
	name string
	kind messageKind
	data []byte
}

type messageKind int

const (
	request messageKind = iota
	response
	batch
)

func messages() []message {
	return []message{
		{"small request", request, []byte(smallRequest)},
		{"small response", response, []byte(smallResponse)},
		{"error response", response, []byte(errorResponse)},
		{"notification", request, []byte(notification)},
		{"batch of 10", batch, tenRequests()},
		{"100 KB of records", request, records()},
		{
			"10 MB string", request,
			[]byte(`{"jsonrpc":"2.0","id":1,"method":"echo","params":["` + strings.Repeat("abcdefghij", 1_000_000) + `"]}`),
		},
	}
}

// tenRequests have their own ids: a repeated one is an error.
func tenRequests() []byte {
	var list []string
	for i := range 10 {
		list = append(list, strings.Replace(smallRequest, "12345", strconv.Itoa(12345+i), 1))
	}
	return []byte("[" + strings.Join(list, ",") + "]")
}

func records() []byte {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":1,"method":"store","params":{"records":[`)
	for i := 0; b.Len() < 100_000; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b,
			`{"id":%d,"name":"record %d","score":%d.25,"tags":["red","green"],"active":true,"note":"a `+
				`\"quoted\" word"}`, i, i, i%100)
	}
	b.WriteString(`]}}`)
	return b.Bytes()
}

// A codec decodes a frame; it says no to what it cannot decode.
type codec struct {
	name   string
	decode func(m message) func() error // nil: it has no such thing, or does not export it
}

// envelope is what a programmer without a JSON-RPC library writes down.
type envelope struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

type envelopeV2 struct {
	JSONRPC string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitzero"`
	Params  jsontext.Value `json:"params,omitzero"`
	Result  jsontext.Value `json:"result,omitzero"`
	Error   jsontext.Value `json:"error,omitzero"`
}

var codecs = []codec{
	{"farcall", func(m message) func() error {
		var d jsonrpc.Decoder
		var into jsonrpc.Batch
		return func() error {
			if err := d.Decode(m.data, &into); err != nil {
				return err
			}
			for i := range into.Messages {
				if m := &into.Messages[i]; m.Kind == jsonrpc.Invalid {
					return m.Err
				}
			}
			return nil
		}
	}},
	{"jrpc2", func(m message) func() error {
		if m.kind == response {
			return nil
		}
		return func() error {
			reqs, err := jrpc2.ParseRequests(m.data)
			if err != nil {
				return err
			}
			for _, r := range reqs {
				if r.Error != nil {
					return r.Error
				}
			}
			return nil
		}
	}},
	{"sourcegraph", func(m message) func() error {
		switch m.kind {
		case request:
			return func() error { return json.Unmarshal(m.data, new(sourcegraph.Request)) }
		case response:
			return func() error { return json.Unmarshal(m.data, new(sourcegraph.Response)) }
		default:
			return nil
		}
	}},
	{"go-sdk", func(m message) func() error {
		if m.kind == batch {
			return nil
		}
		return func() error {
			_, err := sdk.DecodeMessage(m.data)
			return err
		}
	}},
	{"json v1", func(m message) func() error {
		if m.kind == batch {
			return func() error { return json.Unmarshal(m.data, new([]envelope)) }
		}
		return func() error { return json.Unmarshal(m.data, new(envelope)) }
	}},
	{"json v2", func(m message) func() error {
		if m.kind == batch {
			return func() error { return jsonv2.Unmarshal(m.data, new([]envelopeV2)) }
		}
		return func() error { return jsonv2.Unmarshal(m.data, new(envelopeV2)) }
	}},
}

func codecGroups() []group {
	var groups []group
	for _, m := range messages() {
		g := group{name: "decode " + m.name, workers: 1, bytes: len(m.data), base: "farcall"}
		for _, c := range codecs {
			if op := c.decode(m); op != nil {
				g.subjects = append(g.subjects, subject{c.name, repeating(op)})
			}
		}
		groups = append(groups, g)
	}
	return append(groups, encodeGroup())
}

// repeating makes a subject of one operation.
func repeating(op func() error) func() (*running, error) {
	return func() (*running, error) {
		worker := func(n int) error {
			for range n {
				if err := op(); err != nil {
					return err
				}
			}
			return nil
		}
		return &running{worker: func() func(int) error { return worker }, stop: func() {}}, nil
	}
}

// smallResult is the result of smallResponse.
const smallResult = `{"content":[{"type":"text","text":"3"}],"structuredContent":{"sum":3}}`

func encodeGroup() group {
	return group{
		name: "encode small response", workers: 1, bytes: len(smallResponse), base: "farcall",
		subjects: []subject{
			{"farcall", func() (*running, error) {
				buf, id, res := make([]byte, 0, 256), jsonrpc.IntID(12345), jsonrpc.Raw(smallResult)
				return encoding(func() ([]byte, error) {
					buf = jsonrpc.V2.AppendResult(buf[:0], id, res)
					return buf, nil
				})
			}},
			{"jrpc2", func() (*running, error) {
				r, err := jrpc2Response()
				if err != nil {
					return nil, err
				}
				return encoding(r.MarshalJSON)
			}},
			{"sourcegraph", func() (*running, error) {
				raw := json.RawMessage(smallResult)
				r := &sourcegraph.Response{ID: sourcegraph.ID{Num: 12345}, Result: &raw}
				return encoding(func() ([]byte, error) { return json.Marshal(r) })
			}},
			{"go-sdk", func() (*running, error) {
				id, err := sdk.MakeID(float64(12345))
				if err != nil {
					return nil, err
				}
				r := &sdk.Response{ID: id, Result: json.RawMessage(smallResult)}
				return encoding(func() ([]byte, error) { return sdk.EncodeMessage(r) })
			}},
			{"json v1", func() (*running, error) {
				r := &envelope{
					JSONRPC: "2.0", ID: json.RawMessage("12345"),
					Result: json.RawMessage(smallResult),
				}
				return encoding(func() ([]byte, error) { return json.Marshal(r) })
			}},
			{"json v2", func() (*running, error) {
				r := &envelopeV2{
					JSONRPC: "2.0", ID: jsontext.Value("12345"),
					Result: jsontext.Value(smallResult),
				}
				return encoding(func() ([]byte, error) { return jsonv2.Marshal(r) })
			}},
		},
	}
}

// encoding makes a subject of an encoder, once its output has been looked at.
func encoding(encode func() ([]byte, error)) (*running, error) {
	out, err := encode()
	if err != nil {
		return nil, err
	}
	var got, want any
	if err := errors.Join(json.Unmarshal(out, &got),
		json.Unmarshal([]byte(smallResponse), &want)); err != nil {
		return nil, err
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return nil, fmt.Errorf("encoded %s, want %s", out, smallResponse)
	}
	return repeating(func() error {
		_, err := encode()
		return err
	})()
}

// jrpc2Response gets a response the only way there is: by asking for it.
func jrpc2Response() (*jrpc2.Response, error) {
	methods := handler.Map{"get": func(context.Context, *jrpc2.Request) (any, error) {
		return json.RawMessage(smallResult), nil
	}}
	local := server.NewLocal(methods, nil)
	defer local.Close()
	r, err := local.Client.Call(context.Background(), "get", nil)
	if err == nil {
		r.SetID("12345")
	}
	return r, err
}
