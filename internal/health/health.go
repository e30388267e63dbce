// Package health answers one question: does this server take calls, in the words of gRPC's health
// checking protocol?
//
// Its two methods have the names, the parameters and the answers of the service grpc.health.v1 in
// JSON, over every transport of JSON-RPC. Unlike gRPC's, Check answers SERVICE_UNKNOWN for a
// service that it does not know, not an error.
package health

import (
	"context"
	"iter"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// The methods.
const (
	Check = "grpc.health.v1.Health/Check"
	Watch = "grpc.health.v1.Health/Watch"
)

// A Status says whether a service takes calls.
type Status string

// The statuses.
const (
	Serving    Status = "SERVING"
	NotServing Status = "NOT_SERVING"
	Unknown    Status = "SERVICE_UNKNOWN"
)

// interval is how often Watch looks.
const interval = time.Second

// A Service answers the methods. Its methods may be called concurrently.
type Service struct {
	mux      *farcall.Mux
	status   func(service string) Status
	draining <-chan struct{}
}

// request is the parameters of both methods: "" is the server as a whole.
type request struct {
	Service string `json:"service,omitempty"`
}

type reply struct {
	Status Status `json:"status"`
}

// New returns a service. status returns the status of a service by its name; "" is the server as a
// whole. When draining is closed every known service is NOT_SERVING, and each Watch ends.
func New(status func(service string) Status, draining <-chan struct{}) *Service {
	s := &Service{mux: farcall.NewMux(), status: status, draining: draining}
	s.Register(s.mux)
	return s
}

// Register adds the methods to a mux.
func (s *Service) Register(mux *farcall.Mux) {
	farcall.Handle(mux, Check, s.check,
		"Ask whether the server takes calls",
		"The status is SERVING, NOT_SERVING or SERVICE_UNKNOWN, as in grpc.health.v1. "+
			"Without a service it is that of the server as a whole.")
	farcall.HandleStream(mux, Watch, s.watch,
		"Follow whether the server takes calls",
		"Stream it: the first value is the status now, each other one a change. "+
			"It ends when the server shuts down.")
}

// Before returns a handler that answers the two methods, and lets next handle all others.
func (s *Service) Before(next farcall.Handler) farcall.Handler {
	return farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
		if req.Method == Check || req.Method == Watch {
			return s.mux.ServeRPC(ctx, req)
		}
		return next.ServeRPC(ctx, req)
	})
}

// Has reports whether a method is one of the two.
func Has(method []byte) bool { return string(method) == Check || string(method) == Watch }

// Answer returns the result of Check, for what carries frames and cannot stream: Watch is refused.
func (s *Service) Answer(method string, params jsonrpc.Raw) (jsonrpc.Raw, error) {
	if method != Check {
		return nil, jsonrpc.Errorf(jsonrpc.MethodNotFound,
			"Method not found: %s needs HTTP here; call %s again and again",
			Watch, Check)
	}
	var in request
	switch {
	case len(params) == 0:
	case params[0] == '[':
		var list []string
		if err := jsonv2.Unmarshal(params, &list); err != nil || len(list) > 1 {
			return nil, invalid()
		}
		if len(list) == 1 {
			in.Service = list[0]
		}
	default:
		if err := jsonv2.Unmarshal(params, &in); err != nil {
			return nil, invalid()
		}
	}
	return jsonv2.Append(nil, reply{s.now(in.Service)})
}

func invalid() error {
	return jsonrpc.Errorf(jsonrpc.InvalidParams,
		`Invalid params: %s takes {"service": "NAME"}, or none for the whole server`, Check)
}

func (s *Service) check(_ context.Context, in request) (reply, error) {
	return reply{s.now(in.Service)}, nil
}

// now is the status of a service.
func (s *Service) now(service string) Status {
	status := s.status(service)
	if status == Serving && s.ended() {
		return NotServing
	}
	return status
}

// ended reports whether the server is shut down.
func (s *Service) ended() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

func (s *Service) watch(ctx context.Context, in request) iter.Seq2[reply, error] {
	return func(yield func(reply, error) bool) {
		ticker := time.NewTicker(interval)
		defer ticker.Stop()
		last := Status("")
		for {
			ended := s.ended()
			if now := s.now(in.Service); now != last {
				if !yield(reply{now}, nil) {
					return
				}
				last = now
			}
			if ended {
				return
			}
			select {
			case <-ticker.C:
			case <-s.draining:
			case <-ctx.Done():
				return
			}
		}
	}
}
