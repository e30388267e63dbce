package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/environ"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/internal/visible"
)

var bareName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// userFile is the path of a file of the user's own; "": there is no place for one.
func userFile(name string) string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "farcall", name)
}

func userNames() string { return userFile("targets.yaml") }

// nameFiles are the files with names, the one that counts first. Those in the current directory are
// not always the user's.
func nameFiles() (files []string) {
	if own := userNames(); own != "" {
		files = append(files, own)
	}
	return append(files, "mcp.json", ".mcp.json")
}

// lookUp finds the server that a word names. nil: the word is not a name.
func lookUp(word string) (*gateway.Upstream, error) {
	if file, name, ok := strings.Cut(word, "#"); ok {
		if path := serversFile(file); path != "" && name != "" {
			return serverIn(file, path, name)
		}
		return nil, nil
	}
	if bareName.MatchString(word) {
		for _, path := range nameFiles() {
			c, err := gateway.Load(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, configFailure(err)
			}
			for _, u := range c.Upstreams {
				if u.Name == word {
					return usable(c, u)
				}
			}
		}
	}
	if path := serversFile(word); path != "" {
		return serverIn(word, path, "")
	}
	return nil, nil
}

// serverIn finds a server of a file; "" is the only one.
func serverIn(file, path, name string) (*gateway.Upstream, error) {
	c, err := gateway.Load(path)
	if err != nil {
		return nil, configFailure(err)
	}
	var names []string
	for _, u := range c.Upstreams {
		if u.Name == name || name == "" && len(c.Upstreams) == 1 {
			return usable(c, u)
		}
		names = append(names, file+"#"+u.Name)
	}
	hint := "Name one: " + tame(strings.Join(names, ", ")) + "."
	switch {
	case len(names) == 0:
		return nil, usagef("Add one, or name a target.", "%s has no server", path)
	case name == "":
		return nil, usagef(hint, "%s has %s", path, countOf(len(names), "server"))
	}
	return nil, usagef(hint, "%s has no server %q", path, name)
}

// usable refuses a server that is more than its address, or command, and its headers or
// environment: without the gateway that its file is for, it would be less safe than the file says.
func usable(c *gateway.Config, u *gateway.Upstream) (*gateway.Upstream, error) {
	one, alone := *u, *c
	one.Profile, one.Framing, one.Era = "", "", ""
	alone.Upstreams, alone.Guard = []*gateway.Upstream{&one}, nil
	if _, err := alone.Servers(); err != nil {
		return nil, configFailure(err)
	}
	return u, nil
}

// locate reads a TARGET other than a command, which may be a name.
func (r *remote) locate(word string) (*target.Target, error) {
	u, err := lookUp(word)
	if err != nil || u == nil {
		if err == nil {
			return readTarget(word)
		}
		return nil, err
	}
	r.entry = u
	if len(u.Command) == 0 {
		if t, err := readTarget(u.URL); err != nil || u.Framing == "" {
			return t, err
		}
		return readTarget(u.URL + "?framing=" + u.Framing)
	}
	t := target.Child(u.Command)
	if framing, ok := target.ParseFraming(u.Framing); ok {
		t.Framing = framing
	}
	return t, nil
}

// fromHere reports whether a target is in a file that is not the user's own: completion starts
// and reaches nothing that such a file names.
func fromHere(word string) bool {
	file, _, _ := strings.Cut(word, "#")
	if path := serversFile(file); path != "" {
		return path == file
	}
	if u, err := lookUp(word); u == nil && err == nil {
		return false
	}
	c, err := gateway.Load(userNames()) // "" is no file
	return err != nil || !slices.ContainsFunc(c.Upstreams, func(u *gateway.Upstream) bool {
		return u.Name == word
	})
}

// dress gives a child the environment and the directory that its file says, and the command's
// standard error.
func (r *remote) dress(cmd *exec.Cmd) {
	cmd.Stderr = visible.NewWriter(r.stderr)
	if u := r.entry; u != nil {
		cmd.Env, cmd.Dir = environ.Child(os.Environ(), u.InheritEnv, u.Env), u.Cwd
	}
}

// completeNames offers the names of targets to the shell.
func completeNames() (names []string, _ cobra.ShellCompDirective) {
	for _, path := range nameFiles() {
		if c, err := gateway.Load(path); err == nil {
			for _, u := range c.Upstreams {
				if !slices.Contains(names, u.Name) {
					names = append(names, fmt.Sprintf("%s\t%s", u.Name, tame(u.Target())))
				}
			}
		}
	}
	return names, cobra.ShellCompDirectiveDefault
}
