package main

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/internal/sandbox"
)

// private are files of this process that its children shall not read, beyond those of the
// configuration: the key of the certificate, and where farcall login keeps tokens.
func (f *serveFlags) private() []string {
	files := []string{f.tlsKey, f.guard, defaultStore()}
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

// ownFiles are those that children of a configuration shall not read.
func ownFiles(c *gateway.Config) []string {
	files := c.Private()
	if store := defaultStore(); store != "" {
		files = append(files, store)
	}
	return files
}

// defaultStore is the file with the tokens of farcall login, "" when they are not in a file.
func defaultStore() string {
	s, err := (&env{getenv: os.Getenv}).openStore("")
	if err != nil || s.name == keyringStore {
		return ""
	}
	return s.name
}

// ownAddresses are those with ports where this process is reached, once it listens.
func (f *serveFlags) ownAddresses() (out []string) {
	listening := f.listening.Load()
	if listening == nil {
		return nil
	}
	for _, l := range *listening {
		at, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			continue // no command in a sandbox reaches a unix socket
		}
		hosts := []string{at.Addr().String()}
		if at.Addr().IsUnspecified() {
			hosts = everyAddress()
		}
		for _, h := range hosts {
			out = append(out, net.JoinHostPort(h, strconv.Itoa(int(at.Port()))))
		}
	}
	return out
}

// everyAddress has those of this machine.
func everyAddress() []string {
	out := []string{"127.0.0.1", "::1"}
	all, _ := net.InterfaceAddrs() // none: the loopback addresses remain
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().String())
		}
	}
	return out
}

// protect keeps what the children of a gateway could read of this process from them, and says in
// one line what it cannot.
func protect(c *gateway.Config, hide []string, stderr io.Writer) {
	private := slices.Concat(c.Private(), hide)
	makeDirectories(c, private)
	var open []string
	for _, u := range c.Upstreams {
		if unconfined(u) {
			open = append(open, u.Name)
		}
	}
	parts := sandbox.Missing(&sandbox.Rules{Open: true, Hide: private})
	if err := sandbox.Protect(); err != nil && len(parts) == 0 {
		parts = append(parts, err.Error())
	}
	if len(open) > 0 && len(parts) > 0 {
		fmt.Fprintf(stderr,
			"farcall: %s: not confined, and this system does not protect farcall from them: %s\n",
			strings.Join(open, ", "), tame(strings.Join(parts, "; ")))
	}
}

// makeDirectories makes those in which private files will be once a command runs: what is not there
// cannot be covered.
func makeDirectories(c *gateway.Config, private []string) {
	if !slices.ContainsFunc(c.Upstreams, func(u *gateway.Upstream) bool {
		return len(u.Command) > 0 && !u.Disabled
	}) {
		return
	}
	for _, file := range private {
		_ = os.MkdirAll(filepath.Dir(file), 0o700) // otherwise the file cannot be made there either
	}
}

// warnLoose says which private files are not hidden for good.
func (f *serveFlags) warnLoose(c *gateway.Config, stderr io.Writer) {
	private := slices.Concat(c.Private(), f.private())
	for _, u := range c.Upstreams {
		if files := u.Loose(private); len(files) > 0 {
			fmt.Fprintf(stderr, "farcall: %s: %s\n", u.Name, tame(looseText(files)))
		}
	}
}

func looseText(files []string) string {
	return "what replaces " + strings.Join(files, ", ") +
		" while the command runs can be read by it: keep private files in a directory with nothing " +
		"else in it, in which no command works"
}

// unconfined reports whether an upstream is a command without a sandbox.
func unconfined(u *gateway.Upstream) bool {
	return len(u.Command) > 0 && !u.Disabled && (u.Sandbox == nil || u.Sandbox.Mode == "none")
}

// reaches says what a command without a sandbox can reach, and what it cannot.
func reaches(u *gateway.Upstream, private []string) (texts []string) {
	if !unconfined(u) {
		return nil
	}
	user := fmt.Sprintf("all files and processes of user %d", os.Geteuid())
	if os.Geteuid() == 0 {
		user = "all files, devices and processes of root: run farcall as its own user, or give " +
			"it a sandbox"
	}
	texts = append(texts, "not confined: it reaches "+user)
	if u.Sandbox != nil {
		return append(texts, "also the files of farcall: "+strings.Join(private, ", "))
	}
	if parts := sandbox.Missing(&sandbox.Rules{Open: true, Hide: private}); len(parts) > 0 {
		return append(texts, parts...)
	}
	return append(texts, "but not farcall's memory and environment, nor "+strings.Join(private, ", "))
}
