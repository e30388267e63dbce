// Package sandbox answers one question: what may this process touch?
//
// A command in a sandbox reads, writes and executes the files that its [Rules] name, reaches the
// network as far as they say, and has bounds for memory, processes, open files and time. [Run] is
// the outer half: it starts this program again in its own namespaces (user, process ids, mounts,
// IPC; network where there shall be none), waits, and bounds the memory of all its processes
// together. [Exec] is the inner half: it drops every privilege, puts Landlock and a seccomp filter
// on, and becomes the command.
//
// It is for Linux on amd64 and arm64; anywhere else, and where the kernel lacks a part, [Missing]
// says so.
package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/visible"
)

// The defaults of [Rules].
const (
	defaultMemory    = 1 << 30
	defaultProcesses = 64
	defaultFiles     = 256
)

// Rules say what a command may do. What is not named it may not. The zero value of a field is its
// default.
type Rules struct {
	// BestEffort starts the command though the kernel lacks a part. Default: it does not start.
	BestEffort bool
	// Read, Write and Execute are files and directories with all below; they have to exist. Write and
	// Execute imply Read, and neither of them the other: where they overlap, the nearest path decides
	// what runs. Relative ones are relative to the working directory.
	Read, Write, Execute []string
	// Network is "none" (the default), "all", or what TCP connections may be made to: a port of any
	// public address ("443"), or a destination ("10.0.0.0/8:5432", "db.internal:5432"). Port 53 is
	// also that of the system's name servers. Link-local addresses, and those where clouds hand out
	// credentials, are reached only if a destination names them, also with "all".
	Network []string
	// Never are addresses with ports that are never reached, whatever Network says: where the gateway
	// listens.
	Never []string
	// Memory in bytes is for each process and for all together, 1 GiB by default. Processes counts
	// threads, too: 64 by default. Files are those that a process has open, 256 by default. CPU is the
	// time of the processor that a process may use, in whole seconds; 0 is no bound.
	Memory           int64
	Processes, Files int
	CPU              time.Duration
	// Open confines nothing: the command may do what its user may, except that it has no capability
	// to read other processes, and cannot read what Hide names, where the kernel lets it be covered.
	// With [Protect] it cannot read this process. All other rules are ignored.
	Open bool
	// Hide are files and directories that cannot be read, unless Read, Write or Execute name the path
	// itself. [Rules.Loose] says for which of them that holds only until something replaces them.
	Hide []string
	// KeepEnv hands the environment on as it is. It is for those who have cleaned it.
	KeepEnv bool
}

// Inside is the flag with which [Run] starts the program that calls [Exec].
const Inside = "--inside"

var (
	errNoCommand = errors.New("sandbox: there is no command to run")
	errNetwork   = errors.New(
		`sandbox: the network is "none"; TCP ports of public addresses, "443"; destinations, ` +
			`"db.internal:5432", "10.0.0.0/8:5432", "[fd00::/8]:443" (the port "*" is every one); or ` +
			`"all", which stands beside destinations only`)
	errNegative = errors.New("sandbox: a bound is negative")
)

// A MissingError says that a sandbox is not complete here, and was to be.
type MissingError struct{ Parts []string }

// Error has a line for each part.
func (e *MissingError) Error() string {
	return "sandbox: this system lacks what a strict sandbox needs:\n  " +
		strings.Join(e.Parts, "\n  ") +
		"\nnothing was started; give the system what it lacks, or take the mode best-effort, which " +
		"runs the command without it"
}

// Command is the command line that runs the command in a sandbox: the launcher, the rules as flags,
// and after "--" the command. The environment is handed on as it is.
func Command(launcher []string, r *Rules, command []string) []string {
	out := append([]string{}, launcher...)
	switch {
	case r.Open:
		out = append(out, "--mode=open")
	case r.BestEffort:
		out = append(out, "--mode=best-effort")
	}
	for _, list := range []struct {
		flag   string
		values []string
	}{
		{"--read=", r.Read},
		{"--write=", r.Write},
		{"--execute=", r.Execute},
		{"--network=", r.Network},
		{"--never=", r.Never},
		{"--hide=", r.Hide},
	} {
		for _, v := range list.values {
			out = append(out, list.flag+v)
		}
	}
	number := func(flag string, n int64) {
		if n != 0 {
			out = append(out, flag+strconv.FormatInt(n, 10))
		}
	}
	number("--memory=", r.Memory)
	number("--processes=", int64(r.Processes))
	number("--files=", int64(r.Files))
	if r.CPU != 0 {
		out = append(out, "--cpu="+r.CPU.String())
	}
	out = append(out, "--keep-env", "--")
	return append(out, command...)
}

func (r *Rules) network() (n network, err error) {
	for _, text := range r.Network {
		switch text {
		case "none":
			n.none = true
		case "all":
			n.all = true
		default:
			if err := n.parseNetwork(text); err != nil {
				return n, err
			}
		}
	}
	if n.none && len(r.Network) > 1 || n.all && len(n.ports) > 0 {
		return n, errNetwork
	}
	n.none = n.none || len(r.Network) == 0
	for _, text := range r.Never {
		own, err := netip.ParseAddrPort(text)
		if err != nil {
			return n, fmt.Errorf("sandbox: never: %w", err)
		}
		n.never = append(n.never, own)
	}
	return n, nil
}

// CheckNetwork reports what is wrong with entries of [Rules.Network].
func CheckNetwork(entries ...string) error {
	_, err := (&Rules{Network: entries}).network()
	return err
}

// filled has the defaults written out.
func (r *Rules) filled() (*Rules, error) {
	out := *r
	if _, err := r.network(); err != nil {
		return nil, err
	}
	if r.Memory < 0 || r.Processes < 0 || r.Files < 0 || r.CPU < 0 {
		return nil, errNegative
	}
	out.Memory = cmp.Or(out.Memory, defaultMemory)
	out.Processes = cmp.Or(out.Processes, defaultProcesses)
	out.Files = cmp.Or(out.Files, defaultFiles)
	return &out, nil
}

// kernel is what there is to build a sandbox with.
type kernel struct {
	known      bool // Linux on a processor that the filter is for
	landlock   int  // the version of its interface; 0: there is none
	seccomp    bool
	namespaces error // why there are none
	notify     error // why connections cannot be supervised
	children   bool  // /proc says what a process has started
	mounts     error // why files cannot be covered
}

// supervises reports whether a process outside can make the connections of the command.
func (k kernel) supervises() bool { return k.seccomp && k.notify == nil && k.namespaces == nil }

// The versions of Landlock's interface from which a promise can be kept.
const (
	landlockFiles = 3 // truncation, Linux 6.2
	landlockPorts = 4 // TCP, Linux 6.7
	landlockScope = 6 // abstract sockets and signals, Linux 6.12
)

// lacks says which promises of the rules cannot be kept.
func (r *Rules) lacks(k kernel) (parts []string) {
	if !k.known {
		return []string{"everything: sandboxes are for Linux on amd64 and arm64"}
	}
	n, err := r.network()
	if err != nil {
		return []string{err.Error()}
	}
	switch {
	case k.landlock == 0:
		parts = append(parts,
			"files: the kernel has no Landlock (Linux 5.13, and enabled with lsm=landlock): every file "+
				"can be read and written that the user may")
	case k.landlock < landlockFiles:
		parts = append(parts,
			"files: the Landlock of this kernel does not stop truncation (Linux 6.2 does): files outside "+
				"can be emptied")
	}
	if !n.none && k.seccomp && !k.supervises() {
		why := "no namespaces"
		if k.notify != nil {
			why = k.notify.Error()
		}
		text := "network: connections cannot be supervised (" + why +
			"; Linux 5.6 has what it needs): destinations are not told apart: "
		if n.all || k.landlock < landlockPorts {
			text += "every address and port can be reached, also the gateway and link-local addresses"
		} else {
			text += "the ports can be reached at every address, also the gateway's and at link-local ones"
		}
		parts = append(parts, text)
	}
	if !k.seccomp {
		parts = append(parts,
			"network and kernel: the kernel has no seccomp filters (CONFIG_SECCOMP_FILTER): sockets and "+
				"dangerous system calls are open")
	}
	if k.namespaces != nil {
		parts = append(parts, "processes: no user and process namespaces ("+k.namespaces.Error()+
			"; a container's seccomp profile, AppArmor with kernel.apparmor_restrict_unprivileged_userns, "+
			"or user.max_user_namespaces=0 refuses them): the bound of processes is not exact, and root "+
			"has none; a process that hides may outlive the command; memory is bounded for each process "+
			"alone; modes and times of files outside can be changed; the loader runs what can be read")
	}
	if k.namespaces == nil && !k.children {
		parts = append(parts,
			"memory: the kernel does not say what a process has started (CONFIG_PROC_CHILDREN): it is "+
				"bounded for each process alone")
	}
	return parts
}

// Missing says what the kernel lacks for the rules, a line for each part: nothing when it lacks
// nothing.
func Missing(r *Rules) []string {
	if r.Open {
		return r.exposes(probeOpen())
	}
	return r.lacks(probe())
}

// admit is the decision about a kernel that lacks something: with BestEffort, warn is called.
func (r *Rules) admit(k kernel, warn func(string)) error {
	parts := r.lacks(k)
	if len(parts) > 0 && !r.BestEffort {
		return &MissingError{Parts: parts}
	}
	for _, p := range parts {
		warn("the sandbox is not complete: " + p)
	}
	return nil
}

// stderrOf returns where the command's standard error goes. On its way to a terminal it is
// escaped; a file or a pipe gets the bytes as they are.
func stderrOf(f *os.File) io.Writer {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return f
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return f
	}
	return visible.NewWriter(f)
}
