//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// attempts are what the hostile program tries. An error says that it failed.
var attempts = map[string]func(args []string) error{
	"read":    func(a []string) error { return readSome(a[0]) },
	"list":    func(a []string) error { _, err := os.ReadDir(a[0]); return err },
	"create":  func(a []string) error { return os.WriteFile(a[0], []byte("x"), 0o600) },
	"empty":   func(a []string) error { return os.Truncate(a[0], 0) },
	"remove":  func(a []string) error { return os.Remove(a[0]) },
	"mkdir":   func(a []string) error { return os.Mkdir(a[0], 0o700) },
	"chmod":   func(a []string) error { return os.Chmod(a[0], 0o666) },
	"touch":   func(a []string) error { return os.Chtimes(a[0], time.Time{}, time.Unix(1, 0)) },
	"rename":  func(a []string) error { return os.Rename(a[0], a[1]) },
	"symlink": func(a []string) error { return errors.Join(os.Symlink(a[0], a[1]), readSome(a[1])) },
	"link":    func(a []string) error { return errors.Join(os.Link(a[0], a[1]), readSome(a[1])) },
	"handle": func(a []string) error {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
		if err != nil {
			return err
		}
		at, err := unix.Open(filepath.Dir(a[0]), unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err == nil {
			_, err = unix.OpenByHandleAt(at, h, unix.O_RDONLY)
		}
		return err
	},
	"execute": func(a []string) error { return exec.Command(a[0], a[1:]...).Run() },
	"copy and execute": func(a []string) error {
		program, err := os.ReadFile(a[0])
		if err == nil {
			err = os.WriteFile(a[1], program, 0o700)
		}
		if err == nil {
			err = exec.Command(a[1], "hostile", "nothing").Run()
		}
		return err
	},
	"nothing":         func([]string) error { return nil },
	"search environs": searchEnvirons,
	"descriptor":      func([]string) error { return readOf(os.NewFile(3, "inherited")) },
	"setuid program": func(a []string) error {
		out, err := exec.Command(a[0], "hostile", "am I root").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w %s", err, out)
		}
		return nil
	},
	"am I root": func([]string) error {
		if os.Geteuid() != 0 {
			return errors.New("user " + fmt.Sprint(os.Geteuid()))
		}
		return nil
	},

	"tcp": func(a []string) error { return dial("tcp", a[0]) },
	"udp": func(a []string) error { return dial("udp", a[0]) },
	"dns": func([]string) error {
		c, err := net.Dial("udp", "192.0.2.53:53")
		if err == nil {
			_, err = c.Write([]byte("query"))
		}
		if errors.Is(err, unix.ENETUNREACH) {
			return nil // the socket is what the sandbox is to refuse
		}
		return err
	},
	"unix":       func(a []string) error { return dial("unix", a[0]) },
	"pair sends": pairSends,
	"netlink": func([]string) error {
		return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
	},
	"packet": func([]string) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"raw": func([]string) error {
		return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	},
	"udp socket": func([]string) error { return socket(unix.AF_INET, unix.SOCK_DGRAM, 0) },
	"mptcp": func([]string) error {
		return socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)
	},
	"listen":        listens,
	"tcp fast open": fastOpen,

	"kill":   func(a []string) error { return syscall.Kill(pid(a[0]), syscall.SIGURG) },
	"ptrace": func(a []string) error { return attach(pid(a[0])) },
	// it ends with this process
	"seize":   func(a []string) error { runtime.LockOSThread(); return unix.PtraceSeize(pid(a[0])) },
	"read vm": func(a []string) error { return readVM(pid(a[0])) },
	"mem":     func(a []string) error { return memory(a[0]) },
	"mount": func(a []string) error {
		err := unix.Mount("none", a[0], "tmpfs", 0, "")
		if err == nil {
			err = unix.Unmount(a[0], 0)
		}
		return err
	},
	"unshare": func([]string) error {
		cmd := exec.Command("/proc/self/exe", "hostile", "nothing")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
		return cmd.Run()
	},
	"setns": func([]string) error {
		fd, err := unix.Open("/proc/self/ns/uts", unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return unix.Setns(fd, 0)
	},
	"uncover": func(a []string) error {
		return errors.Join(unix.Unmount(a[0], unix.MNT_DETACH), readSome(a[0]))
	},
	"uncover in namespaces": func(a []string) error {
		cmd := exec.Command("/proc/self/exe", "hostile", "uncover", a[0])
		uid, gid := os.Getuid(), os.Getgid()
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
			UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}},
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w %s", err, out)
		}
		return nil
	},
	"chroot": func([]string) error { return unix.Chroot("/usr") },
	"key": func([]string) error {
		_, err := unix.AddKey("user", "k", []byte("v"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"memfd":    func([]string) error { _, err := unix.MemfdCreate("m", 0); return err },
	"io_uring": func([]string) error { return numbered(unix.SYS_IO_URING_SETUP) },
	"bpf":      func([]string) error { return numbered(unix.SYS_BPF) },
	"perf":     func([]string) error { return numbered(unix.SYS_PERF_EVENT_OPEN) },
	"clone3":   func([]string) error { return numbered(unix.SYS_CLONE3) },
	"call":     func(a []string) error { return numbered(uintptr(pid(a[0]))) },
	"shared mem": func([]string) error {
		_, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
		return err
	},

	"fork bomb":    forkBomb,
	"eat memory":   eat,
	"eat shared":   eatShared,
	"eat together": eatTogether,
	"open files":   openFiles,
	"burn":         burn,
	"raise a limit": func([]string) error {
		return unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1000, Max: 1000})
	},
	"hide": hide,
	"stay": func([]string) error { return stay() },
}

func readSome(file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	return readOf(f)
}

func readOf(f *os.File) error {
	n, err := f.Read(make([]byte, 64))
	if n == 0 && err != nil {
		return err
	}
	return nil
}

// searchEnvirons looks for a word in the environment of every process.
func searchEnvirons(a []string) error {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	tasks, _ := filepath.Glob("/proc/[0-9]*/task/*/environ")
	for _, f := range append(files, tasks...) {
		if text, _ := os.ReadFile(f); bytes.Contains(text, []byte(a[0])) {
			return nil
		}
	}
	return fmt.Errorf("not in %d environments", len(files))
}

func dial(network, address string) error {
	c, err := net.DialTimeout(network, address, 2*time.Second)
	if err != nil {
		return err
	}
	if network == "udp" {
		_, err = c.Write([]byte("secret"))
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 2))
	return err
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// pairSends makes a socket without socket(2) and sends to another.
func pairSends(a []string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return unix.Sendto(fds[0], []byte("secret"), 0, &unix.SockaddrUnix{Name: a[0]})
}

// listens does so without bind(2).
func listens([]string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}

// fastOpen connects with its first bytes.
func fastOpen(a []string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	address, err := net.ResolveTCPAddr("tcp", a[0])
	if err != nil {
		return err
	}
	return unix.Sendto(fd, []byte("secret"), unix.MSG_FASTOPEN,
		&unix.SockaddrInet4{Port: address.Port, Addr: [4]byte(address.IP.To4())})
}

// attach stops a process, as a debugger does, reads what begins its program, and lets it go.
func attach(pid int) error {
	runtime.LockOSThread()
	if err := unix.PtraceAttach(pid); err != nil {
		return err
	}
	if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != nil {
		return err
	}
	at, err := beginning(pid)
	if err == nil {
		_, err = unix.PtracePeekText(pid, at, make([]byte, 8))
	}
	return errors.Join(err, unix.PtraceDetach(pid))
}

// beginning is where the program of a process begins.
func beginning(pid int) (at uintptr, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		maps, _ = os.ReadFile("/proc/self/maps") // it may be at the same place
	}
	_, err = fmt.Sscanf(string(maps), "%x-", &at)
	return at, err
}

// readVM reads what begins the victim's program.
func readVM(pid int) error {
	at, err := beginning(pid)
	if err != nil {
		return err
	}
	p := make([]byte, 8)
	local := []unix.Iovec{{Base: &p[0], Len: 8}}
	_, err = unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: at, Len: 8}}, 0)
	return err
}

// memory reads what begins the program of a process, and writes it again.
func memory(process string) error {
	f, err := os.OpenFile("/proc/"+process+"/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	at, err := beginning(pid(process))
	p := make([]byte, 8)
	if err == nil {
		_, err = f.ReadAt(p, int64(at))
	}
	if err == nil {
		_, err = f.WriteAt(p, int64(at))
	}
	return err
}

// numbered calls a system call with nothing: one that exists says that this is wrong.
func numbered(number uintptr) error {
	_, _, errno := unix.Syscall6(number, 0, 0, 0, 0, 0, 0)
	if errno == unix.EPERM || errno == unix.ENOSYS || errno == unix.EACCES {
		return errno
	}
	return nil
}

// forkBomb starts 100 processes, and no more: it runs outside, too.
func forkBomb([]string) error {
	runtime.LockOSThread() // they end with it
	for n := range 100 {
		cmd := exec.Command("/proc/self/exe", "hostile", "stay")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("after %d: %w", n, err)
		}
		defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	}
	return nil
}

const eaten = 300 << 20

func eat([]string) error {
	p, err := unix.Mmap(-1, 0, eaten, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err == nil {
		touch(p)
	}
	return err
}

// eatShared takes memory that no limit of the process counts, and keeps it.
func eatShared([]string) error {
	p, err := unix.Mmap(-1, 0, eaten, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	if err != nil {
		return err
	}
	touch(p)
	wait()
	return nil
}

// eatTogether takes it in small parts, in many processes.
func eatTogether(a []string) error {
	if len(a) > 0 {
		p, err := unix.Mmap(-1, 0, eaten/6, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		touch(p)
		wait()
		return nil
	}
	runtime.LockOSThread() // they end with it
	var all []*exec.Cmd
	for range 6 {
		cmd := exec.Command("/proc/self/exe", "hostile", "eat together", "a part")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		all = append(all, cmd)
	}
	var err error
	for _, cmd := range all {
		err = errors.Join(err, cmd.Wait())
	}
	return err
}

func touch(p []byte) {
	for i := 0; i < len(p); i += 4096 {
		p[i] = 1
	}
}

// wait is long enough to be seen.
func wait() { <-time.After(time.Second) }

func openFiles([]string) error {
	for n := range 600 {
		if _, err := unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
			return fmt.Errorf("after %d: %w", n, err)
		}
	}
	return nil
}

// burn uses more than a second of the processor.
func burn([]string) error {
	for used := new(unix.Rusage); ; {
		for i := range 1 << 20 {
			_ = fmt.Append(nil, i)
		}
		if err := unix.Getrusage(unix.RUSAGE_SELF, used); err != nil || used.Utime.Nano() >= 12e8 {
			return err
		}
	}
}

// hide starts a process in its own session, with nothing in its environment, says so, and stays.
func hide([]string) error {
	cmd := exec.Command("/proc/self/exe", "hostile", "stay")
	cmd.Env = []string{"NOTHING=1"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println("hidden", strings.TrimSpace(fmt.Sprint(cmd.Process.Pid)))
	return stay()
}
