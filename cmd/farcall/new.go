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
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Write a small project to begin with: an MCP server or client",
		Long:  "Write a small project to begin with, which works as it is: an MCP server or client, with a test and a README.",
		Example: strings.TrimPrefix(`
  farcall new server calc
  farcall new client reader --module example.com/reader`, "\n"),
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usagef("There are 'farcall new server DIR' and 'farcall new client DIR'.", "there is no new %q", args[0])
		},
	}
	cmd.AddCommand(
		newProjectCmd(e, scaffold.Server, "Write an MCP server with one tool, over HTTP and standard input and output"),
		newProjectCmd(e, scaffold.Client, "Write an MCP client that lists the tools of a server and calls one"),
	)
	return cmd
}

func newProjectCmd(e *env, kind, short string) *cobra.Command {
	var module, replace string
	cmd := &cobra.Command{
		Use:   kind + " DIR",
		Short: short,
		Long: short + ".\nDIR must not be there yet, or be empty; its name is the module's path unless --module has another one.\n" +
			"The project requires farcall in the version of this program, or the latest one when this is no release.",
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
		return usagef("Name it with --module, for example --module example.com/calc.", "%w", err)
	}
	if v := versionName(); releases.MatchString(v) {
		p.Version = v
	}
	if replace != "" {
		if text, err := os.ReadFile(filepath.Join(replace, "go.mod")); err != nil || !bytes.HasPrefix(text, []byte("module "+farcallModule+"\n")) {
			return usagef("Name the directory that has farcall's go.mod.", "--replace %s: there is no farcall", replace)
		}
		if p.Replace, err = filepath.Abs(replace); err != nil {
			return usagef("", "cannot use --replace %q: %w", replace, err)
		}
		if strings.ContainsAny(p.Replace, " \"`\n") {
			return usagef("", "cannot use --replace %q: the path of a module has no spaces and quotes", replace)
		}
		p.Version = "v0.0.0"
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
	if p.Version == "" {
		fmt.Fprintln(e.stderr, "\nThis farcall is no release, so go mod tidy fetches the latest one. --replace DIR takes a checkout instead.")
	}
	return nil
}

// nextSteps are the commands with which to go on.
func nextSteps(p *scaffold.Project) string {
	steps := "  go mod tidy\n  go test ./...\n"
	if p.Kind == scaffold.Client {
		return steps + "  farcall serve &\n  go run .\n"
	}
	return steps + "  go build -o " + p.Name() + " .\n  farcall mcp call add a=2 b=3 -- ./" + p.Name() + "\n"
}
