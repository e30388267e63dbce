package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/guard"
	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/internal/size"
	"github.com/farcall-dev/farcall/observe"
	"github.com/farcall-dev/farcall/observe/levels"
	"github.com/farcall-dev/farcall/observe/metrics"
	"github.com/farcall-dev/farcall/rpc"
)

// This file makes options of flags, and says in terms of flags what is wrong with them.

// addresses are where to listen.
func (f *serveFlags) addresses() []string {
	if len(f.listen) == 0 && !f.stdio {
		return []string{defaultAddress}
	}
	return f.listen
}

// rpcOptions are the options of all connections.
func (f *serveFlags) rpcOptions(log *slog.Logger) farcall.Options {
	return farcall.Options{
		Details: f.details, V1: f.v1, Logger: orDiscard(log).With(levels.Key, "rpc"),
		Budget: f.limits.budget,
		Observer: observe.Join(
			callLog(log, f.logPayloads), f.measured().Observer(), f.tracer.Observer(), f.recording(),
			f.kept.Observer(func(ctx context.Context) string { return guard.From(ctx).Owner() }),
		),
	}
}

// measured returns the metrics of the process.
func (f *serveFlags) measured() *metrics.Metrics {
	if f.metrics == nil {
		f.metrics = metrics.New(&metrics.Options{Version: versionName()})
	}
	return f.metrics
}

// serveOptions are the options of the server. A configuration says what flags do not.
func (f *serveFlags) serveOptions(
	c *gateway.Config, log *slog.Logger, stderr io.Writer,
) *rpc.ServeOptions {
	if f.tlsCert == "" && f.tlsKey == "" && f.clientCA == "" {
		f.tlsCert, f.tlsKey, f.clientCA = c.TLS.Cert, c.TLS.Key, c.TLS.ClientCA
		f.configuredTLS = true
	}
	if len(f.trusted) == 0 {
		f.trusted = c.TrustedProxies
	}
	options, l := f.rpcOptions(log), &f.limits
	return &rpc.ServeOptions{
		RPC: &options, Logger: orDiscard(log), MaxMessage: int(f.maxMessage), Gzip: f.gzip,
		StdHTTP:  f.http == "std",
		CertFile: f.tlsCert, KeyFile: f.tlsKey, ClientCAFile: f.clientCA,
		TrustedProxies: f.trusted, Origins: f.origins, Hosts: f.hosts,
		FrameTimeout: l.frameTimeout, IdleTimeout: l.idle,
		MaxConnections: l.connections, MaxConnectionsPerClient: l.perAddress, AcceptRate: l.rate,
		Insecure: f.insecure,
		OnInsecure: func(why string) {
			fmt.Fprintf(stderr, "farcall: INSECURE, as --insecure demands: %s\n", why)
		},
	}
}

// prepare makes the server of a gateway, before there is the gateway. It refuses addresses that
// would not be safe.
func (f *serveFlags) prepare(
	c *gateway.Config, log *slog.Logger, stderr io.Writer,
) (*behind, error) {
	if err := f.checkAddresses(); err != nil {
		return nil, err
	}
	f.limits.configured(c)
	f.limits.newBudget()
	b := &behind{config: c.Guard}
	o := f.serveOptions(c, log, stderr)
	o.Service = b
	return b, f.newServer(nil, o, c)
}

// newServer makes the server, and refuses addresses that would not be safe with the guard of a
// configuration.
func (f *serveFlags) newServer(h farcall.Handler, o *rpc.ServeOptions, c *gateway.Config) error {
	var err error
	f.tells = o.Logger
	if f.server, err = rpc.NewServer(h, o); err != nil {
		return f.refused(err, exitUsage)
	}
	bad := unsafeAddresses(f.server, c.Guard, f.addresses())
	switch {
	case len(bad) == 0:
		return nil
	case f.config != "" && slices.Equal(f.listen, c.Listen):
		return configFailure(unsafeIn(f.config, c, bad))
	}
	for _, address := range f.addresses() {
		if e := bad[address]; e != nil {
			return f.refused(e, exitUsage)
		}
	}
	return nil
}

// unsafeAddresses are those that a server would refuse with a guard.
func unsafeAddresses(
	s *rpc.Server, c *guard.Config, addresses []string,
) map[string]*rpc.ServeError {
	bad := map[string]*rpc.ServeError{}
	for _, address := range addresses {
		if e, ok := errors.AsType[*rpc.ServeError](s.Check(policyOf(c), address)); ok {
			bad[address] = e
		}
	}
	return bad
}

// unsafeIn is the error for addresses of a file that would not be safe.
func unsafeIn(file string, c *gateway.Config, bad map[string]*rpc.ServeError) *gateway.ConfigError {
	e := &gateway.ConfigError{File: file}
	for i, address := range c.Listen {
		if x := bad[address]; x != nil {
			e.Problems = append(e.Problems,
				c.ProblemAt(fmt.Sprintf("listen[%d]", i), x.Reason, inFlags(x.Hint)))
		}
	}
	return e
}

// policyOf returns a guard's configuration as a policy, nil for nil.
func policyOf(c *guard.Config) rpc.Policy {
	if c == nil {
		return nil
	}
	return c
}

// checkReload refuses a new guard with which the addresses would not be safe.
func (f *serveFlags) checkReload(c *guard.Config) error {
	if e, ok := errors.AsType[*rpc.ServeError](f.server.Check(policyOf(c), f.addresses()...)); ok {
		return errors.New(e.Reason + "; " + inFlags(e.Hint))
	}
	return nil
}

// moveCertificate takes the files and authorities of a new configuration. It reports whether that
// could be done: TLS itself cannot come or go.
func (f *serveFlags) moveCertificate(c *gateway.Config) bool {
	if f.configuredTLS {
		if !f.server.UseCertificate(c.TLS.Cert, c.TLS.Key, c.TLS.ClientCA) {
			return false
		}
		f.clientCA = c.TLS.ClientCA
	}
	f.server.Trust(policyOf(c.Guard))
	return true
}

// refused is the exit for what the server refuses.
func (f *serveFlags) refused(err error, code int) error {
	e, ok := errors.AsType[*rpc.ServeError](err)
	if !ok {
		return err
	}
	hint := inFlags(e.Hint)
	if hint != "" {
		hint = strings.ToUpper(hint[:1]) + hint[1:] + "."
	}
	return &exitError{code: code, err: errors.New(inFlags(e.Reason)), hint: hint}
}

// inFlags rewrites an error about rpc.ServeOptions in terms of flags.
func inFlags(text string) string {
	return strings.NewReplacer(
		"set ServeOptions.Guard", "add a guard (guard: in the configuration, or --guard FILE)",
		"Allow or Deny of guard.Config, not", "allow: or deny: in the guard, not",
		"unset Anonymous", "remove anonymous: true",
		"set ServeOptions.CertFile and ServeOptions.KeyFile, name",
		"add a certificate (tls: in the configuration, or --tls-cert and --tls-key), name",
		"(ServeOptions.TrustedProxies)", "(trusted_proxies:, or --trusted-proxy)",
		"ServeOptions.CertFile", "--tls-cert", "ServeOptions.KeyFile", "--tls-key",
		"ServeOptions.ClientCAFile", "--tls-client-ca", "ServeOptions.Origins", "--origin",
		"ServeOptions.TrustedProxies", "--trusted-proxy", "ServeOptions.Insecure", "--insecure",
	).Replace(text)
}

// checkAddresses explains what is wrong with an address of --listen that cannot be read.
func (f *serveFlags) checkAddresses() error {
	for _, address := range f.addresses() {
		if err := checkAddress(address); err != nil {
			return err
		}
	}
	return nil
}

// checkAddress explains what is wrong with an address that cannot be read.
func checkAddress(text string) error {
	bad, ok := errors.AsType[*port.AddressError](port.Schemes().Check(text))
	if !ok {
		return nil
	}
	if strings.HasSuffix(bad.Instead, text) {
		return usagef("Did you mean --listen "+bad.Instead+"?", "%w", bad)
	}
	return usagef("Write --listen "+bad.Instead+".", "%w", bad)
}

// defaultAddress is where farcall listens when it is not told where.
const defaultAddress = "127.0.0.1:7331"

// byteSize is a flag such as 10MB, 512KiB or 1048576.
type byteSize int64

// memorySize is one of the memory of a process.
type memorySize int64

const (
	maxByteSize   = 1 << 30
	maxMemorySize = 1 << 40
)

// Set implements pflag.Value.
func (s *byteSize) Set(text string) error { return setSize(s, text, maxByteSize, "1GiB") }

// Set implements pflag.Value.
func (s *memorySize) Set(text string) error { return setSize(s, text, maxMemorySize, "1TiB") }

// String implements pflag.Value.
func (s *memorySize) String() string { return (*byteSize)(s).String() }

// Type implements pflag.Value.
func (s *memorySize) Type() string { return "size" }

// setSize sets s to a size of 1 byte to most, which is written as bound.
func setSize[S ~int64](s *S, text string, most int64, bound string) error {
	n, ok := size.Parse(text, 1, most)
	if !ok {
		return fmt.Errorf("%q is not a size, or out of range; "+
			"write 10MB, 512KiB or a number of bytes, up to %s", text, bound)
	}
	*s = S(n)
	return nil
}

// String implements pflag.Value.
func (s *byteSize) String() string {
	if *s == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Type implements pflag.Value.
func (s *byteSize) Type() string { return "size" }

// conflict begins the message about rules that overlap.
const conflict = "conflict: "

// loadGuard reads --guard. Without the flag the guard of the result is nil.
func (f *serveFlags) loadGuard() (*gateway.Config, error) {
	if f.guard == "" {
		return &gateway.Config{}, nil
	}
	c, err := gateway.LoadGuard(f.guard)
	if err != nil {
		return nil, configFailure(err)
	}
	return c, nil
}

// newGuard returns the guard of a configuration, or nil for none.
func (f *serveFlags) newGuard(
	c *gateway.Config, log *slog.Logger, stderr io.Writer,
) (*guard.Guard, error) {
	if c.Guard == nil {
		return nil, nil
	}
	for _, n := range c.Notices() {
		if !strings.HasPrefix(n.Message, conflict) {
			text := n.Message
			if n.Hint != "" {
				text += "; " + n.Hint
			}
			fmt.Fprintf(stderr, "farcall: %s: %s: %s\n", f.guard, n.Path, tame(text))
		}
	}
	f.warnOfCertificates(c.Guard, f.guard, stderr)
	g, err := guard.New(c.Guard, f.guardOptions(log))
	if err != nil {
		return nil, &exitError{code: exitUsage, err: err}
	}
	f.measured().Read(g.Readings)
	return g, nil
}

// operator is the role of those who get details, with --details, where there is a guard.
const operator = "operator"

func (f *serveFlags) guardOptions(log *slog.Logger) *guard.Options {
	o := &guard.Options{
		Budget: f.limits.budget, Logger: log, Observer: f.measured().Observer(),
		Shared: f.shared, Secret: f.secret, Nodes: f.nodes,
	}
	if f.details {
		o.Details = operator
	}
	return o
}

// putUp gives a configuration the guard of --guard.
func (f *serveFlags) putUp(c *gateway.Config) error {
	if f.guard == "" {
		return nil
	}
	of, err := f.loadGuard()
	if err != nil {
		return err
	}
	c.Guard = of.Guard
	f.guardFiles = of.Files()
	return nil
}

// warnOfCertificates reports that the guard wants client certificates and the listener accepts
// none.
func (f *serveFlags) warnOfCertificates(c *guard.Config, file string, stderr io.Writer) {
	switch {
	case c == nil || len(c.MTLS) == 0:
	case f.tlsCert == "":
		fmt.Fprintf(stderr,
			"farcall: %s: guard.mtls: no client certificate is accepted without TLS; add --tls-cert, "+
				"--tls-key and --tls-client-ca (or tls:)\n", file)
	case f.clientCA == "" && len(c.Authorities()) < len(c.MTLS):
		fmt.Fprintf(stderr,
			"farcall: %s: guard.mtls: there is an entry without an authority; add ca to it, or "+
				"--tls-client-ca (or tls.client_ca)\n", file)
	}
}

// reguard reads --guard again, and returns the files of it. When it is not valid the guard stays as
// it is.
func (f *serveFlags) reguard(
	reload func(*guard.Config) error, before []string, stderr io.Writer,
) (files []string) {
	c, err := gateway.LoadGuard(f.guard)
	if err == nil {
		before = c.Files()
		err = f.checkReload(c.Guard)
	}
	if err == nil {
		err = reload(c.Guard)
	}
	if err != nil {
		fmt.Fprintf(stderr, "farcall: %v\nfarcall: the new guard is refused; the one before goes on\n",
			err)
		return before
	}
	f.server.Trust(policyOf(c.Guard))
	fmt.Fprintf(stderr, "farcall: the guard of %s is in force\n", f.guard)
	return before
}

// recorderOff is what turns the flight recorder off.
const recorderOff = "off"

// captureFlags are what serve records of the calls. A nil recorder records nothing.
type captureFlags struct {
	captureFile, captureKeep string

	recorder *capture.Recorder
}

func (f *captureFlags) registerCapture(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.captureFile, "capture", "",
		"record the calls in this `file`, as 'farcall view' reads it; of a gateway on both sides "+
			"(default: file of the key capture)")
	flags.StringVar(&f.captureKeep, "capture-keep", "",
		"what is recorded of a message: envelopes (names, ids, sizes, times), frames (all of it, "+
			"without secrets) or raw (default envelopes)")
}

// record opens what records the calls, as flags and a configuration say. A gateway has the flight
// recorder in any case.
func (f *captureFlags) record(c *gateway.Config, log *slog.Logger, isGateway bool) error {
	conf := c.Capture
	conf.File = cmp.Or(f.captureFile, conf.File)
	switch f.captureKeep {
	case "", "envelopes", "frames", "raw":
	default:
		return usagef("Write --capture-keep envelopes, frames or raw.",
			"--capture-keep: there is no kind of recording %q", f.captureKeep)
	}
	conf.Keep = cmp.Or(f.captureKeep, conf.Keep)
	if conf.File == "" && (!isGateway || conf.Recorder == recorderOff) {
		return nil
	}
	o, err := conf.Options()
	if err != nil {
		return err
	}
	if isGateway && conf.Recorder != recorderOff && o.Dir == "" {
		o.Dir = dumpDirectory()
	}
	if o.File == "" && o.Dir == "" {
		return nil // dumps have no place
	}
	to := orDiscard(log).With(levels.Key, "gateway")
	o.Program = "farcall serve"
	o.OnError = func(err error) { to.Warn("the calls cannot be recorded", "error", err.Error()) }
	o.OnDump = func(why, path string) {
		to.Info("the flight recorder was written", "cause", why, "file", path)
	}
	if f.recorder, err = capture.New(o); err != nil {
		return unreadable("the capture", o.File, err)
	}
	return nil
}

// dumpDirectory is where dumps are when the configuration does not say it. "": there is no such
// place.
func dumpDirectory() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" { // of systemd
		return filepath.Join(filepath.SplitList(dir)[0], "captures")
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "farcall", "captures")
}

// recording returns the observer that records the calls; nil: there is none.
func (f *captureFlags) recording() *observe.Observer {
	if f.recorder == nil {
		return nil
	}
	return f.recorder.Observer()
}

// dropped yields how many frames the recorder has lost. It is an iter.Seq.
func (f *captureFlags) dropped(yield func(observe.Reading) bool) {
	if f.recorder == nil {
		return
	}
	yield(observe.Reading{Name: "farcall_capture_dropped_total", Value: float64(f.recorder.Dropped())})
}

// dump writes what the flight recorder has when a signal asks for it.
func (f *captureFlags) dump(stderr io.Writer) {
	if f.recorder == nil {
		fmt.Fprintln(stderr, "farcall: there is no flight recorder: a gateway has one")
		return
	}
	path, err := f.recorder.Dump("signal")
	if err != nil {
		fmt.Fprintf(stderr, "farcall: the flight recorder could not be written: %s\n", tame(err.Error()))
		return
	}
	fmt.Fprintf(stderr, "farcall: the flight recorder is in %s\n", tame(path))
}

// dumper writes what the flight recorder has for an operator. Nil: there is none.
func (f *captureFlags) dumper() func(string) (string, error) {
	if f.recorder == nil {
		return nil
	}
	return f.recorder.Dump
}

// endRecord writes the end of the capture.
func (f *captureFlags) endRecord() error {
	if f.recorder == nil {
		return nil
	}
	return f.recorder.Close()
}
