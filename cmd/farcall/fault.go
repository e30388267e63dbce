package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/fault"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/stream"
)

// faultHelp lists the faults; it is part of the help.
func faultHelp() string {
	var b strings.Builder
	for _, f := range fault.Faults() {
		fmt.Fprintf(&b, "  %-17s %s\n", f.Name, strings.ReplaceAll(f.Help, "`", ""))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// faulting is farcall fault.
type faulting struct {
	*remote
	rules []string
	seed  uint64
	quiet bool

	reachable bool // FROM may be an address that other machines can reach

	mu sync.Mutex // of standard error
}

func newFaultCmd(e *env) *cobra.Command {
	x := &faulting{remote: &remote{env: e}}
	cmd := command("fault [FROM] TO", "Put a proxy with faults between a client and a server", x.run)
	f := cmd.Flags()
	f.StringArrayVar(&x.rules, "fault", nil, "apply this `FAULT[:KEY=VALUE,...]`; can be repeated")
	f.Uint64Var(&x.seed, "seed", 0, "make the same choices as another run with this `number`")
	f.BoolVarP(&x.quiet, "quiet", "q", false, "name no faults on standard error")
	f.StringVar(&x.framing, "framing", "", "frame messages on a byte stream by `line` or header")
	f.BoolVar(&x.reachable, "reachable", false,
		"listen where other machines can connect, and for every host name")
	x.tlsFlags(cmd)
	return cmd
}

// report names a fault.
func (x *faulting) report(e fault.Event) {
	if x.quiet {
		return
	}
	what := ""
	if e.Method != "" {
		what += ", " + tame(e.Method)
	}
	if e.ID != "" {
		what += ", id " + tame(e.ID)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	fmt.Fprintf(x.stderr, "fault: %s %s, connection %d, frame %d%s\n", e.Fault, e.To, e.Connection,
		e.Frame, what)
}

func (x *faulting) run(cmd *cobra.Command, args []string) error {
	if len(x.rules) == 0 {
		return usagef("For example: --fault late:every=10,delay=2s", "no --fault")
	}
	var rules []fault.Rule
	for _, text := range x.rules {
		r, err := fault.ParseRule(text)
		if err != nil {
			return usagef("For example: --fault late:every=10,delay=2s", "--fault: %w", err)
		}
		rules = append(rules, r)
	}
	in, err := fault.New(rules, &fault.Options{Seed: x.seed, OnFault: x.report})
	if err != nil {
		return err
	}
	from, to, err := x.ends(cmd, args)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	if from == nil {
		return x.inPlace(ctx, in, to)
	}
	l, err := x.listen(ctx, from)
	if err != nil {
		return err
	}
	fmt.Fprintf(x.stderr, "farcall: listening at %s, to %s\n", l.Addr(), tame(to.String()))
	if to.URL != nil {
		return x.serveWeb(ctx, in, l, to)
	}
	return x.serveBytes(ctx, in, l, to)
}

// ends reads FROM and TO. from is nil for standard input and output.
func (x *faulting) ends(cmd *cobra.Command, args []string) (from, to *target.Target, err error) {
	dash := cmd.ArgsLenAtDash()
	words := args
	if dash >= 0 {
		words = args[:dash]
	}
	if want := 2; dash < 0 && len(words) != want ||
		dash >= 0 && (len(words) > 1 || len(args) == dash) {
		return nil, nil,
			usagef("For example: farcall fault --fault drop:p=0.1 tcp://127.0.0.1:7400 "+
				"tcp://127.0.0.1:7331, or a command behind --", "FROM and TO are needed")
	}
	if dash >= 0 {
		to = target.Child(args[dash:])
	} else if to, err = x.locate(words[1]); err != nil {
		return nil, nil, err
	}
	if err := x.frame(to); err != nil {
		return nil, nil, err
	}
	if err := x.check(to); err != nil {
		return nil, nil, err
	}
	if len(words) > 0 {
		if from, err = readTarget(words[0]); err != nil {
			return nil, nil, err
		}
		if (from.URL != nil) != (to.URL != nil) {
			return nil, nil, usagef("Use http or ws at both ends, or tcp or unix as FROM.",
				"%s cannot be in front of %s", from, to)
		}
		if from.Secure || from.Scheme == "npipe" {
			return nil, nil, usagef("Use http, ws, tcp or unix.", "FROM cannot be %s", from)
		}
	}
	if to.Framing == stream.Raw {
		return nil, nil, usagef("Use line or header.",
			"the framing raw is not possible: faults are those of frames")
	}
	return from, to, nil
}

// listen opens FROM, which other machines must not reach unless the user insists.
func (x *faulting) listen(ctx context.Context, from *target.Target) (net.Listener, error) {
	address := from.Address
	switch {
	case from.Scheme == "unix":
		address = "unix:" + from.Address
	case from.URL != nil:
		address = from.URL.Host
	}
	if err := unguarded("fault", address, "--reachable", x.reachable); err != nil {
		return nil, err
	}
	l, err := port.Listen(ctx, address)
	if err != nil {
		return nil, &exitError{code: exitConnect, err: err}
	}
	return l, nil
}

// inPlace takes the place of a command.
func (x *faulting) inPlace(ctx context.Context, in *fault.Injector, to *target.Target) error {
	child, err := x.startChild(to.Command)
	if err != nil {
		return connectFailure(to, err)
	}
	read, write := io.Pipe()
	go func() { // it ends with standard input, or with the program: a read of it cannot be interrupted
		_, err := io.Copy(write, x.stdin)
		_ = write.CloseWithError(err) // it returns no error
	}()
	return x.ended(ctx, in.Proxy(ctx, stdio{read, x.stdout}, child, to.Framing == stream.Header))
}

// stdio is standard input and output as a byte stream.
type stdio struct {
	*io.PipeReader
	io.Writer
}

// Close closes both, so that the client sees the end.
func (s stdio) Close() error {
	_ = s.PipeReader.Close() // it returns no error
	if f, ok := s.Writer.(*os.File); ok {
		return f.Close()
	}
	return nil
}

// ended is the exit of a proxy after its connection has ended.
func (x *faulting) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) ||
		errors.Is(err, io.ErrClosedPipe) {
		err = nil
	}
	return err
}

// serveBytes connects each client to a server.
func (x *faulting) serveBytes(
	ctx context.Context, in *fault.Injector, l net.Listener, to *target.Target,
) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	for {
		client, err := l.Accept()
		if err != nil {
			return x.ended(ctx, err)
		}
		wg.Go(func() {
			server, err := x.dialBytes(ctx, to)
			if err != nil {
				_ = client.Close()
				x.complain(err)
				return
			}
			if err := x.ended(ctx,
				in.Proxy(ctx, &noHTTP{Conn: client}, server, to.Framing == stream.Header)); err != nil {
				x.complain(err)
			}
		})
	}
}

func (x *faulting) complain(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	fmt.Fprintf(x.stderr, "farcall: %s\n", tame(err.Error()))
}

// serveWeb passes HTTP and WebSockets on.
func (x *faulting) serveWeb(
	ctx context.Context, in *fault.Injector, l net.Listener, to *target.Target,
) error {
	client, err := x.httpClient()
	if err != nil {
		return err
	}
	base := *to.URL
	base.Scheme = map[string]string{"ws": "http", "wss": "https"}[base.Scheme]
	base.Scheme = cmp.Or(base.Scheme, to.URL.Scheme)
	h := in.Handler(&base, client)
	if !x.reachable {
		h = localHosts(h)
	}
	return serveUntil(ctx, &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second}, l)
}
