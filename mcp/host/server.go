package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/glob"
	"github.com/farcall-dev/farcall/internal/target"
	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// A Server says how one MCP server is reached: by exactly one of Command, URL, InProcess and Dial.
type Server struct {
	// Name stands before the names of its tools and prompts. It has 1 to 64 letters, digits, -
	// and _, begins with a letter or digit, does not contain "__" and does not end with "_".
	// No other server has the same name, also when upper and lower case are not distinguished.
	Name string

	// Command is a program and its arguments, which run without a shell and speak MCP over
	// standard input and output.
	Command []string
	// Env is added to the environment of the command, which is otherwise what programs need to
	// run and to reach the network (PATH, HOME, proxies, caches …), without what looks like a
	// secret, and the variables that InheritEnv names; a * there stands for any text.
	Env        map[string]string
	InheritEnv []string
	// Dir is where the command runs. Default: the current directory.
	Dir string

	// URL is an address as [mcp.Dial] takes it.
	URL string
	// Headers are sent with each request to an address of http, https, ws or wss.
	Headers map[string]string
	// SSE says that an address of http or https speaks the transport of 2024-11-05.
	SSE bool
	// Authorizer gives requests to an address of http or https their credentials. Default none.
	// [Host.Apply] takes a server with one with a type that cannot be compared for changed.
	Authorizer mcphttp.Authorizer

	// InProcess is a server of this process.
	InProcess *mcp.Server
	// Dial connects with a server over a transport of the caller's choice, which the host closes.
	// [Host.Apply] cannot compare functions and takes a server with one for changed.
	Dial func(ctx context.Context) (farcall.Transport, error)

	// Disabled servers are not started. Their state is [Stopped].
	Disabled bool
	// Timeout bounds how long a request may be without an answer. Default: that of
	// Options.Client.
	Timeout time.Duration
	// AllowTools and DenyTools choose the tools that are listed and may be called, by the names
	// that the server gives them, in patterns with * and ?. Default: all that are not denied.
	AllowTools, DenyTools []string
}

const (
	separator = "__"
	maxName   = 64
)

var serverName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)

// check returns what is wrong, and at which field.
func (s *Server) check() (field string, err error) {
	ways := 0
	for _, has := range []bool{len(s.Command) > 0, s.URL != "", s.InProcess != nil, s.Dial != nil} {
		if has {
			ways++
		}
	}
	switch {
	case len(s.Name) > maxName || !serverName.MatchString(s.Name):
		return "", fmt.Errorf("invalid name %.80q: use 1 to %d letters, digits, - and _, beginning with a letter or digit", s.Name, maxName)
	case strings.Contains(s.Name, separator) || strings.HasSuffix(s.Name, "_"):
		return "", fmt.Errorf("invalid name %q: it must neither contain %q nor end with _, because %[2]q stands between a server and its tool", s.Name, separator)
	case s.Disabled:
		return "", nil // it may be incomplete
	case ways == 0:
		return "", errors.New("no command and no url is given")
	case ways > 1:
		return "", errors.New("more than one of command, url, InProcess and Dial is given: use a server for each")
	case len(s.Command) > 0 && s.Command[0] == "":
		return "command", errors.New("the program has no name")
	case s.Timeout < 0:
		return "timeout", fmt.Errorf("must not be negative (got %v)", s.Timeout)
	}
	if s.URL != "" {
		if _, err := target.Parse(s.URL); err != nil {
			return "url", err
		}
	}
	return "", nil
}

// same reports whether a connection made for s serves for t, too.
func (s *Server) same(t *Server) bool {
	return s.Name == t.Name && slices.Equal(s.Command, t.Command) && maps.Equal(s.Env, t.Env) && slices.Equal(s.InheritEnv, t.InheritEnv) &&
		s.Dir == t.Dir && s.URL == t.URL && maps.Equal(s.Headers, t.Headers) && s.SSE == t.SSE && sameAuthorizer(s.Authorizer, t.Authorizer) &&
		s.InProcess == t.InProcess && s.Dial == nil && t.Dial == nil && s.Disabled == t.Disabled && s.Timeout == t.Timeout &&
		slices.Equal(s.AllowTools, t.AllowTools) && slices.Equal(s.DenyTools, t.DenyTools)
}

// sameAuthorizer compares two authorizers. Those with a type that cannot be compared differ.
func sameAuthorizer(a, b mcphttp.Authorizer) bool {
	return reflect.ValueOf(&a).Elem().Comparable() && reflect.ValueOf(&b).Elem().Comparable() && a == b
}

// clone returns a copy that shares no mutable state.
func (s *Server) clone() *Server {
	c := *s
	c.Command, c.InheritEnv = slices.Clone(s.Command), slices.Clone(s.InheritEnv)
	c.AllowTools, c.DenyTools = slices.Clone(s.AllowTools), slices.Clone(s.DenyTools)
	c.Env, c.Headers = maps.Clone(s.Env), maps.Clone(s.Headers)
	return &c
}

// offers reports whether a tool is listed and may be called.
func (s *Server) offers(tool string) bool {
	matches := func(pattern string) bool { return glob.Match(pattern, tool) }
	return (len(s.AllowTools) == 0 || slices.ContainsFunc(s.AllowTools, matches)) && !slices.ContainsFunc(s.DenyTools, matches)
}
