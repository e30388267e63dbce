//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"runtime"

	"golang.org/x/sys/unix"
)

// What Landlock distinguishes.
const (
	mayRead    = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	mayExecute = mayRead | unix.LANDLOCK_ACCESS_FS_EXECUTE
	mayWrite   = mayRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_REFER |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK
	everyFS = mayExecute | mayWrite | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	ofFile  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

const ruleNetPort = 2 // LANDLOCK_RULE_NET_PORT

// address is that of a value which stays where it is: Pointer makes it escape to the heap. The caller
// keeps it alive.
func address[T any](p *T) uintptr { return reflect.ValueOf(p).Pointer() }

// landlockVersion is that of the kernel's interface, 0 when there is none.
func landlockVersion() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// ruleset is a Landlock domain in the making.
type ruleset struct {
	fd      int
	version int
	handled uint64
}

// newRuleset handles what the version knows.
func newRuleset(version int, n network) (*ruleset, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: everyFS}
	switch {
	case version < 2:
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	case version < 3:
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	case version < 5:
		attr.Handled_access_fs &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	size := uintptr(8) // what the version knows of the structure
	if version >= landlockPorts {
		size = 16
		if !n.all {
			attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
		}
	}
	if version >= landlockScope {
		size = 24
		attr.Scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, address(&attr), size, 0)
	runtime.KeepAlive(&attr)
	if errno != 0 {
		return nil, fmt.Errorf("sandbox: landlock_create_ruleset: %w", errno)
	}
	return &ruleset{fd: int(fd), version: version, handled: attr.Handled_access_fs}, nil
}

// allow adds paths with all below. One that does not exist is an error if it must.
func (s *ruleset) allow(access uint64, must bool, paths ...string) error {
	for _, path := range paths {
		err := s.allowOne(access, path)
		if err != nil && (must || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)) {
			return fmt.Errorf("sandbox: %s: %w", path, err)
		}
	}
	return nil
}

func (s *ruleset) allowOne(access uint64, path string) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= ofFile
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access & s.handled, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(s.fd), unix.LANDLOCK_RULE_PATH_BENEATH, address(&attr), 0, 0, 0)
	runtime.KeepAlive(&attr)
	if errno != 0 {
		return os.NewSyscallError("landlock_add_rule", errno)
	}
	return nil
}

// connect adds a TCP port.
func (s *ruleset) connect(port uint16) error {
	attr := struct{ access, port uint64 }{unix.LANDLOCK_ACCESS_NET_CONNECT_TCP, uint64(port)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(s.fd), ruleNetPort, address(&attr), 0, 0, 0)
	runtime.KeepAlive(&attr)
	if errno != 0 {
		return fmt.Errorf("sandbox: port %d: landlock_add_rule: %w", port, errno)
	}
	return nil
}

// enforce restricts the calling thread, and what it executes.
func (s *ruleset) enforce() error {
	defer func() { _ = unix.Close(s.fd) }()
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(s.fd), 0, 0); errno != 0 {
		return fmt.Errorf("sandbox: landlock_restrict_self: %w", errno)
	}
	return nil
}
