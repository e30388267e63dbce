package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/cmd/farcall/internal/clients"
	"github.com/farcall-dev/farcall/internal/target"
)

func newClientCmd(e *env) *cobra.Command {
	return newGroup("client", "Tell desktop clients of a server", "There are list and add.",
		newClientListCmd(e), newClientAddCmd(e))
}

func newClientListCmd(e *env) *cobra.Command {
	return noArgs("list", "List the clients that farcall knows, and their files", func() error {
		rows := [][]string{}
		for _, c := range clients.All() {
			path, err := c.File()
			if err != nil {
				return err
			}
			if _, err := os.Stat(path); err != nil {
				path += " (not there)"
			}
			rows = append(rows, []string{c.Name, tame(path), c.Title})
		}
		return columns(e.stdout, rows, nil)
	})
}

// clientFlags are those of client add.
type clientFlags struct {
	name, file      string
	replace, dryRun bool
}

func newClientAddCmd(e *env) *cobra.Command {
	var f clientFlags
	cmd := command("add CLIENT URL|FILE|-- COMMAND", "Write a server into the file of a client",
		func(cmd *cobra.Command, args []string) error {
			c, entry, err := clientArgs(cmd, args)
			if err != nil {
				return err
			}
			return e.addToClient(c, entry, f)
		})
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.name, "name", "farcall", "`name` of the server there")
	flags.StringVar(&f.file, "file", "", "`file` to write (default that of the client)")
	flags.BoolVar(&f.replace, "replace", false, "replace a server of the same name")
	flags.BoolVar(&f.dryRun, "dry-run", false, "print what the file would be, and write nothing")
	return cmd
}

// clientArgs returns the client, and the entry for what stands behind it.
func clientArgs(cmd *cobra.Command, args []string) (*clients.Client, clients.Entry, error) {
	dash := cmd.ArgsLenAtDash()
	if len(args) < 2 || dash >= 0 && dash != 1 || dash < 0 && len(args) != 2 {
		return nil, nil, usagef("For example: farcall client add cursor http://127.0.0.1:7331/mcp",
			"a CLIENT and a URL, a FILE, or -- and a COMMAND are needed")
	}
	c := clients.Find(args[0])
	if c == nil {
		names := mapped(clients.All(), func(c *clients.Client) string { return c.Name })
		hint := "They are " + strings.Join(names, ", ") + "."
		if near := nearestWord(args[0], names); near != "" {
			hint = "Did you mean " + near + "? " + hint
		}
		return nil, nil, usagef(hint, "there is no client %q", args[0])
	}
	entry, err := entryFor(c, args[1:], dash == 1)
	return c, entry, err
}

// entryFor makes an entry of what stands behind the client: a command, a file or a URL.
func entryFor(c *clients.Client, words []string, command bool) (clients.Entry, error) {
	var err error
	switch text := words[0]; {
	case command:
	case isConfigFile(text):
		if text, err = filepath.Abs(text); err != nil {
			return nil, err
		}
		if _, err = loadConfig(text, ""); err != nil {
			return nil, err
		}
		words, err = farcallWords("serve", "--stdio", "--config", text)
	default:
		if t, err := target.Parse(text); err != nil || t.Kind != target.HTTP {
			return nil, usagef("Write http://host:port/mcp or https://host/mcp, the FILE of a gateway "+
				"(.yaml or .json), or -- and a COMMAND.", "%s is neither the URL of a server nor a file", text)
		}
		if c.TakesURL() {
			return c.URLEntry(text), nil
		}
		words, err = farcallWords("bridge", "stdio", text)
	}
	if err != nil {
		return nil, err
	}
	return c.CommandEntry(words), nil
}

// farcallWords is a command of this program, by its whole path: clients start commands with their
// own PATH.
func farcallWords(args ...string) ([]string, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("where farcall is: %w", err)
	}
	return slices.Concat([]string{program}, args), nil
}

// addToClient writes an entry into the file of a client.
func (e *env) addToClient(c *clients.Client, entry clients.Entry, f clientFlags) error {
	path := f.file
	if path == "" {
		var err error
		if path, err = c.File(); err != nil {
			return err
		}
	}
	old, err := clients.Read(path)
	if err != nil {
		return fmt.Errorf("cannot read the file of %s: %w", c.Title, err)
	}
	text, err := c.Text(path, old, f.name, entry, f.replace)
	switch {
	case errors.Is(err, clients.ErrExists):
		return &exitError{
			code: exitFailure, err: fmt.Errorf("%s has a server %q already", path, f.name),
			hint: "Choose another --name, or replace it with --replace.",
		}
	case err != nil:
		return &exitError{
			code: exitFailure, err: fmt.Errorf("%s: %w", path, err),
			hint: "The file is as it was.",
		}
	case f.dryRun:
		_, err := e.stdout.Write(text)
		return err
	}
	backup, err := clients.Write(path, old, text, time.Now())
	if err != nil {
		return fmt.Errorf("cannot write the file of %s: %w", c.Title, err)
	}
	fmt.Fprintf(e.stdout, "%s has the server %q now\n", tame(path), f.name)
	if backup != "" {
		fmt.Fprintf(e.stdout, "the file as it was is %s\n", tame(backup))
	}
	fmt.Fprintf(e.stderr, "farcall: start %s again to have it\n", c.Title)
	return nil
}
