//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe" //nolint:depguard // the kernel takes notifications by address, and x/sys has no call for that

	"golang.org/x/sys/unix"
)

// supervisorFile is where the inner half finds the line to the outer one.
const supervisorFile = 3

// notification is struct seccomp_notif, and verdict struct seccomp_notif_resp.
type (
	notification struct {
		id    uint64
		pid   uint32
		flags uint32
		call  struct {
			number int32
			arch   uint32
			at     uint64
			args   [6]uint64
		}
	}
	verdict struct {
		id    uint64
		value int64
		errno int32
		flags uint32
	}
)

// handOver tells the supervisor which descriptor the listener is, and waits until it has it. The
// filter is in force by then: nothing but read and write is needed.
func handOver(listener int) error {
	line := binary.LittleEndian.AppendUint32(nil, uint32(listener))
	if _, err := unix.Write(supervisorFile, line); err != nil {
		return fmt.Errorf("sandbox: hand over the connections: %w", err)
	}
	if n, err := unix.Read(supervisorFile, line[:1]); err != nil || n != 1 {
		return fmt.Errorf("sandbox: no supervisor of connections: %w", errors.Join(err, unix.EPIPE))
	}
	unix.CloseOnExec(listener)
	return nil
}

// supervisor makes the connections of a command that is in a sandbox, as far as the rules allow. A
// system call that is handed to it does not run: the supervisor takes a copy of the address,
// decides about the copy, and connects a duplicate of the socket of the command to the copy. So
// nothing is gained by changing the address, or the descriptor, in between.
type supervisor struct {
	n        network
	hosts    hosts
	listener int
	stop     *os.File // its other end is closed by close
	running  sync.WaitGroup

	mu      sync.Mutex
	pending map[int]struct{} // sockets in a call that may wait
	ended   bool
}

// newSupervisor returns a supervisor that has no command yet.
func newSupervisor(n network) *supervisor {
	return &supervisor{
		n: n, listener: -1, pending: map[int]struct{}{},
		hosts: hosts{lookup: net.DefaultResolver.LookupNetIP, known: map[string]*hostEntry{}},
	}
}

// serve takes the listener over from the process and answers until close, or until the command
// ends.
func (s *supervisor) serve(pid int, line *os.File) {
	defer func() { _ = line.Close() }()
	number := make([]byte, 4)
	if _, err := line.Read(number); err != nil {
		return // it has failed before, and says why
	}
	process, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(process) }()
	if s.listener, err = unix.PidfdGetfd(process, int(binary.LittleEndian.Uint32(number)),
		0); err != nil {
		fmt.Fprintln(os.Stderr, "farcall: sandbox: take over the connections:", err)
		return
	}
	defer func() { _ = unix.Close(s.listener) }()
	if _, err := line.Write([]byte{1}); err != nil {
		return
	}
	defer s.running.Wait()
	for {
		fds := []unix.PollFd{
			{Fd: int32(s.listener), Events: unix.POLLIN},
			{Fd: int32(s.stop.Fd()), Events: unix.POLLIN},
		}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		if fds[1].Revents != 0 || fds[0].Revents&unix.POLLIN == 0 && fds[0].Revents != 0 {
			return
		}
		if fds[0].Revents == 0 {
			continue
		}
		var n notification
		if s.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)) != 0 { //nolint:gosec // see above
			continue // the thread has ended
		}
		s.running.Go(func() { s.answer(&n) })
	}
}

// close ends calls that wait.
func (s *supervisor) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for fd := range s.pending {
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
}

// enter notes a socket with a call that may wait, which close ends.
func (s *supervisor) enter(fd int) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, false
	}
	s.pending[fd] = struct{}{}
	return func() { s.mu.Lock(); delete(s.pending, fd); s.mu.Unlock() }, true
}

func (s *supervisor) ioctl(request uintptr, p unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), request, uintptr(p))
	return errno
}

// alive reports whether the thread still waits in the call: then its number is still its own, and
// what was read by it is its.
func (s *supervisor) alive(id uint64) bool {
	return s.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id)) == 0 //nolint:gosec // see above
}

// answer does what was asked and says what came of it.
func (s *supervisor) answer(n *notification) {
	v := verdict{id: n.id}
	value, err := s.do(n)
	if err != nil {
		v.errno = -int32(unix.EACCES)
		if errno := unix.Errno(0); errors.As(err, &errno) {
			v.errno = -int32(errno)
		}
	} else {
		v.value = int64(value)
	}
	_ = s.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&v)) //nolint:gosec // see above
}

// do is the call, with a duplicate of the socket and copies of all that is in memory.
func (s *supervisor) do(n *notification) (value int, err error) {
	c, err := s.caller(n)
	if err != nil {
		return 0, err
	}
	defer c.close()
	fd, err := c.file(int(int32(n.call.args[0])))
	if err != nil {
		return 0, err
	}
	leave, ok := s.enter(fd)
	if !ok {
		return 0, unix.ECONNABORTED
	}
	defer leave()
	a := n.call.args
	switch uintptr(n.call.number) {
	case unix.SYS_CONNECT:
		return 0, s.connect(c, fd, a[1], a[2])
	case unix.SYS_SENDTO:
		return s.send(c, fd, &message{name: a[4], nameLen: a[5], parts: []part{{a[1], a[2]}}},
			int(int32(a[3])))
	case unix.SYS_SENDMSG:
		m, err := c.message(a[1])
		if err != nil {
			return 0, err
		}
		return s.send(c, fd, m, int(int32(a[2])))
	case unix.SYS_SENDMMSG:
		if a[2] == 0 {
			return 0, nil
		}
		m, err := c.message(a[1])
		if err != nil {
			return 0, err
		}
		sent, err := s.send(c, fd, m, int(int32(a[3])))
		if err != nil {
			return 0, err
		}
		// One of them: it is for the caller to send the rest.
		return 1, c.write(a[1]+sizeOfMsghdr, binary.LittleEndian.AppendUint32(nil, uint32(sent)))
	}
	return 0, unix.ENOSYS
}

// connect connects the socket to a copy of the address.
func (s *supervisor) connect(c *caller, fd int, at, length uint64) error {
	raw, err := c.read(at, min(length, unix.SizeofSockaddrAny))
	if err != nil {
		return err
	}
	if len(raw) < 2 {
		return unix.EINVAL
	}
	if binary.LittleEndian.Uint16(raw) == unix.AF_UNSPEC { // ends a connection
		raw = make([]byte, unix.SizeofSockaddrInet4)
	} else if _, err := s.allowed(fd, raw); err != nil {
		return err
	}
	if !isInternet(fd) {
		return unix.EACCES
	}
	_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw[0])), uintptr(len(raw))) //nolint:gosec // see above
	if errno != 0 {
		return errno
	}
	return nil
}

// allowed returns the address when the socket may reach it.
func (s *supervisor) allowed(fd int, raw []byte) (unix.Sockaddr, error) {
	to, sa := parseSockaddr(raw)
	if sa == nil {
		return nil, unix.EAFNOSUPPORT
	}
	now := time.Now()
	ok := s.n.mayReach(to, func(host string) []netip.Addr {
		return s.hosts.of(host, now)
	}, func() []netip.Addr {
		text, _ := os.ReadFile("/etc/resolv.conf")
		return nameServers(string(text))
	})
	if !ok {
		return nil, unix.EACCES
	}
	if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil ||
		kind != unix.SOCK_STREAM && !s.n.all {
		return nil, unix.EACCES
	}
	return sa, nil
}

// parseSockaddr reads an address of IPv4 or IPv6.
func parseSockaddr(raw []byte) (netip.AddrPort, unix.Sockaddr) {
	if len(raw) < 2 {
		return netip.AddrPort{}, nil
	}
	switch family := binary.LittleEndian.Uint16(raw); {
	case family == unix.AF_INET && len(raw) >= unix.SizeofSockaddrInet4:
		port := binary.BigEndian.Uint16(raw[2:])
		a := [4]byte(raw[4:8])
		return netip.AddrPortFrom(netip.AddrFrom4(a), port), &unix.SockaddrInet4{Port: int(port), Addr: a}
	case family == unix.AF_INET6 && len(raw) >= 24: // what the kernel takes without a scope
		port := binary.BigEndian.Uint16(raw[2:])
		sa := &unix.SockaddrInet6{Port: int(port), Addr: [16]byte(raw[8:24])}
		if len(raw) >= unix.SizeofSockaddrInet6 {
			sa.ZoneId = binary.LittleEndian.Uint32(raw[24:])
		}
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port), sa
	}
	return netip.AddrPort{}, nil
}

func isInternet(fd int) bool {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return err == nil && (domain == unix.AF_INET || domain == unix.AF_INET6)
}

// caller is the thread that waits.
type caller struct {
	thread  int
	process int // a descriptor
	files   []int
	alive   func() bool
}

// caller opens the process of the thread.
func (s *supervisor) caller(n *notification) (*caller, error) {
	c := &caller{thread: int(n.pid), alive: func() bool { return s.alive(n.id) }}
	leader, err := strconv.Atoi(strings.TrimSpace(statusOf(c.thread)["Tgid"]))
	if err != nil {
		return nil, unix.ESRCH
	}
	if c.process, err = unix.PidfdOpen(leader, 0); err != nil {
		return nil, err //nolint:wrapcheck // its number is what counts
	}
	if !c.alive() { // the number of the thread may be another's by now
		c.close()
		return nil, unix.ESRCH
	}
	return c, nil
}

func (c *caller) close() {
	for _, fd := range append(c.files, c.process) {
		_ = unix.Close(fd)
	}
}

// file duplicates a descriptor of the process.
func (c *caller) file(fd int) (int, error) {
	own, err := unix.PidfdGetfd(c.process, fd, 0)
	if err == nil {
		c.files = append(c.files, own)
	}
	return own, err //nolint:wrapcheck // its number is what counts
}

// read copies memory of the process.
func (c *caller) read(at, length uint64) ([]byte, error) {
	p := make([]byte, length)
	if length == 0 {
		return p, nil
	}
	n, err := unix.ProcessVMReadv(c.thread, []unix.Iovec{{Base: &p[0], Len: length}},
		[]unix.RemoteIovec{{Base: uintptr(at), Len: int(length)}}, 0)
	if err != nil || n != len(p) {
		return nil, unix.EFAULT
	}
	if !c.alive() {
		return nil, unix.ESRCH
	}
	return p, nil
}

func (c *caller) write(at uint64, p []byte) error {
	if !c.alive() {
		return unix.ESRCH
	}
	_, err := unix.ProcessVMWritev(c.thread, []unix.Iovec{{Base: &p[0], Len: uint64(len(p))}},
		[]unix.RemoteIovec{{Base: uintptr(at), Len: len(p)}}, 0)
	return err //nolint:wrapcheck // its number is what counts
}

// canSupervise says why connections cannot be supervised, nil if they can.
func canSupervise() error {
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action))); errno != 0 { //nolint:gosec // see above
		return fmt.Errorf("no user notification of seccomp: %w", errno)
	}
	if _, err := unix.PidfdGetfd(-1, 0, 0); !errors.Is(err, unix.EBADF) {
		return fmt.Errorf("no pidfd_getfd: %w", err)
	}
	self, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return fmt.Errorf("no pidfd_open: %w", err)
	}
	return unix.Close(self)
}
