package port

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/farcall-dev/farcall/internal/npipe"
)

// A Scheme is a kind of address to listen on, other than host:port: a row of the table. Other
// machines cannot reach it, unless it has a Queue.
type Scheme struct {
	Name    string // stands before the colon of an address
	Network string // of the addresses of its listeners and connections
	Part    string // what follows the colon: "path"
	Example string // an address, for errors
	Listen  func(ctx context.Context, part string) (net.Listener, error)
	Prefix  string // of the text of its net.Addr that is not in an address; "" for most
	// Queue: the part is //HOST/SUBJECT, of a message queue, which has no listener. Secure: the
	// connection to it is encrypted.
	Queue, Secure bool
}

// A Table has all schemes.
type Table []*Scheme

// Schemes returns those of farcall.
func Schemes() Table {
	return Table{
		{
			Name: "unix", Network: "unix", Part: "path", Example: "unix:/tmp/farcall.sock",
			Listen: listenSocket,
		},
		{
			Name: "npipe", Network: npipe.Network, Part: "name", Example: "npipe:farcall",
			Prefix: npipe.Prefix,
			Listen: func(_ context.Context, name string) (net.Listener, error) { return npipe.Listen(name) },
		},
		{
			Name: "nats", Queue: true, Part: "subject", Example: "nats://localhost:4222/SUBJECT",
			Listen: listenQueue,
		},
		{
			Name: "nats+tls", Queue: true, Secure: true, Part: "subject", Example: "nats+tls://HOST/SUBJECT",
			Listen: listenQueue,
		},
	}
}

// listenQueue fails: a queue gives requests, no connections.
func listenQueue(context.Context, string) (net.Listener, error) {
	return nil, errors.New("a message queue has no listener; natsrpc.Listen serves it")
}

// AddressError reports an address that nothing can listen on.
type AddressError struct {
	Address string
	Why     string // "has no host"
	Instead string // what to write instead
	Err     error  // may be nil
}

// Error implements error.
func (e *AddressError) Error() string { return fmt.Sprintf("the address %q %s", e.Address, e.Why) }

// Unwrap returns the cause, if any.
func (e *AddressError) Unwrap() error { return e.Err }

// split returns the row of an address and what follows its colon; nil: the address is host:port.
func (t Table) split(addr string) (s *Scheme, part string) {
	name, part, found := strings.Cut(addr, ":")
	for _, s := range t {
		if found && s.Name == name {
			return s, part
		}
	}
	return nil, addr
}

// network returns the row with a network, or nil.
func (t Table) network(name string) *Scheme {
	for _, s := range t {
		if s.Network == name {
			return s
		}
	}
	return nil
}

// Check returns an *[AddressError] for an address that cannot be read.
func (t Table) Check(addr string) error {
	if s, part := t.split(addr); s != nil {
		host, subject, _ := strings.Cut(strings.TrimPrefix(part, "//"), "/")
		if part == "" ||
			s.Queue && (host == "" || subject == "" || strings.ContainsAny(subject, "/*> ")) {
			return &AddressError{Address: addr, Why: "has no " + s.Part, Instead: s.Example}
		}
		return nil
	}
	if _, rest, found := strings.Cut(addr, "://"); found {
		return &AddressError{
			Address: addr, Why: "has a scheme, and one port speaks every protocol",
			Instead: strings.TrimRight(rest, "/"),
		}
	}
	const instead = "host:port, :port for every interface, 127.0.0.1:0 for any free port, or unix:PATH"
	_, number, err := net.SplitHostPort(addr)
	if err != nil {
		if _, numeric := strconv.Atoi(addr); numeric == nil {
			return &AddressError{Address: addr, Why: "has no host", Instead: "127.0.0.1:" + addr}
		}
		if a := (*net.AddrError)(nil); errors.As(err, &a) {
			err = errors.New(a.Err)
		}
		return &AddressError{
			Address: addr, Why: "cannot be read: " + err.Error(), Instead: instead,
			Err: err,
		}
	}
	if _, err := strconv.ParseUint(number, 10, 16); err != nil {
		return &AddressError{
			Address: addr, Why: "has a bad port; ports go from 0 to 65535",
			Instead: instead,
		}
	}
	return nil
}

// Listen opens host:port, or an address of a scheme: unix:PATH, or npipe:NAME on Windows. Port 0 is
// any free one.
func (t Table) Listen(ctx context.Context, addr string) (net.Listener, error) {
	open, part := listenTCP, addr
	if s, rest := t.split(addr); s != nil {
		open, part = s.Listen, rest
	}
	l, err := open(ctx, part)
	if err != nil {
		return nil, fmt.Errorf("port: listen on %s: %w", addr, err)
	}
	return l, nil
}

// Listen is [Table.Listen] of [Schemes].
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	return Schemes().Listen(ctx, addr)
}

// Reachable reports whether other machines can connect to an address as Listen takes it: all but
// those of a scheme, loopback addresses and localhost. What reaches an engine reaches its subjects.
func (t Table) Reachable(addr string) bool {
	if s, _ := t.split(addr); s != nil {
		return s.Queue // any client of its engine reaches it
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.Unmap().IsLoopback()
	}
	return !strings.EqualFold(strings.TrimSuffix(host, "."), "localhost")
}

// Secure reports whether what arrives at an address is encrypted, or stays on this machine,
// whatever a server does.
func (t Table) Secure(addr string) bool {
	s, part := t.split(addr)
	if s == nil || s.Secure || !s.Queue {
		return s != nil && s.Secure
	}
	u, err := url.Parse(s.Name + ":" + part)
	return err == nil && !t.Reachable(net.JoinHostPort(u.Hostname(), "4222"))
}

// Redacted is an address without the password for the engine of a message queue.
func Redacted(addr string) string {
	if u, err := url.Parse(addr); err == nil && IsQueue(addr) {
		return u.Redacted()
	}
	return addr
}

// IsQueue reports whether an address is the subject of a message queue.
func IsQueue(addr string) bool {
	s, _ := Schemes().split(addr)
	return s != nil && s.Queue
}

// Reachable is [Table.Reachable] of [Schemes].
func Reachable(addr string) bool { return Schemes().Reachable(addr) }

// Text returns the address of a listener as Listen takes it.
func (t Table) Text(addr net.Addr) string {
	if s := t.network(addr.Network()); s != nil {
		return s.Name + ":" + strings.TrimPrefix(addr.String(), s.Prefix)
	}
	return addr.String()
}

// ArrivedAt reports whether a connection came over a listener, by their addresses at this end.
func ArrivedAt(listener, at net.Addr) bool {
	open, ok := listener.(*net.TCPAddr)
	conn, too := at.(*net.TCPAddr)
	if !ok || !too {
		return at != nil && listener.Network() == at.Network() && listener.String() == at.String()
	}
	return open.Port == conn.Port && (open.IP.IsUnspecified() || open.IP.Equal(conn.IP))
}

// Local reports whether an address of a network is one of this machine: of a scheme, or a loopback
// address.
func (t Table) Local(addr net.Addr) bool {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return tcp.IP.IsLoopback()
	}
	return addr != nil && t.network(addr.Network()) != nil
}

// IsHost reports whether an address is host:port, and has no scheme.
func IsHost(addr string) bool {
	s, _ := Schemes().split(addr)
	return s == nil
}

// listenTCP opens host:port. An IPv4 address is that of IPv4 only, so 0.0.0.0:PORT leaves IPv6
// alone; :PORT and [::]:PORT are every interface in both.
func listenTCP(ctx context.Context, addr string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, family(addr), addr)
}

// family is the network of an address. For package net 0.0.0.0 is IPv6 as well.
func family(addr string) string {
	host, _, _ := net.SplitHostPort(addr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
		return "tcp4"
	}
	return "tcp"
}

// listenSocket opens a unix socket that only its owner can use, and that Close removes. A socket
// file that a dead process has left is replaced; a file that is no socket, or a socket that another
// process serves, is an error.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	l, err := listenUnix(ctx, path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	return listenUnix(ctx, path)
}

func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	config := net.ListenConfig{Control: ownerOnly}
	l, err := config.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(path, "@") { // the abstract names of linux are no files
		if err := os.Chmod(path, 0o600); err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// removeStale removes the socket file of a process that has died.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return errors.New("a file of that name exists, and it is no socket; choose another path")
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		conn.Close()
		return errors.New("another process answers there; stop it, or choose another path")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
