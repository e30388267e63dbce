//go:build linux && (amd64 || arm64)

package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// connectAttempts reach an address in each way that there is.
var connectAttempts = map[string]func(args []string) error{
	"udp connected": func(a []string) error {
		return datagram(a[0], func(fd int, to unix.Sockaddr) error { return unix.Connect(fd, to) })
	},
	"udp sendto": func(a []string) error {
		return datagram(a[0], func(fd int, to unix.Sockaddr) error {
			return unix.Sendto(fd, []byte("x"), 0, to)
		})
	},
	"udp sendmsg": func(a []string) error {
		return datagram(a[0], func(fd int, to unix.Sockaddr) error {
			return unix.Sendmsg(fd, []byte("x"), nil, to, 0)
		})
	},
	"udp sendmmsg": func(a []string) error { return datagram(a[0], sendmmsg) },
	"udp, connected elsewhere": func(a []string) error { // PERMITTED WANTED
		return datagram(a[0], func(fd int, to unix.Sockaddr) error {
			if err := unix.Connect(fd, to); err != nil {
				return fmt.Errorf("what is permitted: %w", err)
			}
			return datagram(a[1], func(_ int, to unix.Sockaddr) error {
				return unix.Sendto(fd, []byte("x"), 0, to)
			})
		})
	},
	"reconnect": func(a []string) error { // PERMITTED WANTED
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Connect(fd, sockaddr(a[0])); err != nil {
			return fmt.Errorf("what is permitted: %w", err)
		}
		unspecified := make([]byte, unix.SizeofSockaddrInet4)
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd),
			uintptr(unsafe.Pointer(&unspecified[0])), uintptr(len(unspecified)))
		if errno != 0 {
			return fmt.Errorf("end the connection: %w", errno)
		}
		return unix.Connect(fd, sockaddr(a[1]))
	},
	"mapped": func(a []string) error {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		to := netip.MustParseAddrPort(a[0])
		return unix.Connect(fd,
			&unix.SockaddrInet6{Port: int(to.Port()), Addr: netip.AddrFrom16(to.Addr().As16()).As16()})
	},
	"source route": func([]string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.SetsockoptString(fd, unix.SOL_IP, unix.IP_OPTIONS, "\x83\x07\x04\x7f\x00\x00\x01\x00")
	},
	"swap the address": swapAddress,
	"hosts": func(a []string) error { // as a program that looks names up
		c, err := net.Dial("tcp", a[0])
		if err == nil {
			err = c.Close()
		}
		return err
	},
}

func sockaddr(text string) unix.Sockaddr {
	to := netip.MustParseAddrPort(text)
	if to.Addr().Is6() {
		return &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	}
	return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
}

func datagram(to string, do func(fd int, to unix.Sockaddr) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	return do(fd, sockaddr(to))
}

func rawSockaddr(to *unix.SockaddrInet4) []byte {
	raw := binary.LittleEndian.AppendUint16(nil, unix.AF_INET)
	raw = binary.BigEndian.AppendUint16(raw, uint16(to.Port))
	return append(append(raw, to.Addr[:]...), make([]byte, 8)...)
}

// sendmmsg sends one message.
func sendmmsg(fd int, to unix.Sockaddr) error {
	name, text := rawSockaddr(to.(*unix.SockaddrInet4)), []byte("x")
	iov := unix.Iovec{Base: &text[0], Len: 1}
	m := struct {
		unix.Msghdr
		length uint32
		_      uint32
	}{Msghdr: unix.Msghdr{Name: &name[0], Namelen: uint32(len(name)), Iov: &iov, Iovlen: 1}}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)),
		1, 0, 0, 0)
	runtime.KeepAlive(&iov)
	if errno != 0 {
		return errno
	}
	if n != 1 || m.length != 1 {
		return fmt.Errorf("%d messages, %d bytes", n, m.length)
	}
	return nil
}

// swapAddress changes the address while the system call is looked at: PERMITTED WANTED.
func swapAddress(a []string) error {
	permitted, wanted := sockaddr(a[0]).(*unix.SockaddrInet4), sockaddr(a[1]).(*unix.SockaddrInet4)
	raw := rawSockaddr(permitted)
	port := (*uint16)(unsafe.Pointer(&raw[2]))
	var done atomic.Bool
	swapped := make(chan struct{})
	go func() {
		defer close(swapped)
		for !done.Load() {
			*port = uint16(wanted.Port)<<8 | uint16(wanted.Port)>>8
			*port = uint16(permitted.Port)<<8 | uint16(permitted.Port)>>8
		}
	}()
	var worked int
	for range 3000 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&raw[0])),
			uintptr(len(raw)))
		if peer, err := unix.Getpeername(fd); errno == 0 && err == nil &&
			peer.(*unix.SockaddrInet4).Port == wanted.Port {
			worked++
		}
		_ = unix.Close(fd)
	}
	done.Store(true)
	<-swapped
	if worked == 0 {
		return errors.New("never")
	}
	return nil
}

// TestEgress: what is not named is not reached, in whichever way; what is named is.
func TestEgress(t *testing.T) {
	needs(t, &Rules{Network: []string{"all"}})
	w := newWorld(t)
	other := answers(t, "tcp", "127.0.0.1:0")
	const meta = "169.254.169.254:80"
	for _, c := range []struct {
		network, never []string
		try            []string
		want           string // "" when it works
	}{
		{[]string{"443", "53"}, nil, []string{"tcp", w.tcp}, "permission denied"},
		{[]string{"80"}, nil, []string{"tcp", meta}, "permission denied"},
		{[]string{"80"}, nil, []string{"tcp", "[fe80::1]:80"}, "permission denied"},
		{[]string{"all"}, nil, []string{"tcp", meta}, "permission denied"},
		{[]string{"all"}, nil, []string{"mapped", meta}, "permission denied"},
		{[]string{"all"}, nil, []string{"udp connected", meta}, "permission denied"},
		{[]string{"all"}, nil, []string{"udp sendto", meta}, "permission denied"},
		{[]string{"all"}, nil, []string{"udp sendmsg", meta}, "permission denied"},
		{[]string{"all"}, nil, []string{"udp sendmmsg", meta}, "permission denied"},
		{[]string{"all"}, nil, []string{"udp, connected elsewhere", w.udp, meta}, "permission denied"},
		{[]string{"all"}, nil, []string{"source route"}, "permission denied"},
		{[]string{"all"}, nil, []string{"io_uring"}, "not implemented"},
		{[]string{"all"}, []string{w.tcp}, []string{"tcp", w.tcp}, "permission denied"},
		{[]string{"all"}, []string{w.tcp}, []string{"mapped", w.tcp}, "permission denied"},
		{[]string{"all"}, []string{w.udp}, []string{"udp sendto", w.udp}, "permission denied"},
		{[]string{w.tcp, other}, []string{w.tcp}, []string{"tcp", w.tcp}, "permission denied"},
		{[]string{w.tcp}, nil, []string{"reconnect", w.tcp, other}, "permission denied"},
		{[]string{w.tcp}, nil, []string{"swap the address", w.tcp, other}, "never"},
		{[]string{w.tcp}, nil, []string{"udp socket"}, "permission denied"},
		{[]string{w.tcp}, nil, []string{"tcp", w.tcp}, ""},
		{[]string{w.tcp}, nil, []string{"mapped", w.tcp}, ""},
		{[]string{w.tcp, other}, nil, []string{"reconnect", w.tcp, other}, ""},
		{[]string{"localhost:*"}, nil, []string{"hosts", "localhost:" + port(w.tcp)}, ""},
		{[]string{"all"}, nil, []string{"udp connected", w.udp}, ""},
		{[]string{"all"}, nil, []string{"udp sendto", w.udp}, ""},
		{[]string{"all"}, nil, []string{"udp sendmsg", w.udp}, ""},
		{[]string{"all"}, nil, []string{"udp sendmmsg", w.udp}, ""},
	} {
		t.Run(strings.Join(c.network, " ")+" "+strings.Join(c.try, " "), func(t *testing.T) {
			got := launch(t,
				confined(t, &Rules{Network: c.network, Never: c.never},
					append([]string{self, "hostile"}, c.try...)...))
			if c.want == "" && got.code != 0 ||
				c.want != "" && (got.code != 1 || !strings.Contains(got.out, c.want) ||
					strings.Contains(got.out, "what is permitted")) {
				t.Errorf("%v, wanted %q", got, c.want)
			}
		})
	}
	if got := launch(t, bounded(t, self, "hostile", "swap the address", w.tcp, other)); got.code != 0 {
		t.Error("outside, the address can be swapped:", got)
	}
}

func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

// TestRuntimesConnect: programs with their own runtimes connect, pass descriptors and list
// interfaces.
func TestRuntimesConnect(t *testing.T) {
	w := newWorld(t)
	r := &Rules{Network: []string{"all"}}
	needs(t, r)
	to := port(w.tcp)
	for _, c := range []struct{ program, flag, script, want string }{
		{
			"node", "-e",
			`require('net').connect(` + to +
				`, '127.0.0.1').on('data', d => console.log(String(d), ` +
				`Object.keys(require('os').networkInterfaces()).includes('lo')))`, "ok true\n",
		},
		{"python3", "-c", `import socket, array, os
s = socket.create_connection(('127.0.0.1', ` + to + `)); print(s.recv(2).decode())
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); print(u.sendmsg([b'a', b'b'], [], 0, ('127.0.0.1', ` + port(w.udp) + `)))
a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [1]); print(len(socket.recv_fds(b, 1, 1)[1]))`, "ok\n2\n1\n"},
	} {
		t.Run(c.program, func(t *testing.T) {
			program := tool(t, c.program)
			if got := launch(t, confined(t, r, program, c.flag, c.script)); got.code != 0 ||
				got.out != c.want {
				t.Error(got)
			}
		})
	}
}

// TestAsksOnly: of netlink only questions are sent.
func TestAsksOnly(t *testing.T) {
	message := func(length uint32, kind uint16, rest ...byte) []byte {
		p := binary.LittleEndian.AppendUint32(nil, length)
		p = binary.LittleEndian.AppendUint16(p, kind)
		return append(append(p, make([]byte, 10)...), rest...)
	}
	get, set := message(16, unix.RTM_GETLINK), message(16, unix.RTM_NEWROUTE)
	for _, c := range []struct {
		p  []byte
		ok bool
	}{
		{get, true},
		{append(append([]byte{}, get...), get...), true},
		{message(17, unix.RTM_GETADDR, 0, 0, 0, 0), true},
		{set, false},
		{append(append([]byte{}, get...), set...), false},
		{message(0, unix.RTM_GETLINK), false},
		{message(100, unix.RTM_GETLINK), false},
		{get[:8], false},
		{message(16, 2), false},
	} {
		if err := asksOnly(c.p); (err == nil) != c.ok {
			t.Errorf("%x: %v", c.p, err)
		}
	}
}

func FuzzSockaddr(f *testing.F) {
	f.Add(rawSockaddr(&unix.SockaddrInet4{Port: 80, Addr: [4]byte{127, 0, 0, 1}}))
	f.Add([]byte{10, 0})
	f.Fuzz(func(t *testing.T, raw []byte) {
		to, sa := parseSockaddr(raw)
		if (sa != nil) != to.IsValid() {
			t.Errorf("%x: %v %v", raw, to, sa)
		}
		_ = asksOnly(raw)
		_ = harmless(raw)
	})
}
