package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/cmd/farcall/internal/prompt"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp"
)

// kept is the connection of a shell: mcp, or rpc for other JSON-RPC.
type kept struct {
	target *target.Target
	screen *console
	mcp    *mcpSession
	rpc    *session
}

// shell reads commands and runs them over one connection.
type shell struct {
	*mcpRemote
	protocol string
	prompt   *prompt.Prompt // nil: the commands come from a pipe or a file
	doc      *openRPC       // of a server of JSON-RPC; nil: not known
	name     string
	turn     chan struct{} // held by what a server of JSON-RPC asks: one thing at a time
}

func newShellCmd(e *env) *cobra.Command {
	s := &shell{mcpRemote: newMCPRemote(e)}
	cmd := &cobra.Command{
		Use:   "shell TARGET",
		Short: "Call a server over a kept connection, with completion",
		RunE:  func(cmd *cobra.Command, args []string) error { return s.run(cmd, args) },
		ValidArgsFunction: func(
			_ *cobra.Command, args []string, _ string,
		) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeNames()
		},
	}
	s.flags(cmd)
	s.askFlags(cmd)
	cmd.Flags().StringVar(&s.protocol, "protocol", "auto",
		"speak `mcp`, jsonrpc, or auto (MCP, and JSON-RPC if that fails)")
	return cmd
}

func (s *shell) run(cmd *cobra.Command, args []string) error {
	if !slices.Contains([]string{"auto", "mcp", "jsonrpc"}, s.protocol) {
		return usagef("Use --protocol auto, mcp or jsonrpc.", "there is no protocol %q", s.protocol)
	}
	_, rest, err := s.split(cmd, args)
	if err == nil {
		err = none(cmd, rest)
	}
	if err != nil {
		return err
	}
	if s.entry != nil && s.entry.Profile == profileRaw {
		s.protocol = "jsonrpc"
	}
	in := cmd.InOrStdin()
	own := *s.env
	own.stdin = strings.NewReader("")
	s.env = &own
	if s.screen.tty && isPerson(in) {
		s.attach(in, userFile("shell_history"))
		defer s.prompt.Close()
	}
	return s.begin(cmd, args, in)
}

// attach has a user type the commands, and the answers to what the server asks.
func (s *shell) attach(in io.Reader, file string) {
	s.turn = make(chan struct{}, 1)
	s.prompt = prompt.New(in, s.stderr, file, s.complete)
	s.lines, s.stderr, s.screen.w = s, s.prompt, s.prompt
}

// begin connects, and runs commands until the end.
func (s *shell) begin(cmd *cobra.Command, args []string, in io.Reader) error {
	k := &kept{screen: s.screen}
	if err := s.connectAll(cmd, args, k); err != nil {
		return err
	}
	s.kept = k
	defer s.disconnect()
	if s.prompt == nil {
		return s.script(cmd, args, in)
	}
	return s.interact(cmd, args)
}

// connectAll connects in the protocol of the server.
func (s *shell) connectAll(cmd *cobra.Command, args []string, k *kept) error {
	ctx, stop := interruptible(cmd.Context())
	defer stop()
	var err error
	if s.protocol != "jsonrpc" {
		if k.target, _, err = s.target(cmd, args); err != nil {
			return err
		}
		k.mcp, err = s.open(ctx, k.target, func(o *mcp.ClientOptions) {
			o.Tasks = true
			o.OnListChanged = func(kind string) {
				s.screen.printf("farcall: the list of %s has changed", tame(kind))
			}
			o.OnResourceUpdated = func(uri string) { s.screen.printf("farcall: %s has changed", tame(uri)) }
			if k.target.URL == nil {
				o.Redial = func(ctx context.Context) (farcall.Transport, error) {
					return s.dialTapped(ctx, k.target, &tap{report: func(noise string) {
						s.screen.printf("farcall: not a message: %s", noise)
					}})
				}
			}
		})
		exit := (*exitError)(nil)
		switch {
		case err == nil:
			k.mcp.kept = true
			return nil
		case s.protocol == "mcp" ||
			errors.As(err, &exit) && exit.code != exitAnswered && exit.code != exitProtocol:
			return err
		}
		s.screen.printf("farcall: it does not speak MCP (%s), so JSON-RPC is spoken", plainWords(err))
	}
	if k.target, _, err = s.split(cmd, args); err != nil {
		return err
	}
	limited, cancel := s.limit(ctx)
	defer cancel()
	k.rpc, err = s.connect(limited, k.target,
		&callbacks{notify: printNotification(s.stderr), ask: s.ask})
	if err != nil {
		return err
	}
	k.rpc.kept = true
	if s.doc, err = discover(limited, k.rpc); errors.Is(err, jsonrpc.MethodNotFound) {
		err = nil // it can be called all the same
	}
	if err != nil {
		return callFailure(ctx, "rpc.discover", k.target, k.rpc, err)
	}
	return nil
}

func (s *shell) disconnect() {
	if k := s.kept; k.mcp != nil {
		_ = k.mcp.Close() // nothing is to be done about it
	} else {
		k.rpc.kept = false
		k.rpc.end(context.Background()) //nolint:forbidigo // the shell ends
	}
}

// ask asks the user what a server of JSON-RPC calls.
func (s *shell) ask(ctx context.Context, method string, params jsonrpc.Raw) (any, error) {
	refusal := &jsonrpc.Error{Code: jsonrpc.MethodNotFound, Message: "Method not found"}
	if s.prompt == nil {
		return nil, refusal
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.screen.printf("The server calls %s %s", tame(method), appendTame(nil, compact(params)))
	s.screen.write("result (JSON or text; nothing refuses)> ")
	text, ok, err := s.line(ctx)
	if err == nil && (!ok || text == "") {
		err = refusal
	}
	return appendWord(nil, text), err
}

// line implements lineReader, for what the server asks.
func (s *shell) line(ctx context.Context) (string, bool, error) {
	text, ok, err := s.prompt.Ask(ctx)
	if errors.Is(err, prompt.ErrBusy) {
		s.screen.printf("It is refused: a command is being typed.")
		err = jsonrpc.Errorf(-1, "%v", err)
	}
	return text, ok, err
}

// script runs commands that were not typed. The first that fails ends it.
func (s *shell) script(cmd *cobra.Command, args []string, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		end, err := s.obey(cmd, args, lines.Text())
		if end || err != nil {
			return err
		}
	}
	return lines.Err()
}

// interact runs commands that the user types.
func (s *shell) interact(cmd *cobra.Command, args []string) error {
	s.greet(cmd.Context())
	for {
		line, ok, err := s.prompt.Line(cmd.Context(), s.name+"> ")
		if err != nil || !ok {
			fmt.Fprintln(s.stderr)
			return nil //nolint:nilerr // the user has ended it
		}
		end, err := s.obey(cmd, args, line)
		if end {
			return nil
		}
		s.report(err)
	}
}

// greet says what the shell is connected with.
func (s *shell) greet(ctx context.Context) {
	if s.kept.mcp == nil {
		s.name = "jsonrpc"
		methods := "it does not describe its methods"
		if s.doc != nil {
			methods = countOf(len(s.doc.Methods), "method")
		}
		s.screen.printf(`JSON-RPC with %s: %s. \? for help, Tab completes.`, s.kept.target, methods)
	} else {
		i := s.kept.mcp.Server()
		s.name = shorten(strings.ReplaceAll(tame(i.Name), "\n", " "), 30)
		s.screen.printf(`%s %s, MCP %s: %s. \? for help, Tab completes.`,
			s.name, tame(i.Version), i.Revision, countOf(len(toolNames(ctx, s.kept.mcp)), "tool"))
	}
	if s.entry != nil {
		s.name = s.entry.Name
	}
}

// obey runs one line, and reports whether it was the last.
func (s *shell) obey(cmd *cobra.Command, args []string, line string) (end bool, err error) {
	words, piped, err := splitLine(line)
	if err != nil || len(words) == 0 || strings.HasPrefix(words[0], "#") {
		return false, err
	}
	switch ctx := cmd.Context(); words[0] {
	case `\q`, "quit", "exit":
		return true, nil
	case `\?`, "help":
		return false, s.help()
	case `\reconnect`:
		k := &kept{target: s.kept.target, screen: s.kept.screen}
		s.disconnect()
		was := s.kept
		s.kept = nil
		if err := s.connectAll(cmd, args, k); err != nil {
			s.kept = was
			return false, err
		}
		s.kept = k
		return false, nil
	case `\watch`:
		return false, s.watch(ctx, words[1:], piped)
	default:
		return false, s.once(ctx, words, piped)
	}
}

// once runs a command.
func (s *shell) once(ctx context.Context, words []string, piped string) error {
	if piped == "" {
		return s.execute(ctx, words, s.stdout, s.isTTY, false)
	}
	program := strings.Fields(piped)[0]
	var out bytes.Buffer
	if err := s.execute(ctx, words, &out, false,
		program == "jq" || program == "jaq" || program == "gojq"); err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	c := exec.CommandContext(ctx, "sh", "-c", piped)
	if runtime.GOOS == "windows" {
		c = exec.CommandContext(ctx, "cmd", "/c", piped)
	}
	c.Stdin, c.Stdout, c.Stderr = &out, s.stdout, s.stderr
	if err := c.Run(); err != nil {
		return &exitError{code: exitFailure, err: fmt.Errorf("%s: %w", program, err)}
	}
	return nil
}

// commands are those of a line, fresh: flags keep their values.
func (s *shell) commands(stdout io.Writer, tty bool) *cobra.Command {
	e := *s.env
	e.stdout, e.isTTY = stdout, tty
	root := &cobra.Command{Use: "farcall", SilenceErrors: true, SilenceUsage: true}
	root.SetOut(stdout)
	root.SetErr(e.stderr)
	root.CompletionOptions.DisableDefaultCmd = true
	if s.kept.mcp == nil {
		root.AddCommand(newCallCmd(&e), newNotifyCmd(&e), newStreamCmd(&e), newDiscoverCmd(&e))
	} else {
		root.AddCommand(
			newMCPCallCmd(&e), newMCPToolsCmd(&e), newMCPReadCmd(&e), newMCPResourcesCmd(&e),
			newMCPTemplatesCmd(&e),
			newMCPPromptCmd(&e), newMCPPromptsCmd(&e), newMCPCompleteCmd(&e), newMCPTasksCmd(&e),
			newMCPDiscoverCmd(&e), newMCPLintCmd(&e))
	}
	for _, c := range root.Commands() {
		c.Use, c.Long, c.Example = strings.Replace(c.Use, " TARGET", "", 1), c.Short+".", ""
	}
	return root
}

func (s *shell) execute(
	ctx context.Context, words []string, stdout io.Writer, tty, asJSON bool,
) error {
	root := s.commands(stdout, tty)
	found, _, err := root.Find(words)
	if err != nil || found == root { // the name of a tool or a method
		words = append([]string{"call"}, words...)
		found, _, _ = root.Find(words)
	}
	if asJSON && found.Flags().Lookup("json") != nil {
		words = append(words, "--json")
	}
	root.SetArgs(words)
	return root.ExecuteContext(ctx)
}

func (s *shell) help() error {
	rows := [][]string{}
	for _, c := range s.commands(s.stdout, s.isTTY).Commands() {
		if c.Name() != "help" {
			rows = append(rows, []string{c.Use, c.Short})
		}
	}
	rows = append(rows, []string{"NAME [ARGUMENTS]", "The same as call NAME"},
		[]string{"COMMAND | PROGRAM", "Give what is printed to a program; to jq as JSON"},
		[]string{`\watch SECONDS[xTIMES] COMMAND`, "Run a command again and again"},
		[]string{`\reconnect`, "Make the connection again"}, []string{`\q`, "End"})
	return columns(s.stdout, rows, nil)
}

// watch runs a command every so many seconds, until Ctrl-C or an error.
func (s *shell) watch(ctx context.Context, words []string, piped string) error {
	const example = `For example: \watch 2 tools, or \watch 0.5x10 tools`
	if len(words) < 2 {
		return usagef(example, `\watch takes seconds and a command`)
	}
	text, count, limited := strings.Cut(words[0], "x")
	times, err := 0, error(nil)
	if limited {
		times, err = strconv.Atoi(count)
	}
	seconds, bad := strconv.ParseFloat(text, 64)
	if err != nil || bad != nil || !(seconds >= 0.001 && seconds < 1e6) || limited && times < 1 {
		return usagef(example, `\watch: %q is not a number of seconds`, words[0])
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	tick := time.NewTicker(time.Duration(seconds * float64(time.Second)))
	defer tick.Stop()
	for n := 1; ; n++ {
		fmt.Fprintln(s.stdout, s.paint(colourFaint, time.Now().Format(time.TimeOnly)))
		if err := s.once(ctx, words[1:], piped); err != nil && ctx.Err() == nil {
			return err
		}
		if n == times {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
