//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unprivileged is the user that a sandbox of root runs as: root's processes are not bounded.
const unprivileged = 65534

const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC

// probe finds out what the kernel has. It starts a process that ends at once.
func probe() kernel {
	k := probeHere()
	attr := isolated(network{none: true})
	// A directory cannot be executed, which is known only in the new namespaces.
	_, err := os.StartProcess("/", []string{"/"}, &os.ProcAttr{Sys: attr})
	if !errors.Is(err, unix.EACCES) {
		k.namespaces = cause(err)
	}
	return k
}

// probeHere is what of the kernel this process itself uses.
func probeHere() kernel {
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	_, missing := os.Stat("/proc/thread-self/children")
	return kernel{
		known: true, notify: canSupervise(), children: missing == nil,
		landlock: landlockVersion(), seccomp: err == nil && mode != unix.SECCOMP_MODE_STRICT,
	}
}

// isolated starts a process in its own namespaces. It dies with this one, and all others of its
// namespaces with it. It has the privileges there that it needs to set them up.
func isolated(n network) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL,
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP},
	}
	if n.none {
		attr.Cloneflags |= unix.CLONE_NEWNET
	}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		return attr
	}
	// What is root's stays within reach, as far as Landlock lets it, without root's identity.
	both := []syscall.SysProcIDMap{
		{ContainerID: 0, HostID: 0, Size: 1},
		{ContainerID: unprivileged, HostID: unprivileged, Size: 1},
	}
	attr.UidMappings, attr.GidMappings, attr.GidMappingsEnableSetgroups = both, both, true
	attr.Credential = &syscall.Credential{Uid: unprivileged, Gid: unprivileged}
	attr.AmbientCaps = append(attr.AmbientCaps, unix.CAP_DAC_OVERRIDE)
	return attr
}

// Run runs the command in a sandbox and returns its exit code, 128 and the number of the signal
// that ended it. The standard streams are this process's; what goes to a terminal as standard error
// is escaped, where there are namespaces. SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are
// handed on. inside is the command line of this program that calls [Exec] with the rules; [Inside]
// and the command follow it. Where the kernel lacks a part, the error is a [*MissingError], or warn
// is called. Without namespaces it does not return: this process becomes the command.
func Run(
	inside []string, r *Rules, command, env []string, warn func(string),
) (code int, err error) {
	return run(probe(), inside, r, command, env, warn)
}

func run(
	k kernel, inside []string, r *Rules, command, env []string, warn func(string),
) (code int, err error) {
	if len(command) == 0 {
		return 0, errNoCommand
	}
	if r.Open {
		return r.runOpen(inside, command, env, warn)
	}
	full, err := r.filled()
	if err != nil {
		return 0, err
	}
	if err := full.exists(); err != nil {
		return 0, err
	}
	if err := r.admit(k, warn); err != nil {
		return 0, err
	}
	if k.namespaces != nil {
		return 0, confine(r, k, command, env)
	}
	n, err := r.network()
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // the child dies with the thread that has started it
	defer runtime.UnlockOSThread()
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1,
		unix.SIGUSR2)
	defer signal.Stop(signals)
	rules := *r
	rules.KeepEnv = true
	line := Command(append(append([]string{}, inside...), Inside), &rules, command)
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: line, Env: env, Stdin: os.Stdin, Stdout: os.Stdout,
		Stderr: stderrOf(os.Stderr), SysProcAttr: isolated(n),
	}
	// A signal to the group of this process comes once: here. A terminal has one group to read from
	// it.
	_, err = unix.IoctlGetTermios(0, unix.TCGETS)
	group := err != nil
	cmd.SysProcAttr.Setpgid = group
	supervised := func() {}
	if !n.none && k.supervises() {
		if supervised, err = supervise(cmd, n); err != nil {
			return 0, err
		}
	} else if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("sandbox: %w", err)
	}
	ended := make(chan struct{})
	watched := make(chan struct{})
	over := false
	go func() {
		defer close(watched)
		over = watch(cmd.Process, full.Memory, group, signals, ended)
	}()
	err = cmd.Wait()
	close(ended)
	<-watched
	supervised()
	if over {
		warn("the processes used more than " + strconv.FormatInt(full.Memory, 10) +
			" bytes of memory together, and were ended")
	}
	exit := (*exec.ExitError)(nil)
	if err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("sandbox: %w", err)
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// supervise starts the command with a supervisor of its connections. end ends the supervisor.
func supervise(cmd *exec.Cmd, n network) (end func(), err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "supervisor"),
		os.NewFile(uintptr(pair[1]), "supervised")
	defer func() { _ = theirs.Close() }()
	stop, stopped, err := os.Pipe()
	if err == nil {
		cmd.ExtraFiles = []*os.File{theirs} // it is supervisorFile there
		err = cmd.Start()
	}
	if err != nil { // and this process ends
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	s := newSupervisor(n)
	s.stop = stop
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.serve(cmd.Process.Pid, ours)
	}()
	return func() {
		s.close()
		_ = stopped.Close()
		<-done
		_ = stop.Close()
	}, nil
}

// interval is how often the memory of all processes is looked at.
const interval = 100 * time.Millisecond

// watch hands signals on, and ends the sandbox when it uses more memory than it may.
func watch(
	p *os.Process, memory int64, forward bool, signals <-chan os.Signal, ended <-chan struct{},
) (over bool) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return over
		case s := <-signals:
			// The first process of a namespace does not have signals that it does not handle.
			if n, ok := s.(syscall.Signal); ok && !handles(p.Pid, n) {
				_ = p.Kill()
			} else if forward {
				_ = p.Signal(s)
			}
		case <-tick.C:
			if !over && usedTogether(p.Pid, memory) > memory {
				over = true
				_ = p.Kill()
			}
		}
	}
}

// handles reports whether a process catches or ignores a signal.
func handles(pid int, s syscall.Signal) bool {
	status := statusOf(pid)
	return slices.ContainsFunc([]string{"SigCgt", "SigIgn"}, func(name string) bool {
		mask, err := strconv.ParseUint(status[name], 16, 64)
		return err == nil && mask&(1<<(uint(s)-1)) != 0
	})
}
