package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/stream"
)

func newCallCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var o callOptions
	cmd := r.onMethod("call", "Call a method and print its result",
		func(cmd *cobra.Command, args []string) error { return r.call(cmd, args, o) })
	r.signFlag(cmd)
	f := cmd.Flags()
	f.BoolVar(&r.gzip, "gzip", false,
		"accept gzip over HTTP; off by default: where answers hold secrets beside what others choose, "+
			"their sizes reveal them (BREACH)")
	f.BoolVar(&o.raw, "raw", false, "print the whole response as it came")
	f.BoolVar(&o.curl, "curl", false, "print the shell line that makes the call, instead of making it")
	f.BoolVar(&o.notifications, "notifications", false,
		"print the notifications that arrive on standard error")
	f.StringArrayVar(&o.answers, "answer", nil,
		"answer the server's own calls, `METHOD=RESULT`; can be repeated")
	return cmd
}

// onMethod makes a command that takes TARGET METHOD [PARAMS].
func (r *remote) onMethod(
	name, short string, run func(*cobra.Command, []string) error,
) *cobra.Command {
	cmd := command(name+" TARGET METHOD [PARAMS]", short, run)
	cmd.ValidArgsFunction = r.completeSecond(r.methodNames)
	r.callFlags(cmd, defaultTimeout)
	return cmd
}

// completionTimeout is how long a shell may be kept waiting for the names of methods.
const completionTimeout = 500 * time.Millisecond

type callOptions struct {
	raw, curl, notifications bool
	answers                  []string
}

// invocation is what the words of a command line ask for.
type invocation struct {
	target *target.Target
	method string
	params jsonrpc.Raw // nil: none
}

// request reads TARGET METHOD [PARAMS] in either order of target and method.
func (r *remote) request(cmd *cobra.Command, args []string) (q invocation, err error) {
	t, rest, err := r.split(cmd, args)
	if err != nil {
		return q, err
	}
	q.target = t
	if len(rest) == 0 || rest[0] == "" {
		hint := fmt.Sprintf("For example: %s %s METHOD a=1", cmd.CommandPath(), t)
		if t.Kind == target.Command {
			hint = fmt.Sprintf("The method stands before --: %s METHOD a=1 %s", cmd.CommandPath(), t)
		}
		return q, usagef(hint, "no method")
	}
	q.method = rest[0]
	if len(rest) == 1 {
		q.params, err = r.pipedParams(cmd.Context())
		return q, err
	}
	q.params, err = parseParams(rest[1:], r.stdin)
	return q, err
}

// orNil is nil for no params: a nil Raw in an interface would not be.
func orNil(params jsonrpc.Raw) any {
	if params == nil {
		return nil
	}
	return params
}

func (r *remote) call(cmd *cobra.Command, args []string, o callOptions) error {
	q, err := r.request(cmd, args)
	if err != nil {
		return err
	}
	if q.params, err = r.signMessage(q.target, q.method, q.params); err != nil {
		return err
	}
	if o.curl {
		if r.sign != "" && q.target.URL != nil {
			return usagef("Leave one out.", "--curl: curl cannot sign a request")
		}
		return r.printShellLine(&q, false)
	}
	v := &callbacks{}
	if v.answers, err = parseAnswers(o.answers); err != nil {
		return err
	}
	if o.notifications {
		v.notify = printNotification(r.stderr)
	}
	return r.with(cmd.Context(), q.target, v, func(ctx, limited context.Context, s *session) error {
		var result jsonrpc.Raw
		err := s.Call(limited, q.method, orNil(q.params), &result)
		if o.raw {
			if raw := s.answer(); raw != nil {
				if _, err := r.stdout.Write(append(raw, '\n')); err != nil {
					return err
				}
				if err == nil {
					return nil
				}
			}
		}
		if err != nil {
			return q.methodFailure(ctx, s, err)
		}
		return r.printJSON(result)
	})
}

// completeSecond offers the names of targets, and behind one those that it has.
func (r *remote) completeSecond(
	names func(ctx context.Context, target string) []string,
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return completeNames()
		case 1:
			if fromHere(args[0]) {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
			defer cancel()
			return names(ctx, args[0]), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// methodNames are the methods that a target says it has.
func (r *remote) methodNames(ctx context.Context, text string) (names []string) {
	t, err := r.locate(text)
	if err != nil || r.check(t) != nil {
		return nil
	}
	t.DefaultPath("")
	s, err := r.connect(ctx, t, nil)
	if err != nil {
		return nil
	}
	defer s.end(ctx)
	doc, err := discover(ctx, s)
	if err != nil {
		return nil
	}
	for i := range doc.Methods {
		m := &doc.Methods[i]
		names = append(names, m.Name+"\t"+m.about())
	}
	return names
}

func newNotifyCmd(e *env) *cobra.Command {
	r := &remote{env: e}
	var curl bool
	cmd := r.onMethod("notify", "Send a notification, which has no answer",
		func(cmd *cobra.Command, args []string) error { return r.notify(cmd, args, curl) })
	cmd.Flags().BoolVar(&curl, "curl", false,
		"print the shell line that sends it, instead of sending it")
	return cmd
}

func (r *remote) notify(cmd *cobra.Command, args []string, curl bool) error {
	q, err := r.request(cmd, args)
	if err != nil {
		return err
	}
	if curl {
		return r.printShellLine(&q, true)
	}
	return r.with(cmd.Context(), q.target, nil, func(ctx, limited context.Context, s *session) error {
		err := s.Notify(limited, q.method, orNil(q.params))
		if err == nil {
			err = delivered(limited, s)
		}
		return callFailure(ctx, q.method, q.target, s, err)
	})
}

// delivered waits until a notification has been written.
func delivered(ctx context.Context, s *session) error {
	if err := s.Shutdown(ctx); err != nil && s.Err() != farcall.ErrClosed { //nolint:errorlint // Err returns it bare when this end closed
		return err
	}
	return nil
}

// with connects, and disconnects after use. Ctrl-C ends its first context, and --timeout the
// second, too.
func (r *remote) with(
	ctx context.Context, t *target.Target, v *callbacks,
	use func(ctx, limited context.Context, s *session) error,
) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	limited, cancel := r.limit(ctx)
	defer cancel()
	s, err := r.connect(limited, t, v)
	if err != nil {
		return err
	}
	defer s.end(ctx)
	return use(ctx, limited, s)
}

// printShellLine is --curl.
func (r *remote) printShellLine(q *invocation, notify bool) error {
	if r.cert != "" && q.target.Kind == target.WebSocket {
		return usagef("Use an https or tls target, or leave one out.",
			"--curl: websocat reads no certificate in PEM")
	}
	_, err := fmt.Fprintln(r.stdout, r.shellLine(q.target, q.method, q.params, notify))
	return err
}

// shellLine is the line that makes the same call without farcall.
func (r *remote) shellLine(
	t *target.Target, method string, params jsonrpc.Raw, notify bool,
) string {
	id := jsonrpc.IntID(1)
	if notify {
		id = jsonrpc.ID{}
	}
	message := string(r.version().AppendRequest(nil, id, method, compact(params)))
	line := "printf '%s\\n' " + shellQuote(message) + " | "
	if t.Framing == stream.Header {
		line = fmt.Sprintf("printf 'Content-Length: %d\\r\\n\\r\\n%%s' %s | ", len(message),
			shellQuote(message))
	}
	switch t.Kind {
	case target.HTTP:
		return r.curlLine(t, message)
	case target.WebSocket:
		return line + r.websocatLine(t)
	case target.Stream:
		return line + r.streamLine(t)
	}
	return line + shellWords(t.Command)
}

// streamLine is a command that connects its standard input and output to a byte stream.
func (r *remote) streamLine(t *target.Target) string {
	switch t.Scheme {
	case "tls":
		return "openssl s_client -quiet -connect " + shellQuote(t.Address) + r.opensslFlags()
	case "unix":
		return "nc -U " + shellQuote(t.Address)
	}
	host, port, _ := net.SplitHostPort(t.Address)
	return "nc " + shellWords([]string{host, port})
}

func (r *remote) version() jsonrpc.Version {
	if r.v1 {
		return jsonrpc.V1
	}
	return jsonrpc.V2
}

func (r *remote) curlLine(t *target.Target, message string) string {
	words := []string{"curl", "-sS"}
	if r.gzip {
		words = append(words, "--compressed")
	}
	if r.insecure {
		words = append(words, "-k")
	}
	for _, w := range [][]string{{"--cacert", r.cacert}, {"--cert", r.cert}, {"--key", r.key}} {
		if w[1] != "" {
			words = append(words, w...)
		}
	}
	if r.timeout > 0 && r.timeout != defaultTimeout {
		words = append(words, "--max-time", fmt.Sprint(r.timeout.Seconds()))
	}
	words = append(words, "-H", "Content-Type: application/json")
	return r.webLine(words, "--data-binary", message, t.URL.String())
}

func (r *remote) websocatLine(t *target.Target) string {
	words := []string{"websocat", "-n1"}
	if r.insecure {
		words = append(words, "-k")
	}
	return r.webLine(words, t.URL.String())
}

// webLine is a command with the headers, and what stands behind them. The token of --bearer stays
// in its file.
func (r *remote) webLine(words []string, behind ...string) string {
	for _, h := range r.header {
		words = append(words, "-H", h)
	}
	line := shellWords(words)
	if r.bearer != "" {
		line += ` -H "Authorization: Bearer $(cat ` + shellQuote(r.bearer) + `)"`
	}
	return line + " " + shellWords(behind)
}

func (r *remote) opensslFlags() (flags string) {
	if r.cert != "" {
		flags = " -cert " + shellQuote(r.cert) + " -key " + shellQuote(cmp.Or(r.key, r.cert))
	}
	switch {
	case r.insecure:
		return flags
	case r.cacert != "":
		return flags + " -verify_return_error -CAfile " + shellQuote(r.cacert)
	}
	return flags + " -verify_return_error"
}

func shellWords(words []string) string {
	return strings.Join(mapped(words, shellQuote), " ")
}

// shellQuote writes a word so that a POSIX shell reads it as it is.
func shellQuote(word string) string {
	special := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') &&
			!strings.ContainsRune("-_./:@%+,=", c)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
