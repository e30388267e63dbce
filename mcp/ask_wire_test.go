package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// wireReply is what a request was answered with.
type wireReply struct {
	Result struct {
		ResultType    string                       `json:"resultType"`
		RequestState  string                       `json:"requestState"`
		InputRequests map[string]spec.InputRequest `json:"inputRequests"`
		Content       []Content                    `json:"content"`
		Messages      []PromptMessage              `json:"messages"`
		Contents      []ResourceContents           `json:"contents"`
		IsError       bool                         `json:"isError"`
		Meta          map[string]any               `json:"_meta"`

		spec.LegacyTask                   // of both generations
		TTLMS           *int64            `json:"ttlMs"`
		PollIntervalMS  *int64            `json:"pollIntervalMs"`
		Result          *ToolResult       `json:"result"`
		Error           *jsonrpc.Error    `json:"error"`
		Task            *spec.LegacyTask  `json:"task"`
		Tasks           []spec.LegacyTask `json:"tasks"`
		NextCursor      string            `json:"nextCursor"`
	}
	Error *jsonrpc.Error
	raw   string
}

func (r *wireReply) text() string {
	if r.Error != nil {
		return fmt.Sprintf("error %d", r.Error.Code)
	}
	if len(r.Result.Content) == 0 {
		return r.Result.ResultType
	}
	return r.Result.Content[0].Text
}

// sendModern sends a frame of the modern era.
func sendModern(tb testing.TB, s *Server, caps, method, params string) wireReply {
	tb.Helper()
	return sendModernAs(tb, s, owner.Key{}, caps, method, params)
}

// frameAlone returns a request that stands alone.
func frameAlone(caps, method, params string) []byte {
	meta := fmt.Sprintf(`{"_meta":{%q:%q,%q:%s}`, spec.MetaProtocolVersion, rev2026,
		spec.MetaClientCapabilities, caps)
	if rest := strings.TrimPrefix(params, "{"); rest != "}" {
		meta += ","
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":%s%s}`, method, meta,
		strings.TrimPrefix(params, "{"))
}

// sendModernAs sends a request that stands alone on behalf of an owner.
func sendModernAs(tb testing.TB, s *Server, o owner.Key, caps, method, params string) wireReply {
	tb.Helper()
	ctx := context.WithValue(tb.Context(), owner.ContextKey{}, o)
	raw := farcall.NewResponder(s, nil).Respond(ctx, nil, frameAlone(caps, method, params), nil)
	var r wireReply
	if err := json.Unmarshal(raw, &r); err != nil {
		tb.Fatalf("%s: %v: %s", method, err, raw)
	}
	r.raw = string(raw)
	return r
}

// sendRounds calls like a modern client: until the result is complete.
func sendRounds(
	tb testing.TB, s *Server, method, params string, answer func(string, jsonrpc.Raw) string,
) (wireReply, int) {
	tb.Helper()
	retry := params
	for n := 1; ; n++ {
		r := sendModern(tb, s, canAll, method, retry)
		if r.Result.ResultType != spec.ResultInputRequired {
			return r, n
		}
		responses := map[string]jsonrpc.Raw{}
		for key, q := range r.Result.InputRequests {
			responses[key] = jsonrpc.Raw(answer(q.Method, q.Params))
		}
		all, err := json.Marshal(responses)
		if err != nil {
			tb.Fatal(err)
		}
		retry = fmt.Sprintf(`%s,"inputResponses":%s,"requestState":%q}`, params[:len(params)-1], all,
			r.Result.RequestState)
		if n > 20 {
			tb.Fatal("no end: ", r.raw)
		}
	}
}

// dialLegacy connects a client of the legacy era.
func dialLegacy(t *testing.T, s *Server, rev, caps string, h farcall.HandlerFunc) *farcall.Peer {
	t.Helper()
	ours, theirs := farcall.Pipe()
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- s.Serve(ctx, theirs) }()
	p := farcall.NewPeer(ours, h, &farcall.Options{Dialect: mcphttp.Dialect()})
	t.Cleanup(func() {
		p.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	hello := fmt.Sprintf(
		`{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"c","version":"1"}}`, rev, caps)
	if err := p.Call(t.Context(), "initialize", jsonrpc.Raw(hello), nil); err != nil {
		t.Fatal(err)
	}
	p.Notify(t.Context(), "notifications/initialized", nil)
	return p
}

func answeringPeer(answer func(string, jsonrpc.Raw) string) farcall.HandlerFunc {
	return func(_ context.Context, req *farcall.Request) (any, error) {
		return jsonrpc.Raw(answer(req.Method, req.Params)), nil
	}
}

func sendLegacy(t *testing.T, p *farcall.Peer, method, params string) (r wireReply) {
	t.Helper()
	err := p.Call(t.Context(), method, jsonrpc.Raw(params), &r.Result)
	if err != nil && !errors.As(err, &r.Error) {
		t.Fatal(err)
	}
	return r
}
