package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/scaffold"
)

func newNewCmd(e *env) *cobra.Command {
	cmd := command("new",
		"Write a small project to begin with: a server, client, service or gateway",
		func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usagef("There are server, client, service and gateway: 'farcall new server DIR'.",
				"there is no new %q", args[0])
		})
	cmd.Args = cobra.ArbitraryArgs
	cmd.AddCommand(
		newProjectCmd(e, scaffold.Server,
			"Write an MCP server with one tool, over HTTP and standard input and output"),
		newProjectCmd(e, scaffold.Client,
			"Write an MCP client that lists the tools of a server and calls one"),
		newProjectCmd(e, scaffold.Service,
			"Write a JSON-RPC service with a method and a stream, over HTTP, WebSocket and TCP"),
		newGatewayProjectCmd(e),
	)
	return cmd
}

func newProjectCmd(e *env, kind, short string) *cobra.Command {
	var module, replace string
	cmd := &cobra.Command{
		Use:   kind + " DIR",
		Short: short,
		Long: short +
			".\nDIR must not be there yet, or be empty; its name is the module's path unless --module has " +
			"another one.\n" +
			"The project requires farcall in the version of this program, or the latest one when this is " +
			"no release.",
		Example: "  farcall new " + kind + " calc\n" +
			"  farcall new " + kind + " calc --module example.com/calc",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("For example: "+cmd.CommandPath()+" calc", "it takes one DIR, not %d", len(args))
			}
			return e.newProject(kind, args[0], module, replace)
		},
	}
	f := cmd.Flags()
	f.StringVar(&module, "module", "", "the `path` of the module; default: the name of DIR")
	f.StringVar(&replace, "replace", "", "use farcall from a checkout in this `directory`")
	return cmd
}

func newGatewayProjectCmd(e *env) *cobra.Command {
	const short = "Write the configuration of a gateway, with a guard and tests for it"
	return &cobra.Command{
		Use:     scaffold.Gateway + " DIR",
		Short:   short,
		Long:    short + ".\nDIR must not be there yet, or be empty.",
		Example: "  farcall new gateway tools",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usagef("For example: "+cmd.CommandPath()+" tools", "it takes one DIR, not %d", len(args))
			}
			return e.newProject(scaffold.Gateway, args[0], "", "")
		},
	}
}

const farcallModule = "github.com/farcall-dev/farcall"

// releases are the versions that a go.mod can require.
var releases = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func (e *env) newProject(kind, dir, module, replace string) error {
	full, err := filepath.Abs(dir)
	if err != nil {
		return usagef("", "cannot use %q: %w", dir, err)
	}
	p := scaffold.Project{Kind: kind, Module: module}
	if module == "" {
		p.Module = filepath.Base(full)
	}
	if err := scaffold.CheckModule(p.Module); err != nil {
		hint := "Name it with --module, for example --module example.com/calc."
		if kind == scaffold.Gateway {
			hint = "Give DIR another name."
		}
		return usagef(hint, "%w", err)
	}
	if v := versionName(); releases.MatchString(v) {
		p.Version = v
	}
	if replace != "" {
		if text, err := os.ReadFile(filepath.Join(replace, "go.mod")); err != nil ||
			!bytes.HasPrefix(text, []byte("module "+farcallModule+"\n")) {
			return usagef("Name the directory that has farcall's go.mod.",
				"--replace %s: there is no farcall", replace)
		}
		if p.Replace, err = filepath.Abs(replace); err != nil {
			return usagef("", "cannot use --replace %q: %w", replace, err)
		}
		if strings.ContainsAny(p.Replace, " \"`\n") {
			return usagef("", "cannot use --replace %q: the path of a module has no spaces and quotes",
				replace)
		}
		p.Version = "v0.0.0"
	}
	if kind == scaffold.Gateway {
		key := newAPIKey("ci")
		p.Key, p.Hash = key.Key, key.Hash
	}
	names, err := p.Write(full)
	if errors.Is(err, scaffold.ErrNotEmpty) {
		return usagef("Name a directory that is not there yet.", "%s is not empty", dir)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		fmt.Fprintln(e.stdout, filepath.Join(dir, name))
	}
	fmt.Fprint(e.stderr, "\nNext:\n  cd "+dir+"\n"+nextSteps(&p))
	if p.Version == "" && kind != scaffold.Gateway {
		fmt.Fprintln(e.stderr,
			"\nThis farcall is no release, so go mod tidy fetches the latest one. --replace DIR takes a "+
				"checkout instead.")
	}
	return nil
}

// nextSteps are the commands with which to go on.
func nextSteps(p *scaffold.Project) string {
	const test = "  go mod tidy\n  go test ./...\n"
	switch p.Kind {
	case scaffold.Client:
		return test + "  farcall serve &\n  go run .\n"
	case scaffold.Service:
		return test + "  go run . &\n  farcall call 127.0.0.1:8080 sum '{\"numbers\":[1,2,3]}'\n"
	case scaffold.Gateway:
		return "  farcall check farcall.yaml\n  farcall policy test policies.yaml\n" +
			"  farcall serve --config farcall.yaml &\n" +
			"  farcall mcp call 127.0.0.1:7332 play__math_add a=2 b=3 --bearer ci.key\n"
	}
	return test + "  go build -o " + p.Name() + " .\n  farcall mcp call add a=2 b=3 -- ./" +
		p.Name() + "\n"
}
