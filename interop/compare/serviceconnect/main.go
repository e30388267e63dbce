// Command serviceconnect is examples/service with connect-go, as far as that has it: its protocol
// is not JSON-RPC, and there is no WebSocket. The messages are Protobuf's own types, so that no
// code needs to be generated.
package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	sumProcedure       = "/demo.v1.Demo/Sum"
	countdownProcedure = "/demo.v1.Demo/Countdown"
	adminProcedure     = "/demo.v1.Demo/Admin"
)

func main() {
	s := &http.Server{
		Addr: "localhost:8080", Handler: service(slog.Default()),
		ReadHeaderTimeout: 10 * time.Second,
	}
	if err := s.ListenAndServe(); err != nil {
		slog.Error("the service has ended", "error", err)
		os.Exit(1)
	}
}

func service(log *slog.Logger) http.Handler {
	o := connect.WithInterceptors(logged{log}, known{})
	web := http.NewServeMux()
	web.Handle(sumProcedure, connect.NewUnaryHandler(sumProcedure,
		func(
			_ context.Context, req *connect.Request[structpb.ListValue],
		) (*connect.Response[wrapperspb.DoubleValue], error) {
			sum := 0.0
			for _, n := range req.Msg.GetValues() {
				sum += n.GetNumberValue()
			}
			return connect.NewResponse(wrapperspb.Double(sum)), nil
		}, o))
	web.Handle(countdownProcedure, connect.NewServerStreamHandler(countdownProcedure,
		func(
			_ context.Context, req *connect.Request[wrapperspb.Int32Value],
			s *connect.ServerStream[wrapperspb.Int32Value],
		) error {
			from := req.Msg.GetValue()
			if from < 0 || from > 1000 {
				return connect.NewError(connect.CodeInvalidArgument, errors.New("from must be from 0 to 1000"))
			}
			for n := from; n >= 0; n-- {
				if err := s.Send(wrapperspb.Int32(n)); err != nil {
					return err
				}
			}
			return nil
		}, o))
	return web
}

type logged struct{ log *slog.Logger }

func (l logged) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		began := time.Now()
		resp, err := next(ctx, req)
		l.log.InfoContext(ctx, "call", "method", req.Spec().Procedure, "took", time.Since(began),
			"error", err)
		return resp, err
	}
}

func (l logged) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (l logged) WrapStreamingHandler(
	next connect.StreamingHandlerFunc,
) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		began := time.Now()
		err := next(ctx, conn)
		l.log.InfoContext(ctx, "call", "method", conn.Spec().Procedure, "took", time.Since(began),
			"error", err)
		return err
	}
}

type known struct{}

func (known) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if req.Spec().Procedure == adminProcedure {
			return nil, connect.NewError(connect.CodePermissionDenied, errors.New("permission denied"))
		}
		return next(ctx, req)
	}
}

func (known) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (known) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
