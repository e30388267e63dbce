//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Protect makes the memory, the environment and the descriptors of this process unreadable for all
// that have no CAP_SYS_PTRACE, also for processes of the same user: they can neither attach a
// debugger nor read /proc/PID/mem and /proc/PID/environ. The kernel writes no core dumps of it.
// Programs that this process executes are not affected.
func Protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: PR_SET_DUMPABLE: %w", err)
	}
	return nil
}

// reading are the capabilities with which a process reads other processes, files whatever their
// modes say, or the kernel, or leaves its mounts.
func reading() []int {
	return []int{
		unix.CAP_SYS_PTRACE, unix.CAP_SYS_ADMIN, unix.CAP_DAC_READ_SEARCH, unix.CAP_SYS_RAWIO,
		unix.CAP_SYS_MODULE,
		unix.CAP_SYS_CHROOT, unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE,
	}
}

// runOpen runs a command that may do what its user may, but for what [Rules.Open] takes away. Root
// covers the files in its own mounts, and this process becomes the command. Others need a user
// namespace for that, which a process that runs Go cannot enter: it starts another one and waits.
func (r *Rules) runOpen(inside, command, env []string, warn func(string)) (code int, err error) {
	p, err := program(command[0], variable(env, "PATH"))
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // namespaces and capabilities are of this thread, which becomes the command
	hidden := len(r.hidden("/").points) > 0
	if hidden && unix.Unshare(unix.CLONE_NEWNS) != nil {
		cmd := &exec.Cmd{
			Path: "/proc/self/exe", Args: Command(append(append([]string{}, inside...), Inside), r, command),
			Env:   env,
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, SysProcAttr: ownMountsOnly(),
		}
		if err = cmd.Start(); err == nil {
			return follow(cmd)
		}
		warn("files of farcall can be read by " + p.file + ": no mount namespaces: " + err.Error())
		hidden = false
	}
	return 0, r.become(p, command, env, hidden)
}

// ownMountsOnly starts a process with the same user and its own mounts.
func ownMountsOnly() *syscall.SysProcAttr {
	uid, gid := os.Geteuid(), os.Getegid()
	return &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
	}
}

// follow waits for a command that is in the same process group, and so gets the signals that this
// process gets, and ends as it does.
func follow(cmd *exec.Cmd) (code int, err error) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1,
		unix.SIGUSR2)
	defer signal.Stop(signals)
	exit := (*exec.ExitError)(nil)
	if err = cmd.Wait(); err != nil && !errors.As(err, &exit) {
		return 0, fmt.Errorf("sandbox: %w", err)
	}
	status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() {
		return cmd.ProcessState.ExitCode(), nil
	}
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) // the command has written its own
	signal.Reset()
	_ = unix.Kill(os.Getpid(), status.Signal())
	<-time.After(time.Second) // another thread may get it, and a moment later
	return 128 + int(status.Signal()), nil
}

// execOpen is the inner half of runOpen.
func (r *Rules) execOpen(command, env []string) error {
	p, err := program(append(command, "")[0], variable(env, "PATH"))
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := dieWithLauncher(); err != nil {
		return err
	}
	return r.become(p, command, env, true)
}

// become executes the command in this thread's mounts.
func (r *Rules) become(p *found, command, env []string, hidden bool) error {
	if hidden {
		if err := r.cover(unix.MS_SLAVE); err != nil {
			fmt.Fprintln(os.Stderr, "farcall: files of farcall can be read by", p.file+":", err)
		}
	}
	if err := closeOthers(); err != nil {
		return fmt.Errorf("sandbox: close descriptors: %w", err)
	}
	if err := dropReading(); err != nil {
		return err
	}
	if err := unix.Exec(p.file, command, env); err != nil {
		return fmt.Errorf("sandbox: start %s: %w", p.file, err)
	}
	return nil
}

// cover puts something that cannot be opened over each hidden path: a device on a mount without
// devices, or a directory without rights. Mounts of the system still appear here with MS_SLAVE;
// those made here never appear there.
func (r *Rules) cover(propagation uintptr) error {
	here, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("sandbox: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|propagation, ""); err != nil {
		return fmt.Errorf("sandbox: its own mounts: %w", err)
	}
	for _, path := range r.hidden(here).points {
		if err := coverOne(path); err != nil {
			return fmt.Errorf("sandbox: cover %s: %w", path, err)
		}
	}
	if err := os.Chdir(here); err != nil { // it may be covered by a mount
		return fmt.Errorf("sandbox: %w", err)
	}
	return nil
}

func coverOne(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err //nolint:wrapcheck // it has the path
	}
	if info.IsDir() {
		const flags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
		return unix.Mount("tmpfs", path, "tmpfs", flags, "mode=000,size=4k")
	}
	if err := unix.Mount("/dev/null", path, "", unix.MS_BIND, ""); err != nil {
		return err //nolint:wrapcheck // the caller says what it is about
	}
	attr := &unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC |
			unix.MOUNT_ATTR_NOSUID,
	}
	return unix.MountSetattr(unix.AT_FDCWD, path, 0, attr)
}

// dropReading takes the capabilities of reading from this thread and all that it executes.
func dropReading() error {
	for _, c := range reading() {
		if unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0) == nil || os.Geteuid() != 0 {
			// without privileges there are none to get by executing, but from a program that has some
			continue
		}
		// Root would have it again in what it executes.
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err == nil &&
			has == 1 {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return fmt.Errorf("sandbox: no new privileges: %w", err)
			}
		}
	}
	// an old kernel has none
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("sandbox: capabilities: %w", err)
	}
	for _, c := range reading() {
		mask := ^(uint32(1) << (c % 32))
		d := &have[c/32]
		d.Effective, d.Permitted, d.Inheritable = d.Effective&mask, d.Permitted&mask, d.Inheritable&mask
	}
	if err := unix.Capset(&header, &have[0]); err != nil {
		return fmt.Errorf("sandbox: drop capabilities: %w", err)
	}
	return nil
}

// probeOpen finds out whether files can be covered here.
func probeOpen() (k kernel) {
	k.known = true
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		ended <- unix.Unshare(unix.CLONE_NEWNS)
	}()
	if <-ended == nil {
		return k
	}
	// A directory cannot be executed, which is known only in the new namespaces.
	if _, err := os.StartProcess("/", []string{"/"},
		&os.ProcAttr{Sys: ownMountsOnly()}); !errors.Is(err, unix.EACCES) {
		k.mounts = cause(err)
	}
	return k
}

// cause is the error of the kernel in one of os.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
