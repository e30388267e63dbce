package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// drainTime is how long calls in flight may take to finish after the first
// signal.
const drainTime = 10 * time.Second

type serveFlags struct {
	listen      []string
	stdio       bool
	tlsCert     string
	tlsKey      string
	maxMessage  byteSize
	details     bool
	v1          bool
	log         string
	logPayloads bool
}

func newServeCmd(e *env) *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the playground: JSON-RPC and MCP, every transport on one port",
		Long: `Serve a playground of JSON-RPC methods, which are also the tools of an MCP
server. One port speaks every protocol and finds out which from the first bytes
of a connection: HTTP, WebSocket, newline-delimited JSON, Content-Length framing,
and any of them in TLS.

	POST /rpc          one message or a batch
	GET  /rpc/stream   ?method=NAME&params=JSON, as an event stream
	GET  /rpc/ws       WebSocket, both directions
	     /mcp          MCP in every revision: Streamable HTTP, or WebSocket
	     /sse          MCP of 2024-11-05 (HTTP+SSE), which posts to /messages
	GET  /             a page that lists the methods and calls them
	GET  /healthz      200 while the process lives
	GET  /readyz       200 while it accepts calls

Everything else that carries JSON-RPC carries MCP as well: the first message of a
connection says which of the two it is.

When it accepts connections it prints on standard error, for each address,

	farcall: ready http://127.0.0.1:7331

SIGTERM and SIGINT let the calls in flight finish, 10 seconds at most; a second
signal ends the process at once.`,
		Example: `  farcall serve
  farcall serve --listen 127.0.0.1:0 --listen unix:/tmp/farcall.sock
  farcall serve --stdio
  farcall serve --tls-cert cert.pem --tls-key key.pem --log json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), e) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.listen, "listen", nil, "`address` to listen on: host:port, :port, unix:PATH; may be given again (default "+defaultAddress+", unless --stdio)")
	flags.BoolVar(&f.stdio, "stdio", false, "serve standard input and output")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "`file` with the certificate (PEM); makes the port speak TLS too")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`file` with the private key (PEM)")
	flags.Var(&f.maxMessage, "max-message", "largest message, such as 10MB (default: stdio 10MB, TCP 100MB, HTTP and WebSocket 50MB)")
	flags.BoolVar(&f.details, "details", false, "tell callers the Go type and text of internal errors; for trusted callers only")
	flags.BoolVar(&f.v1, "v1", false, "accept JSON-RPC 1.0 too")
	flags.StringVar(&f.log, "log", "text", "`format` of the log on standard error: text, json or off")
	flags.BoolVar(&f.logPayloads, "log-payloads", false, "log the messages too, up to 16 KiB of each; they may hold secrets")
	return cmd
}

// run serves until a signal comes, the context ends, or, where standard input
// is all that is served, until that ends.
func (f *serveFlags) run(ctx context.Context, e *env) error {
	s, err := f.server(e) //nolint:contextcheck // nothing runs yet
	if err != nil {
		return err
	}
	defer s.play.Close()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := s.start(ctx, f); err != nil {
		return err
	}
	select {
	case <-signals:
	case <-ctx.Done():
	case err = <-s.ended:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	drained := make(chan struct{})
	go func() {
		s.drain(ctx)
		close(drained)
	}()
	select {
	case <-drained:
		return err
	case <-signals:
		return &exitError{code: exitFailure, err: errors.New("stopped before the calls in flight had finished")}
	}
}
