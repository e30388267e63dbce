package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/natsrpc"
	"github.com/farcall-dev/farcall/stream"
)

const defaultTimeout = 30 * time.Second

// remote is what the commands that reach another end have in common.
type remote struct {
	*env
	timeout  time.Duration
	header   []string
	framing  string
	cacert   string
	cert     string // file with a client certificate
	key      string // file with its key; "": cert
	insecure bool
	v1       bool
	gzip     bool
	verbose  bool   // show the frames
	bearer   string // file with a token
	warned   bool   // that others may read it
	sign     string // ID=FILE
	audience string // of what is signed, over a byte stream
	// the server that the target names; nil: the target is an address or a command
	entry *gateway.Upstream
}

// flags adds the options to a command.
func (r *remote) flags(cmd *cobra.Command, timeout time.Duration) {
	f := cmd.Flags()
	f.DurationVar(&r.timeout, "timeout", timeout, "how long to wait for an answer; 0 for ever")
	if r.kept != nil {
		return // the others are about connecting
	}
	f.StringArrayVarP(&r.header, "header", "H", nil,
		"send an HTTP header, `'Name: value'`; can be repeated")
	f.StringVar(&r.bearer, "bearer", "",
		"send the key or token in this `file` as Authorization: Bearer")
	f.StringVar(&r.framing, "framing", "", "frame messages on a byte stream by `line`, header or raw")
	r.tlsFlags(cmd)
}

// tlsFlags adds the options for TLS.
func (r *remote) tlsFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.cacert, "cacert", "", "trust the certificate authorities in this PEM `file`")
	f.StringVar(&r.cert, "cert", "", "send the client certificate in this PEM `file`")
	f.StringVar(&r.key, "key", "",
		"the private key of --cert is in this PEM `file`; by default in that of --cert")
	f.BoolVar(&r.insecure, "insecure", false, "do not check the server's certificate")
}

// overTLS reports whether options for TLS were given.
func (r *remote) overTLS() bool { return r.insecure || r.cacert != "" || r.cert != "" }

// verboseFlag adds -v.
func (r *remote) verboseFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&r.verbose, "verbose", "v", false,
		"show the messages on standard error, > sent and < received; they may hold secrets")
}

// callFlags adds the options of the commands that call, notify or listen.
func (r *remote) callFlags(cmd *cobra.Command, timeout time.Duration) {
	r.flags(cmd, timeout)
	r.verboseFlag(cmd)
	cmd.Flags().BoolVar(&r.v1, "v1", false, "speak JSON-RPC 1.0")
}

// split finds the target among the arguments and returns the rest: what stands
// behind -- is a command, and otherwise the first argument is the target.
func (r *remote) split(
	cmd *cobra.Command, args []string,
) (t *target.Target, rest []string, err error) {
	if r.kept != nil {
		return r.kept.target, args, nil
	}
	switch dash := cmd.ArgsLenAtDash(); {
	case dash >= 0 && dash == len(args):
		return t, nil, usagef("For example: "+cmd.CommandPath()+" ... -- ./server --stdio",
			"no command behind --")
	case dash >= 0:
		t, rest = target.Child(args[dash:]), args[:dash]
	case len(args) == 0:
		return t, nil, usagef(fmt.Sprintf("Run '%s --help' for its forms.", cmd.CommandPath()),
			"no target")
	default:
		if t, err = r.locate(args[0]); err != nil {
			return t, nil, err
		}
		t.DefaultPath("")
		rest = args[1:]
	}
	if err := r.frame(t); err != nil {
		return t, nil, err
	}
	return t, rest, r.check(t)
}

// frame applies --framing.
func (r *remote) frame(t *target.Target) error {
	if r.framing == "" {
		return nil
	}
	framing, ok := target.ParseFraming(r.framing)
	if !ok {
		return usagef("Use --framing line, --framing header or --framing raw.", "there is no framing %q",
			r.framing)
	}
	t.Framing = framing
	return nil
}

// check refuses options that the target would ignore.
func (r *remote) check(t *target.Target) error {
	web := t.Kind == target.HTTP || t.Kind == target.WebSocket
	switch {
	case r.bearer != "" && !web:
		return usagef("Leave it out, or use an http or ws target.", "--bearer: %s has no headers", t)
	case len(r.header) > 0 && !web:
		return usagef("Leave it out, or use an http or ws target.", "--header: %s has no headers", t)
	case r.gzip && t.Kind != target.HTTP:
		return usagef("Leave it out, or use an http target.", "--gzip: %s is not HTTP", t)
	case web && t.Framing != stream.NDJSON:
		return usagef("Leave it out.", "--framing is for byte streams, not for %s", t)
	case r.key != "" && r.cert == "":
		return usagef("Add --cert FILE, the certificate of the key.", "--key without --cert")
	case r.overTLS() && !t.Secure:
		return usagef("Use https://, wss:// or tls://, or leave it out.",
			"--insecure, --cacert and --cert are for TLS, and %s has none", t)
	}
	_, err := r.headers()
	return err
}

// headers are those of --header.
func (r *remote) headers() (http.Header, error) {
	h := http.Header{}
	for _, line := range r.header {
		name, value, ok := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, " \t\r\n") ||
			strings.ContainsAny(value, "\r\n") {
			return nil, usagef("Write it as --header 'Authorization: Bearer TOKEN'.",
				"%q is not a header", line)
		}
		h.Add(textproto.CanonicalMIMEHeaderKey(name), strings.TrimSpace(value))
	}
	if r.entry != nil {
		for name, value := range r.entry.Headers {
			if h.Get(name) == "" {
				h.Set(name, value)
			}
		}
	}
	return h, r.addBearer(h)
}

// tls is how the server's certificate is checked, and what the client shows.
func (r *remote) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: r.insecure} //nolint:gosec // --insecure asks for it
	if r.cert != "" {
		certificate, err := r.certificate()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{certificate}
	}
	if r.cacert == "" {
		return c, nil
	}
	pem, err := os.ReadFile(r.cacert)
	if err != nil {
		return nil, unreadable("--cacert", r.cacert, err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(pem) {
		return nil, usagef("It must hold certificates in PEM form (-----BEGIN CERTIFICATE-----).",
			"there is no certificate in %s", r.cacert)
	}
	return c, nil
}

// certificate reads --cert and --key.
func (r *remote) certificate() (c tls.Certificate, err error) {
	cert, err := os.ReadFile(r.cert)
	if err != nil {
		return c, unreadable("--cert", r.cert, err)
	}
	key := cert
	if r.key != "" {
		if key, err = os.ReadFile(r.key); err != nil {
			return c, unreadable("--key", r.key, err)
		}
	}
	if c, err = tls.X509KeyPair(cert, key); err != nil {
		return c, usagef("The files must be PEM, and the key must belong to the certificate.",
			"cannot use --cert %s: %w", r.cert, err)
	}
	return c, nil
}

// httpClient is what http and ws targets are reached with.
func (r *remote) httpClient() (*http.Client, error) {
	config, err := r.tls()
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck // documented to be one
	transport.TLSClientConfig = config
	nats := &natsrpc.Transport{TLS: config, Logger: orDiscard(nil)}
	transport.RegisterProtocol("nats", nats)
	transport.RegisterProtocol("nats+tls", nats)
	signed, err := r.signed(transport)
	return &http.Client{Transport: signed}, err
}

// interruptible is a context that Ctrl-C ends. A second Ctrl-C ends the program.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// limit bounds a context by --timeout.
func (r *remote) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, r.timeout)
}

// parseTarget reads a TARGET other than a command, for JSON-RPC.
func parseTarget(text string) (*target.Target, error) {
	t, err := readTarget(text)
	if err == nil {
		t.DefaultPath("")
	}
	return t, err
}

// readTarget reads a TARGET other than a command. A URL without a path has none.
func readTarget(text string) (*target.Target, error) {
	t, err := target.Parse(text)
	if bad := (*target.Error)(nil); errors.As(err, &bad) {
		return nil, usagef("Try http://host:port, ws://host:port, tcp://host:port, unix:PATH, or put a "+
			"command behind --; a NAME must be in targets.yaml or mcp.json.", "%w", err)
	}
	return t, err
}
