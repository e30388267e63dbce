//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// What is granted. Never is: to make devices, their ioctls, and sockets of others by path.
const (
	mayRead    = ll.AccessFSReadFile | ll.AccessFSReadDir
	mayExecute = mayRead | ll.AccessFSExecute
	mayUse     = mayRead | ll.AccessFSWriteFile | ll.AccessFSTruncate
	mayWrite   = mayUse | ll.AccessFSRefer | ll.AccessFSRemoveDir | ll.AccessFSRemoveFile |
		ll.AccessFSMakeDir |
		ll.AccessFSMakeReg | ll.AccessFSMakeSym | ll.AccessFSMakeFifo | ll.AccessFSMakeSock
	ofFile = ll.AccessFSReadFile | ll.AccessFSExecute | ll.AccessFSWriteFile | ll.AccessFSTruncate
)

// restrictions are what each version of Landlock's interface can restrict.
var restrictions = []landlock.Config{
	{},
	landlock.V1, landlock.V2, landlock.V3, landlock.V4, landlock.V5,
	landlock.V6, landlock.V7, landlock.V8, landlock.V9, landlock.V10, landlock.V11,
}

// restriction is all that a version can: beyond what a strict sandbox needs, ioctls of devices,
// signals, abstract sockets, sockets by path and UDP. The filter refuses most of that, too.
func restriction(version int, n network, supervised bool) landlock.Config {
	c := restrictions[min(version, len(restrictions)-1)]
	switch {
	case n.all && supervised: // it may listen, and its connections are made for it
		c.HandledAccessNet &= ll.AccessNetConnectTCP
	case n.all:
		c.HandledAccessNet = 0
	}
	return c
}

// landlockVersion is that of the kernel's interface, 0 when there is none.
func landlockVersion() int {
	v, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return v
}

// ruleset is a Landlock domain in the making. It is for the thread that executes the command, and
// exec ends the others. [landlock.Config.Restrict] would restrict all of them: in a build with cgo
// that waits for ever for the threads that /proc names when /proc belongs to another process
// namespace, as it does where no new one may be mounted; and its best effort does nothing at all
// when a right to rename is granted before Linux 5.19.
type ruleset struct {
	fd int
	c  landlock.Config
}

func newRuleset(version int, n network, supervised bool) (*ruleset, error) {
	c := restriction(version, n, supervised)
	attr := ll.RulesetAttr{
		HandledAccessFS:  uint64(c.HandledAccessFS),
		HandledAccessNet: uint64(c.HandledAccessNet), Scoped: uint64(c.Scoped),
	}
	fd, err := ll.LandlockCreateRuleset(&attr, 0)
	if err != nil {
		return nil, fmt.Errorf("sandbox: landlock_create_ruleset: %w", err)
	}
	return &ruleset{fd: fd, c: c}, nil
}

// allow adds paths with all below. One that does not exist is an error if it must.
func (s *ruleset) allow(access landlock.AccessFSSet, must bool, paths ...string) error {
	for _, path := range paths {
		err := s.allowOne(access, path)
		if err != nil && (must || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)) {
			return fmt.Errorf("sandbox: %s: %w", path, err)
		}
	}
	return nil
}

func (s *ruleset) allowOne(access landlock.AccessFSSet, path string) error {
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
		access &= ofFile // others are an error
	}
	attr := ll.PathBeneathAttr{AllowedAccess: uint64(access & s.c.HandledAccessFS), ParentFd: fd}
	if err := ll.LandlockAddPathBeneathRule(s.fd, &attr, 0); err != nil {
		return fmt.Errorf("landlock_add_rule: %w", err)
	}
	return nil
}

// connect adds TCP ports, when the kernel knows them.
func (s *ruleset) connect(ports []uint16) error {
	if s.c.HandledAccessNet&ll.AccessNetConnectTCP == 0 {
		return nil
	}
	for _, port := range ports {
		attr := ll.NetPortAttr{AllowedAccess: ll.AccessNetConnectTCP, Port: uint64(port)}
		if err := ll.LandlockAddNetPortRule(s.fd, &attr, 0); err != nil {
			return fmt.Errorf("sandbox: port %d: landlock_add_rule: %w", port, err)
		}
	}
	return nil
}

// enforce restricts the calling thread, and what it executes. It needs no_new_privs.
func (s *ruleset) enforce() error {
	defer func() { _ = unix.Close(s.fd) }()
	if err := ll.LandlockRestrictSelf(s.fd, 0); err != nil {
		return fmt.Errorf("sandbox: landlock_restrict_self: %w", err)
	}
	return nil
}
