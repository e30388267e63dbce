package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/capture"
	wiretap "github.com/farcall-dev/farcall/capture/tap"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/internal/target"
)

// tapFlags are how frames are recorded.
type tapFlags struct {
	remote
	out       string
	raw       bool
	envelopes bool
	secrets   []string
	filter    string
	maxFrame  int
	maxSize   int
	insecure  bool
}

func (f *tapFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVarP(&f.out, "out", "o", "",
		"`file` of the capture; .zst at its end compresses it (default: a new one in the "+
			"cache directory)")
	flags.BoolVar(&f.raw, "raw", false, "keep secrets; 'farcall mock' answers exactly then")
	flags.BoolVar(&f.envelopes, "envelopes", false,
		"record names, ids, sizes and times, and no contents")
	flags.StringArrayVar(&f.secrets, "secret", nil,
		"replace the values of members of this `name`, too; *, ? and paths as params.card; can "+
			"be repeated")
	flags.StringVar(&f.filter, "filter", "",
		"record only frames that the `filter` selects, as 'farcall view' takes it")
	flags.IntVar(&f.maxFrame, "max-frame", 0, "`bytes` of a frame at most (default 1 MiB)")
	flags.IntVar(&f.maxSize, "max-size", 0,
		"begin a new file after so many `bytes`; the old one becomes FILE.1")
}

// recorder opens the capture.
func (f *tapFlags) recorder() (*capture.Recorder, error) {
	o := &capture.Options{
		File: f.out, Raw: f.raw, Envelopes: f.envelopes, Secrets: f.secrets,
		MaxFrame: f.maxFrame, MaxSize: int64(f.maxSize), Program: "farcall tap",
	}
	var once sync.Once
	o.OnError = func(err error) {
		once.Do(func() { fmt.Fprintf(f.stderr, "farcall: %s\n", tame(err.Error())) })
	}
	var err error
	if f.filter != "" {
		if o.Filter, err = capture.ParseFilter(f.filter); err != nil {
			return nil, usagef("See docs/capture.md.", "%w", err)
		}
	}
	if o.File == "" {
		if o.File, err = newCapture(); err != nil {
			return nil, err
		}
	}
	r, err := capture.New(o)
	if errors.Is(err, fs.ErrExist) { // a client has started two of the same configuration
		ext := filepath.Ext(o.File)
		o.File = strings.TrimSuffix(o.File, ext) + "-" + strconv.Itoa(os.Getpid()) + ext
		r, err = capture.New(o)
	}
	if err == nil && o.File != f.out {
		fmt.Fprintf(f.stderr, "farcall: the capture is %s\n", tame(o.File))
	}
	return r, err
}

// newCapture is the path of a new capture.
func newCapture() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", usagef("Add --out FILE.", "there is no cache directory: %w", err)
	}
	dir = filepath.Join(dir, "farcall", "captures")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	name := time.Now().Format("20060102-150405") + "-" + strconv.Itoa(os.Getpid()) + ".jsonl"
	return filepath.Join(dir, name), nil
}

func newTapCmd(e *env) *cobra.Command {
	f := &tapFlags{remote: remote{env: e}}
	cmd := command("tap [FROM TO] [-- COMMAND [ARG...]]",
		"Record the frames between a client and a server", f.run)
	f.register(cmd)
	cmd.Flags().BoolVar(&f.insecure, "insecure", false, "listen where other machines can connect")
	return cmd
}

func (f *tapFlags) run(cmd *cobra.Command, args []string) (err error) {
	const example = "For example: farcall tap -- ./server, or farcall tap 127.0.0.1:9000 " +
		"http://127.0.0.1:7331"
	dash := cmd.ArgsLenAtDash()
	var to *target.Target
	switch {
	case dash == 0 && len(args) > 0:
	case dash == 1 && len(args) > 1:
		to = target.Child(args[1:])
	case dash < 0 && len(args) == 2:
		if to, err = f.locate(args[1]); err != nil {
			return err
		}
	default:
		return usagef(example, "tap takes FROM and TO, or -- and a command")
	}
	if to != nil {
		if err := unguarded("tap", args[0], "--insecure", f.insecure); err != nil {
			return err
		}
	}
	r, err := f.recorder()
	if err != nil {
		return err
	}
	if to == nil {
		err = f.command(cmd.Context(), r, args)
	} else {
		err = f.between(cmd.Context(), r, args[0], to)
	}
	err = cmp.Or(err, r.Close())
	if n := r.Dropped(); n > 0 {
		fmt.Fprintf(f.stderr, "farcall: %d frames were not recorded\n", n)
	}
	return err
}

// command runs a command in the place of this one.
func (f *tapFlags) command(ctx context.Context, r *capture.Recorder, args []string) error {
	c := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	conn := r.Connect(&capture.Record{Transport: "stdio", Command: args})
	c.Stderr = wiretap.Errors(f.stderr, r, conn)
	if err := c.Start(); err != nil {
		return &exitError{code: exitConnect, err: err, hint: notRun}
	}
	go func() { // it ends with the program when nothing closes the standard input
		_ = wiretap.Forward(in, f.stdin, r, conn, true) // the command has closed its input
		_ = in.Close()                                  // as above
	}()
	ended := make(chan error, 1)
	go func() {
		failed := wiretap.Forward(f.stdout, out, r, conn, false)
		if failed != nil {
			_ = c.Process.Signal(os.Interrupt) // the client is gone
		}
		ended <- c.Wait()
	}()
	for {
		select {
		case s := <-signals:
			_ = c.Process.Signal(s) // it has ended
		case err := <-ended:
			r.Put(&capture.Record{Type: "conn", Conn: conn, Transport: "stdio", Closed: true})
			return exitOf(err)
		}
	}
}

// exitOf is the exit of a command, with its code.
func exitOf(err error) error {
	exit := new(exec.ExitError)
	if !errors.As(err, &exit) {
		return err
	}
	code := exit.ExitCode()
	if code < 0 { // as a shell has it
		code = 128 + signalOf(exit.ProcessState)
	}
	return &exitError{code: code}
}

// between listens on from and forwards connections.
func (f *tapFlags) between(
	ctx context.Context, r *capture.Recorder, from string, to *target.Target,
) error {
	ctx, stop := signal.NotifyContext(ctx, stopping...)
	defer stop()
	l, err := port.Listen(ctx, from)
	if err != nil {
		return err
	}
	fmt.Fprintf(f.stderr, "farcall: tap on %s to %s\n", port.Schemes().Text(l.Addr()),
		tame(to.String()))
	if to.Kind == target.HTTP || to.Kind == target.WebSocket {
		return f.forwardHTTP(ctx, r, l, to)
	}
	var all sync.WaitGroup
	defer all.Wait()
	context.AfterFunc(ctx, func() { _ = l.Close() }) // it is used no more
	for {
		client, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		all.Go(func() {
			if err := f.forwardBytes(ctx, r, client, to); err != nil && ctx.Err() == nil {
				fmt.Fprintf(f.stderr, "farcall: %s\n", tame(err.Error()))
			}
		})
	}
}

// forwardBytes forwards one connection.
func (f *tapFlags) forwardBytes(
	ctx context.Context, r *capture.Recorder, client net.Conn, to *target.Target,
) error {
	about := &capture.Record{
		Transport: to.Scheme, Peer: client.RemoteAddr().String(),
		Command: to.Command,
	}
	var (
		server io.ReadWriteCloser
		err    error
	)
	if to.Kind == target.Command {
		about.Transport = "stdio"
		server, err = f.startChild(to.Command)
	} else {
		server, err = to.Open(ctx, nil)
	}
	if err != nil {
		return errors.Join(err, client.Close())
	}
	stop := context.AfterFunc(ctx, func() {
		_ = client.Close() // it ends with the command
		_ = server.Close() // as above
	})
	defer stop()
	return wiretap.Pipe(r, about, &noHTTP{Conn: client}, server)
}

// forwardHTTP forwards requests.
func (f *tapFlags) forwardHTTP(
	ctx context.Context, r *capture.Recorder, l net.Listener, to *target.Target,
) error {
	log := slog.New(slog.NewTextHandler(f.stderr, nil))
	h := wiretap.NewHandler(r, to.URL, nil, log)
	if !f.insecure {
		h = localHosts(h)
	}
	return serveUntil(ctx, &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}, l)
}
