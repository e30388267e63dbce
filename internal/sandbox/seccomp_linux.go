//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"unsafe" //nolint:depguard // the kernel takes a filter by its address, and x/sys has no call for that

	"golang.org/x/sys/unix"
)

// Where the filter finds things in struct seccomp_data. The arguments are 64 bits wide; the kernel
// reads of those that are looked at here the lower 32 only, which come first on the little-endian
// machines it is for.
const (
	atNumber   = 0
	atArch     = 4
	atArgument = 16
)

// What is looked for in arguments.
const (
	newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP
	typeOfSocket = 0xf // without SOCK_NONBLOCK and SOCK_CLOEXEC
	tiocLinux    = 0x541c
)

// filter is a classic BPF program over a system call.
type filter []unix.SockFilter

func (f *filter) add(code uint16, k uint32, jt, jf uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: jt, Jf: jf, K: k})
}

func (f *filter) load(offset uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, 0, 0) }

func (f *filter) argument(n, mask uint32) {
	f.load(atArgument + 8*n)
	if mask != 0 {
		f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
	}
}

func (f *filter) ret(action uint32) { f.add(unix.BPF_RET|unix.BPF_K, action, 0, 0) }
func (f *filter) fail(e unix.Errno) { f.ret(unix.SECCOMP_RET_ERRNO | uint32(e)) }
func (f *filter) ifEqual(v uint32)  { f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, v, 0, 1) }

// oneOf fails unless the argument is one of the values.
func (f *filter) oneOf(n, mask uint32, values ...uint32) {
	f.argument(n, mask)
	for i, v := range values {
		f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, v, uint8(len(values)-i), 0)
	}
	f.fail(unix.EACCES)
}

// noneOf fails when one of the bits is set.
func (f *filter) noneOf(n, bits uint32, e unix.Errno) {
	f.argument(n, 0)
	f.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, bits, 0, 1)
	f.fail(e)
}

// on runs the body for a system call, which is allowed when the body has not failed.
func (f *filter) on(number uintptr, body func(*filter)) {
	var b filter
	body(&b)
	b.ret(unix.SECCOMP_RET_ALLOW)
	f.load(atNumber)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, uint32(number), 0, uint8(len(b)))
	*f = append(*f, b...)
}

// newFilter allows the system calls that are listed, and those with arguments that stay in the
// sandbox. What is not listed does not exist: ENOSYS is what a program finds on an older kernel,
// and can deal with. A system call that a later kernel adds is refused until it is listed.
func newFilter(n network, supervised bool) filter {
	var f filter
	f.load(atArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch, 1, 0)
	f.ret(unix.SECCOMP_RET_KILL_PROCESS) // numbers mean something else there
	f.on(unix.SYS_CLONE, func(b *filter) { b.noneOf(0, newNamespaces, unix.EPERM) })
	f.on(unix.SYS_IOCTL, func(b *filter) { // keys for the terminal that it may have
		for _, request := range []uint32{unix.TIOCSTI, tiocLinux} {
			b.argument(1, 0)
			b.ifEqual(request)
			b.fail(unix.EPERM)
		}
	})
	// A pair of streams is connected to itself; a datagram socket could still choose where to send.
	f.on(unix.SYS_SOCKETPAIR, func(b *filter) {
		b.oneOf(1, typeOfSocket, unix.SOCK_STREAM, unix.SOCK_SEQPACKET)
	})
	f.on(unix.SYS_SOCKET, func(b *filter) { b.sockets(n) })
	if !n.all {
		// Landlock does not see a listener that is not bound.
		f.on(unix.SYS_LISTEN, func(b *filter) { b.fail(unix.EACCES) })
	}
	// TCP fast open connects where neither Landlock nor a supervisor looks.
	f.on(unix.SYS_SENDTO, func(b *filter) {
		b.noneOf(3, unix.MSG_FASTOPEN, unix.EACCES)
		if supervised && n.all {
			b.ifAddress(4, unix.SECCOMP_RET_USER_NOTIF)
		}
	})
	for _, c := range []struct {
		number uintptr
		flags  uint32
	}{{unix.SYS_SENDMSG, 2}, {unix.SYS_SENDMMSG, 3}} {
		f.on(c.number, func(b *filter) {
			b.noneOf(c.flags, unix.MSG_FASTOPEN, unix.EACCES)
			if supervised && n.all { // where to is in memory
				b.ret(unix.SECCOMP_RET_USER_NOTIF)
			}
		})
	}
	if supervised {
		f.on(unix.SYS_CONNECT, func(b *filter) { b.ret(unix.SECCOMP_RET_USER_NOTIF) })
	}
	f.on(unix.SYS_SETSOCKOPT, (*filter).options)
	f.load(atNumber)
	for _, number := range allowed() {
		f.ifEqual(uint32(number))
		f.ret(unix.SECCOMP_RET_ALLOW)
	}
	f.fail(unix.ENOSYS)
	return f
}

// ifAddress returns an action when an argument is no null pointer.
func (f *filter) ifAddress(n, action uint32) {
	for _, half := range []uint32{0, 4} {
		f.load(atArgument + 8*n + half)
		f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, 0, 1, 0)
		f.ret(action)
	}
}

// options refuses those with which packets go elsewhere than the address says: routes of the
// sender.
func (f *filter) options() {
	for _, c := range []struct {
		level uint32
		names []uint32
	}{
		{unix.SOL_IP, []uint32{unix.IP_OPTIONS}},
		{unix.SOL_IPV6, []uint32{
			unix.IPV6_RTHDR, unix.IPV6_2292RTHDR, unix.IPV6_2292PKTOPTIONS,
			unix.IPV6_HOPOPTS, unix.IPV6_DSTOPTS, unix.IPV6_RTHDRDSTOPTS,
		}},
	} {
		var b filter
		b.argument(2, 0)
		for _, name := range c.names {
			b.ifEqual(name)
			b.fail(unix.EACCES)
		}
		f.argument(1, 0)
		f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, c.level, 0, uint8(len(b)))
		*f = append(*f, b...)
	}
}

// sockets allows the kinds of the network. AF_UNIX is never one: sockets of daemons are ways out.
func (f *filter) sockets(n network) {
	if n.none {
		f.fail(unix.EACCES)
		return
	}
	// Which addresses are there: NETLINK_ROUTE, which changes nothing without privileges.
	var b filter
	b.oneOf(2, 0, unix.NETLINK_ROUTE)
	b.ret(unix.SECCOMP_RET_ALLOW)
	f.argument(0, 0)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, unix.AF_NETLINK, 0, uint8(len(b)))
	*f = append(*f, b...)
	f.oneOf(0, 0, unix.AF_INET, unix.AF_INET6)
	if n.all {
		f.oneOf(1, typeOfSocket, unix.SOCK_STREAM, unix.SOCK_DGRAM)
		f.oneOf(2, 0, 0, unix.IPPROTO_TCP, unix.IPPROTO_UDP) // SCTP connects by an option
		return
	}
	f.oneOf(1, typeOfSocket, unix.SOCK_STREAM)
	f.oneOf(2, 0, 0, unix.IPPROTO_TCP) // not MPTCP or SCTP, which Landlock's ports are not about
}

// enforce filters the calling thread, and what it executes. It needs no_new_privs. listener is what
// tells of the system calls that the filter hands to a supervisor, -1 if there is none.
func (f filter) enforce(supervised bool) (listener int, err error) {
	var flags uintptr
	if supervised {
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
	}
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	for {
		// The conversion is in the call, as package unsafe wants it.
		fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&program))) //nolint:gosec // as above
		switch {
		case errno == unix.EINVAL && flags&unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV != 0:
			// before Linux 5.19
			flags &^= unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
		case errno != 0:
			return -1, fmt.Errorf("sandbox: the seccomp filter: %w", errno)
		case supervised:
			return int(fd), nil
		default:
			return -1, nil
		}
	}
}
