//go:build linux && (amd64 || arm64)

package sandbox

import (
	le "encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// verdict runs a filter over a system call, as the kernel does.
func (f filter) verdict(t *testing.T, arch, number uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	le.LittleEndian.PutUint32(data[atNumber:], number)
	le.LittleEndian.PutUint32(data[atArch:], arch)
	for i, a := range args {
		le.LittleEndian.PutUint64(data[atArgument+8*i:], a)
	}
	var a uint32
	for at := 0; at < len(f); at++ {
		in := f[at]
		jump := func(yes bool) {
			if yes {
				at += int(in.Jt)
			} else {
				at += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			a = le.LittleEndian.Uint32(data[in.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			a &= in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(a == in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(a&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("the filter has an instruction that this test does not know: %+v", in)
		}
	}
	t.Fatal("the filter does not end")
	return 0
}

// TestFilterIsAllowList: what is not listed is refused: system calls that no kernel has yet, those
// of another ABI, and those that lead out.
func TestFilterIsAllowList(t *testing.T) {
	checked := []uintptr{
		unix.SYS_CLONE, unix.SYS_IOCTL, unix.SYS_SOCKET, unix.SYS_SOCKETPAIR,
		unix.SYS_LISTEN, unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_SETSOCKOPT,
		unix.SYS_CONNECT,
	}
	listed := allowed()
	for i, n := range listed {
		if slices.Contains(listed[:i], n) {
			t.Errorf("%d is listed twice", n)
		}
	}
	for _, n := range []network{{none: true}, {ports: []uint16{443}}, {all: true}} {
		f := newFilter(n, false)
		if len(f) > 4096 {
			t.Fatalf("%d instructions are more than the kernel takes", len(f))
		}
		for number := range uint32(1 << 12) {
			got := f.verdict(t, auditArch, number)
			if slices.Contains(checked, uintptr(number)) {
				continue
			}
			want := unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
			if slices.Contains(listed, uintptr(number)) {
				want = unix.SECCOMP_RET_ALLOW
			}
			if got != want {
				t.Errorf("%+v: system call %d: %#x, wanted %#x", n, number, got, want)
			}
		}
		for _, number := range []uint32{0x40000000 | unix.SYS_READ, 0xffffffff, 1 << 20} {
			// the first is x32's
			if got := f.verdict(t, auditArch, number); got != unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS) {
				t.Errorf("%+v: system call %#x: %#x", n, number, got)
			}
		}
		if got := f.verdict(t, unix.AUDIT_ARCH_I386,
			unix.SYS_READ); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("another architecture: %#x", got)
		}
	}
	for _, never := range []uintptr{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD,
		unix.SYS_KCMP, unix.SYS_PROCESS_MADVISE,
		unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_PERF_EVENT_OPEN, unix.SYS_UNSHARE,
		unix.SYS_SETNS, unix.SYS_MOUNT,
		unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
		unix.SYS_OPEN_TREE_ATTR, unix.SYS_FSOPEN,
		unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_QUOTACTL,
		unix.SYS_SWAPON,
		unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_BPF,
		unix.SYS_KEXEC_LOAD,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_REBOOT, unix.SYS_ACCT, unix.SYS_SYSLOG,
		unix.SYS_PERSONALITY,
		unix.SYS_CLOCK_SETTIME, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_SHMGET,
		unix.SYS_MSGGET,
		unix.SYS_SEMGET, unix.SYS_MQ_OPEN, unix.SYS_CLONE3, unix.SYS_IO_URING_SETUP,
		unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_MEMFD_CREATE, unix.SYS_MEMFD_SECRET, unix.SYS_USERFAULTFD, unix.SYS_LISTNS,
		unix.SYS_STATMOUNT, unix.SYS_LISTMOUNT,
	} {
		if slices.Contains(listed, never) {
			t.Errorf("%d is allowed", never)
		}
	}
}
