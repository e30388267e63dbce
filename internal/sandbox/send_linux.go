//go:build amd64 || arm64

package sandbox

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

const (
	sizeOfMsghdr = 56
	maxParts     = 1024    // UIO_MAXIOV
	maxSent      = 1 << 17 // of a stream: the caller sends the rest; a datagram has less
	maxControl   = 4096
)

// message is what a caller sends, as struct msghdr has it.
type message struct {
	name, nameLen       uint64
	parts               []part
	control, controlLen uint64
}

// part is a struct iovec.
type part struct{ at, length uint64 }

// message reads a struct msghdr, and the vector that it names.
func (c *caller) message(at uint64) (*message, error) {
	h, err := c.read(at, sizeOfMsghdr)
	if err != nil {
		return nil, err
	}
	word := func(n int) uint64 { return binary.LittleEndian.Uint64(h[n:]) }
	m := &message{
		name: word(0), nameLen: uint64(binary.LittleEndian.Uint32(h[8:])), control: word(32),
		controlLen: word(40),
	}
	count := word(24)
	if count > maxParts || m.controlLen > maxControl {
		return nil, unix.EMSGSIZE
	}
	v, err := c.read(word(16), 16*count)
	if err != nil {
		return nil, err
	}
	for i := range count {
		m.parts = append(m.parts,
			part{binary.LittleEndian.Uint64(v[16*i:]), binary.LittleEndian.Uint64(v[16*i+8:])})
	}
	return m, nil
}

// send sends a copy of a message to a copy of its address.
func (s *supervisor) send(c *caller, fd int, m *message, flags int) (int, error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return 0, err //nolint:wrapcheck // its number is what counts
	}
	p, err := c.data(fd, m.parts)
	if err != nil {
		return 0, err
	}
	control, err := c.read(m.control, m.controlLen)
	if err != nil {
		return 0, err
	}
	var to unix.Sockaddr
	switch domain {
	case unix.AF_INET, unix.AF_INET6:
		if m.name != 0 && m.nameLen > 0 {
			raw, err := c.read(m.name, min(m.nameLen, unix.SizeofSockaddrAny))
			if err != nil {
				return 0, err
			}
			if to, err = s.allowed(fd, raw); err != nil {
				return 0, err
			}
		}
		err = harmless(control)
	case unix.AF_UNIX: // of a pair, which is connected
		control, err = c.passing(control)
	case unix.AF_NETLINK:
		to, err = &unix.SockaddrNetlink{Family: unix.AF_NETLINK}, asksOnly(p)
		control = nil
	default:
		err = unix.EACCES
	}
	if err != nil {
		return 0, err
	}
	return unix.SendmsgN(fd, p, control, to, flags&^unix.MSG_FASTOPEN|unix.MSG_NOSIGNAL) //nolint:wrapcheck // its number is what counts
}

// data copies what is sent: all of a datagram, and as much of a stream as is taken at once.
func (c *caller) data(fd int, parts []part) (out []byte, err error) {
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return nil, err //nolint:wrapcheck // its number is what counts
	}
	for _, v := range parts {
		room := uint64(maxSent - len(out))
		if v.length > room && kind != unix.SOCK_STREAM {
			return nil, unix.EMSGSIZE
		}
		p, err := c.read(v.at, min(v.length, room))
		if err != nil {
			return nil, err
		}
		out = append(out, p...)
	}
	return out, nil
}

// harmless refuses control messages that say where packets go.
func harmless(control []byte) error {
	all, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return unix.EINVAL
	}
	for _, m := range all {
		switch k := [2]int32{m.Header.Level, m.Header.Type}; k {
		case [2]int32{unix.SOL_IP, unix.IP_TOS}, [2]int32{unix.SOL_IP, unix.IP_TTL},
			[2]int32{unix.SOL_IP, unix.IP_PKTINFO},
			[2]int32{unix.SOL_IPV6, unix.IPV6_TCLASS}, [2]int32{unix.SOL_IPV6, unix.IPV6_HOPLIMIT}, [2]int32{unix.SOL_IPV6, unix.IPV6_PKTINFO},
			[2]int32{unix.SOL_UDP, unix.UDP_SEGMENT}:
		default:
			return unix.EACCES
		}
	}
	return nil
}

// passing makes duplicates of the descriptors that are passed on a pair.
func (c *caller) passing(control []byte) (out []byte, err error) {
	all, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, unix.EINVAL
	}
	for i := range all {
		fds, err := unix.ParseUnixRights(&all[i])
		if err != nil {
			return nil, unix.EACCES
		}
		for j := range fds {
			if fds[j], err = c.file(fds[j]); err != nil {
				return nil, err
			}
		}
		out = append(out, unix.UnixRights(fds...)...)
	}
	return out, nil
}

// asksOnly refuses all of netlink but questions: this process may have privileges to change routes
// that the command has not.
func asksOnly(p []byte) error {
	for len(p) > 0 {
		if len(p) < unix.SizeofNlMsghdr {
			return unix.EINVAL
		}
		length, kind := binary.LittleEndian.Uint32(p), binary.LittleEndian.Uint16(p[4:])
		if length < unix.SizeofNlMsghdr || uint64(length) > uint64(len(p)) || kind < unix.RTM_BASE ||
			kind&3 != 2 {
			return unix.EACCES
		}
		p = p[min(len(p), int(length+3)&^3):]
	}
	return nil
}
