//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"
)

// ownTmp is where a sandbox has its own files in memory; they go with it. Programs
// find POSIX shared memory there, too.
const ownTmp = "/dev/shm"

var errOutside = errors.New("sandbox: " + Inside + " is for the process that a sandbox has started")

// Exec confines this process and becomes the command, with the environment that is given. It
// returns only when it fails; the process is of no other use then. It is what [Run] starts.
func Exec(r *Rules, command, env []string) error {
	if r.Open {
		return r.execOpen(command, env)
	}
	if os.Getpid() != 1 {
		return errOutside
	}
	runtime.LockOSThread()
	if err := dieWithLauncher(); err != nil {
		return err
	}
	return confine(r, probeHere(), command, env)
}

// confine is Exec for a kernel. All that is of a thread is of this one, which executes the command.
func confine(r *Rules, k kernel, command, env []string) error {
	r, err := r.filled()
	if err != nil {
		return err
	}
	n, err := r.network()
	if err != nil {
		return err
	}
	p, err := program(append(command, "")[0], variable(env, "PATH"))
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	// Nothing else of farcall is left open; the runtime's own are closed with it.
	if err := closeOthers(); err != nil {
		return fmt.Errorf("sandbox: close descriptors: %w", err)
	}
	isolated := k.namespaces == nil
	tmp, proc := false, false
	if isolated {
		switch err := r.confineMounts(p); {
		case err == nil:
			tmp, proc = ownMounts(r.Memory)
		case !r.BestEffort:
			return err
		default:
			fmt.Fprintln(os.Stderr, "farcall: the sandbox is not complete:", err)
		}
	}
	env = environment(env, r, n, tmp)
	supervised := !n.none && isolated && k.supervises()
	files, err := r.newRuleset(k, n, supervised, p, tmp, proc)
	if err != nil {
		return err
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	if files != nil {
		if err := files.enforce(); err != nil {
			return err
		}
	}
	if err := r.limits(isolated); err != nil {
		return err
	}
	if err := filterCalls(k, n, supervised); err != nil {
		return err
	}
	if err := unix.Exec(p.file, command, env); err != nil {
		return fmt.Errorf("sandbox: start %s: %w", p.file, err)
	}
	return nil
}

// dieWithLauncher has the kernel kill this process when the one that has started it ends. The
// kernel knows that of each thread: the first one has it from the launcher, and the command has it
// from the thread that executes it.
func dieWithLauncher() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: end with the launcher: %w", err)
	}
	return nil
}

// filterCalls puts the filter of system calls on, the last restriction of all.
func filterCalls(k kernel, n network, supervised bool) error {
	if !k.seccomp {
		return nil
	}
	listener, err := newFilter(n, supervised).enforce(supervised)
	if err != nil || !supervised {
		return err
	}
	return handOver(listener)
}

// closeOthers closes all descriptors but the standard streams when the command starts.
func closeOthers() error {
	err := unix.CloseRange(3, 1<<31-1, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	entries, dirErr := os.ReadDir("/proc/self/fd") // before Linux 5.11
	if dirErr != nil {
		return err
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// confineMounts makes all that is mounted read-only and not executable in the sandbox's namespace,
// but for what may be written or executed: see planMounts. Landlock does not see changes of modes,
// times, owners and attributes, and no program that the loader runs or library that dlopen maps.
func (r *Rules) confineMounts(p *found) error {
	points, err := r.mountPoints(p)
	if err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("sandbox: its own mounts: %w", err)
	}
	for _, m := range points {
		if m.path == "/" {
			continue
		}
		if err := unix.Mount(m.path, m.path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("sandbox: mount %s: %w", m.path, err)
		}
	}
	all := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, all); err != nil {
		return fmt.Errorf("sandbox: mount all read-only and noexec: %w", err)
	}
	for _, m := range points {
		if err := m.set(); err != nil {
			return err
		}
	}
	return r.cover(unix.MS_PRIVATE)
}

// mountPoints are those of the rules and of the program.
func (r *Rules) mountPoints(p *found) ([]mountPoint, error) {
	write, err := resolved(r.Write)
	if err != nil {
		return nil, err
	}
	execute, err := resolved(r.Execute)
	if err != nil {
		return nil, err
	}
	implicit, err := resolved(slices.Concat(p.executes, p.loaders, libraries()))
	if err != nil {
		return nil, err
	}
	beside, err := resolved(p.reads)
	if err != nil {
		return nil, err
	}
	for _, path := range beside { // libraries that the program may have, and may as well not
		if !slices.Contains(write, path) && !slices.Contains(implicit, path) {
			implicit = append(implicit, path)
		}
	}
	return planMounts(write, execute, implicit)
}

// set gives the mount its attributes. What was read-only or noexec outside stays so: the kernel
// refuses to change that, for the mount itself and for those below it.
func (m mountPoint) set() error {
	attr := &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOEXEC}
	for _, a := range []struct {
		may bool
		bit uint64
	}{{m.write, unix.MOUNT_ATTR_RDONLY}, {m.execute, unix.MOUNT_ATTR_NOEXEC}} {
		if !a.may {
			continue
		}
		attr.Attr_set &^= a.bit
		cleared := &unix.MountAttr{Attr_clr: a.bit}
		if unix.MountSetattr(unix.AT_FDCWD, m.path, unix.AT_RECURSIVE, cleared) != nil {
			_ = unix.MountSetattr(unix.AT_FDCWD, m.path, 0, cleared)
		}
	}
	if attr.Attr_set == 0 {
		return nil
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, m.path, unix.AT_RECURSIVE, attr); err != nil {
		return fmt.Errorf("sandbox: mount %s: %w", m.path, err)
	}
	return nil
}

// ownMounts gives the sandbox a directory for temporary files, and a /proc with its own processes.
// Where the system does not let it, there is none.
func ownMounts(memory int64) (tmp, proc bool) {
	const flags = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	size := "mode=1777,nr_inodes=16384,size=" + strconv.FormatInt(memory/4, 10)
	tmp = unix.Mount("tmpfs", ownTmp, "tmpfs", flags, size) == nil
	proc = unix.Mount("proc", "/proc", "proc", flags, "") == nil
	return tmp, proc
}

// environment is the command's: what names a directory for temporary files names one that it has.
func environment(env []string, r *Rules, n network, tmp bool) []string {
	if dir := variable(env, "TMPDIR"); tmp && (dir == "" || !within(dir, r.Write)) {
		env = with(env, "TMPDIR", ownTmp)
	}
	if slices.Contains(n.tcpPorts(), 53) && variable(env, "RES_OPTIONS") == "" {
		env = with(env, "RES_OPTIONS", "use-vc") // names over TCP: there is no UDP
	}
	return env
}

// newRuleset is what may be touched, nil where the kernel has no Landlock.
func (r *Rules) newRuleset(
	k kernel, n network, supervised bool, p *found, tmp, proc bool,
) (*ruleset, error) {
	if k.landlock == 0 {
		return nil, nil //nolint:nilnil // there is nothing to enforce
	}
	s, err := newRuleset(k.landlock, n, supervised)
	if err != nil {
		return nil, err
	}
	return s, r.files(s, n, supervised, p, tmp, proc)
}

// files says what may be touched.
func (r *Rules) files(s *ruleset, n network, supervised bool, p *found, tmp, proc bool) error {
	type grant struct {
		access landlock.AccessFSSet
		must   bool
		paths  []string
	}
	grants := []grant{
		{mayRead, true, r.Read},
		{mayWrite, true, r.Write},
		{mayExecute, true, r.Execute},
		{mayExecute, true, p.executes},
		{mayExecute, false, p.loaders},
		{mayRead, false, slices.Concat(systemFiles(), libraries(), p.reads)},
		{mayUse, false, devices()},
	}
	if !n.none {
		grants = append(grants, grant{mayRead, false, networkFiles()})
	}
	if tmp {
		grants = append(grants, grant{mayWrite, true, []string{ownTmp}})
	}
	if proc {
		grants = append(grants, grant{mayRead, true, []string{"/proc"}})
	} else {
		grants = append(grants, grant{mayRead, false, ownProc()})
	}
	for _, g := range grants {
		if err := s.allow(g.access, g.must, g.paths...); err != nil {
			return err
		}
	}
	if supervised {
		return nil // the supervisor connects: the command itself has no port
	}
	return s.connect(n.tcpPorts())
}

// dropPrivileges leaves no capability and no way to one. A sandbox that root has started keeps that
// of opening files whatever their modes say, as root did: it has no other user's, and Landlock says
// which.
func dropPrivileges() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("sandbox: no new privileges: %w", err)
	}
	for c := uintptr(0); c <= 63; c++ {
		if unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0) != nil {
			break // there are no more, or this process has none to drop
		}
	}
	// an old kernel has none
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have, keep [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("sandbox: capabilities: %w", err)
	}
	const override = 1 << unix.CAP_DAC_OVERRIDE
	if os.Getuid() == unprivileged && have[0].Permitted&override != 0 {
		keep[0] = unix.CapUserData{Effective: override, Permitted: override, Inheritable: override}
	}
	if err := unix.Capset(&header, &keep[0]); err != nil {
		return fmt.Errorf("sandbox: drop capabilities: %w", err)
	}
	if keep[0].Permitted != 0 {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, unix.CAP_DAC_OVERRIDE, 0,
			0); err != nil {
			return fmt.Errorf("sandbox: keep a capability: %w", err)
		}
	}
	return nil
}

// maxStack bounds what counts for no other limit. What a process has without asking is less.
const maxStack = 64 << 20

// bound is a limit of the kernel.
type bound struct {
	name     string
	resource int
	value    uint64
}

// limits bounds the process and each that it starts. None can be raised again.
func (r *Rules) limits(isolated bool) error {
	processes := uint64(r.Processes)
	if !isolated {
		processes += tasks(os.Getuid())
	}
	bounds := []bound{
		{"core dumps", unix.RLIMIT_CORE, 0},
		{"processes", unix.RLIMIT_NPROC, processes},
		{"files", unix.RLIMIT_NOFILE, uint64(r.Files)},
		// What is written to in private, however it was reserved: address space alone costs nothing, and
		// runtimes reserve much of it.
		{"memory", unix.RLIMIT_DATA, uint64(r.Memory)},
		{"the stack", unix.RLIMIT_STACK, maxStack},
	}
	if r.CPU > 0 {
		bounds = append(bounds, bound{"processor time", unix.RLIMIT_CPU, max(1, uint64(r.CPU.Seconds()))})
	}
	for _, b := range bounds {
		var old unix.Rlimit
		if unix.Getrlimit(b.resource, &old) == nil {
			b.value = min(b.value, old.Max)
		}
		limit := unix.Rlimit{Cur: b.value, Max: b.value}
		if b.resource == unix.RLIMIT_STACK {
			limit.Cur = min(b.value, old.Cur)
		}
		if err := unix.Setrlimit(b.resource, &limit); err != nil {
			return fmt.Errorf("sandbox: bound %s: %w", b.name, err)
		}
	}
	return nil
}

// tasks are the processes and threads that a user has already: without a namespace they count.
func tasks(uid int) (n uint64) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s := statusOf(pid)
		if owner, _, _ := strings.Cut(s["Uid"], "\t"); owner == strconv.Itoa(uid) {
			threads, _ := strconv.ParseUint(s["Threads"], 10, 32)
			n += threads
		}
	}
	return n
}

// exists checks the paths that the rules name, so that a wrong one is reported before anything
// starts.
func (r *Rules) exists() error {
	for _, p := range slices.Concat(r.Read, r.Write, r.Execute) {
		if _, err := os.Stat(p); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("sandbox: %w; create it, or remove it from the rules", err)
		}
	}
	return nil
}
