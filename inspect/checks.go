package inspect

import (
	"context"
	"maps"
	"net/http"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture/diff"
	"github.com/farcall-dev/farcall/internal/lint"
	"github.com/farcall-dev/farcall/internal/scan"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// lint looks for what models and clients misread in the tools of a server.
func (i *Inspector) lint(ctx context.Context, p connParams) (*lint.Report, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	c, err := x.catalog(ctx, kindTool, false)
	if err != nil {
		return nil, public(err)
	}
	raw := make([]jsonrpc.Raw, len(c.items))
	for n := range c.items {
		raw[n] = c.items[n].raw
	}
	return lint.Tools(raw), nil
}

type conformParams struct {
	Conn int    `json:"conn"`
	Call string `json:"call" maxLength:"64"` // a name for progress
}

// conform checks a server by its specification.
func (i *Inspector) conform(ctx context.Context, p conformParams) (any, error) {
	x, err := i.slot(p.Conn)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	server, protocol := x.server, x.protocol
	x.mu.Unlock()
	switch {
	case i.opts.Conform == nil:
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "this page has no such checks")
	case protocol != protocolMCP && protocol != protocolRPC:
		return nil, jsonrpc.Errorf(jsonrpc.InvalidRequest, "the server is not connected")
	}
	s, err := x.probed(ctx, &server, protocol)
	if err != nil {
		return nil, public(err)
	}
	v := spec.ProgressNotificationParams{}
	report, err := i.opts.Conform(ctx, protocol, s, func(name string) {
		v.Progress, v.Message = v.Progress+1, name
		i.events.add(eventProgress, x.id, p.Call, v)
	})
	if err != nil {
		return nil, public(err)
	}
	return report, nil
}

// probed returns a server as Options.Conform gets it.
func (x *slot) probed(ctx context.Context, s *Server, protocol string) (*Server, error) {
	path, subprotocols := "", []string(nil)
	if protocol == protocolMCP {
		path, subprotocols = "/mcp", []string{"mcp"}
	}
	t, err := s.target()
	if err != nil || t == nil || t.Kind != target.HTTP && t.Kind != target.WebSocket {
		return &Server{Dial: func(ctx context.Context) (farcall.Transport, error) {
			return x.link(ctx, s, path, subprotocols...)
		}}, err
	}
	t.DefaultPath(path)
	r := &http.Request{Method: http.MethodPost, URL: t.URL, Header: http.Header{}}
	maps.Copy(r.Header, s.Header)
	p := &Server{Target: t.URL.String(), HTTP: s.HTTP, Header: r.Header}
	if t.Kind != target.HTTP {
		return p, nil
	}
	p.HTTP = x.logged(s)
	if protocol == protocolMCP {
		by, err := x.authorizer(s, p.Target)
		if err != nil || by == nil {
			return p, err
		}
		err = by.Authorize(ctx, r) // as it is signed in already
		return p, err
	}
	return p, nil
}

type diffParams struct {
	Method string      `json:"method"` // that lists
	Was    jsonrpc.Raw `json:"was"`    // an answer
	Is     jsonrpc.Raw `json:"is"`
}

// diff finds what has changed between two lists, or two descriptions of a service.
func (i *Inspector) diff(_ context.Context, p diffParams) ([]diff.Finding, error) {
	if p.Method != discover {
		return diff.New(nil).Answers(p.Method, p.Was, p.Is), nil
	}
	found, err := diff.New(nil).Documents(scan.Member(p.Was, "result"), scan.Member(p.Is, "result"))
	if err != nil {
		return nil, public(err)
	}
	return found, nil
}
