package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/target"
)

// apiPath is where a gateway serves its API for operators.
const apiPath = "/api/v1"

// operated is a gateway that is asked over HTTP by an operator.
type operated struct {
	*remote
	asJSON bool
	target *target.Target
	client *http.Client
}

// adminOptions are those of the commands of farcall admin.
type adminOptions struct{ operated }

// An adminCommand is one of farcall admin. It takes the words that its use has in capitals, the
// last of them if it likes where that is in brackets.
type adminCommand struct {
	use, short string
	run        func(ctx context.Context, o *adminOptions, args []string) error
	flags      func(cmd *cobra.Command) // nil: none
}

func newAdminCmd(e *env) *cobra.Command {
	cmd := command("admin", "Look at a running gateway, and change it",
		func(cmd *cobra.Command, args []string) error {
			return unknownCommand(cmd, args, "there is no 'farcall admin %s'")
		})
	cmd.Args, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
	for _, c := range slices.Concat(upstreamCommands(), decisionCommands(), gatewayCommands()) {
		cmd.AddCommand(c.cobra(e))
	}
	return cmd
}

// cobra makes the command.
func (c *adminCommand) cobra(e *env) *cobra.Command {
	o := &adminOptions{operated{remote: &remote{env: e}}}
	cmd := command(c.use, c.short, func(cmd *cobra.Command, args []string) error {
		rest, err := o.aim(cmd, args)
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return c.run(ctx, o, rest)
	})
	cmd.Long = c.short + "."
	words, spare := strings.Count(c.use, " "), strings.Count(c.use, "[")
	if cmd.Args = cobra.ExactArgs(words); spare > 0 {
		cmd.Args = cobra.RangeArgs(words-spare, words)
	}
	o.flags(cmd, defaultTimeout)
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the answer as it came")
	if c.flags != nil {
		c.flags(cmd)
	}
	return cmd
}

// aim finds out where the gateway is.
func (o *operated) aim(cmd *cobra.Command, args []string) (rest []string, err error) {
	o.target, rest, err = o.split(cmd, args)
	if err != nil {
		return nil, err
	}
	if o.target.Kind != target.HTTP {
		return nil, usagef("Write http://host:port.",
			"%s is not HTTP: a gateway serves its API for operators there", o.target)
	}
	o.client, err = o.httpClient()
	return rest, err
}

// get asks for something, reads the answer into what v points to, and shows it. With --json it
// prints the answer.
func (o *adminOptions) get(ctx context.Context, path string, v any, show func() error) error {
	return o.send(ctx, http.MethodGet, path, nil, v, show)
}

// change has the gateway change something.
func (o *adminOptions) change(
	ctx context.Context, path string, body, v any, show func() error,
) error {
	return o.send(ctx, http.MethodPost, path, body, v, show)
}

// send sends a request.
func (o *adminOptions) send(
	ctx context.Context, method, path string, body, v any, show func() error,
) error {
	if o.asJSON {
		text, err := o.answer(ctx, method, path, body)
		if err != nil {
			return err
		}
		return o.printJSON(text)
	}
	if _, err := o.read(ctx, method, path, body, v); err != nil {
		return err
	}
	return show()
}

// read sends a request and reads the answer into what v points to. It returns the answer, too.
func (o *adminOptions) read(ctx context.Context, method, path string, body, v any) ([]byte, error) {
	text, err := o.answer(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	if err := jsonv2.Unmarshal(text, v); err != nil {
		err = fmt.Errorf("%s: the answer cannot be read: %w", path, err)
		return nil, &exitError{code: exitProtocol, err: err}
	}
	return text, nil
}

// answer returns what the gateway answers.
func (o *adminOptions) answer(ctx context.Context, method, path string, body any) ([]byte, error) {
	var text []byte
	if method != http.MethodGet {
		if body == nil {
			body = struct{}{}
		}
		var err error
		if text, err = jsonv2.Append(nil, body); err != nil {
			return nil, err
		}
	}
	got, answer, err := o.ask(ctx, method, apiPath+path, text) //nolint:bodyclose // ask has closed it
	if err == nil && got.StatusCode != http.StatusOK {
		err = adminFailure(got, answer)
	}
	return answer, err
}

// ask sends a request to a path of the gateway, and returns the answer with what is in it: of more
// than maxStatus bytes not all.
func (o *operated) ask(
	ctx context.Context, method, path string, text []byte,
) (*http.Response, []byte, error) {
	ctx, cancel := o.limit(ctx)
	defer cancel()
	u := *o.target.URL
	u.RawPath, u.RawQuery, _ = strings.Cut(path, "?")
	u.Path, _ = url.PathUnescape(u.RawPath)
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(text))
	if err != nil {
		return nil, nil, err
	}
	if r.Header, err = o.headers(); err != nil {
		return nil, nil, err
	}
	if text != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	got, err := o.client.Do(r)
	if err != nil {
		return nil, nil, connectFailure(o.target, err)
	}
	defer got.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(got.Body, maxStatus+1))
	if err != nil {
		return nil, nil, connectFailure(o.target, err)
	}
	return got, answer, nil
}

// adminFailure is the exit for what a gateway has refused.
func adminFailure(got *http.Response, body []byte) error {
	var p struct {
		Detail     string   `json:"detail"`
		Candidates []string `json:"candidates"`
		Permission string   `json:"permission"`
		Findings   []struct {
			File    string `json:"file"`
			Line    int    `json:"line"`
			Column  int    `json:"column"`
			Path    string `json:"path"`
			Message string `json:"message"`
		} `json:"findings"`
	}
	exit := &exitError{code: exitAnswered}
	if !strings.HasPrefix(got.Header.Get("Content-Type"), "application/problem+json") ||
		jsonv2.Unmarshal(body, &p) != nil {
		exit.err, exit.hint = fmt.Errorf("%s: %s", got.Request.URL, got.Status),
			noGatewayHint(got.StatusCode)
		if got.StatusCode == http.StatusUnauthorized {
			exit.hint = "It needs credentials: --bearer FILE has a key of a principal."
		}
		return exit
	}
	lines := []string{tame(p.Detail)}
	for _, f := range p.Findings {
		lines = append(lines,
			fmt.Sprintf("%s:%d:%d: %s: %s", tame(f.File), f.Line, f.Column, tame(f.Path), tame(f.Message)))
	}
	exit.err = errors.New(strings.Join(lines, "\n"))
	if p.Permission != "" {
		exit.hint = "--bearer FILE has a key of a principal that may do this."
	}
	return exit
}

// upstreamState is what the API says of an upstream, as far as it is shown.
type upstreamState struct {
	Name      string  `json:"name"`
	State     string  `json:"state"`
	Reason    string  `json:"reason"`
	Target    string  `json:"target"`
	Server    string  `json:"server"`
	Revision  string  `json:"revision"`
	Processes int     `json:"processes"`
	InFlight  int     `json:"inFlight"`
	Calls     int64   `json:"calls"`
	Errors    int64   `json:"errors"`
	P50       float64 `json:"p50Ms"`
	P99       float64 `json:"p99Ms"`
	Tools     int     `json:"tools"`
	Blocked   int     `json:"blocked"`
	LastError string  `json:"lastError"`
}

// table prints rows below a head.
func (o *adminOptions) table(head []string, rows [][]string) error {
	return columns(o.stdout, slices.Concat([][]string{head}, rows),
		func(row, _ int, text string) string {
			if row == 0 {
				return o.paint(colourFaint, text)
			}
			return text
		})
}
