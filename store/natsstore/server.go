package natsstore

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	serverMemory = 128 << 20
	serverDisk   = 1 << 30
	// maxPayload bounds a record, an item and a message.
	maxPayload = 8 << 20
	// maxConn bounds the connections of clients: this process, and such as try to be one.
	maxConn = 64
	// startTimeout bounds the start of an engine alone. One of a cluster also waits for the others.
	startTimeout = 10 * time.Second
)

// ServerOptions adjust an engine. The zero value, and nil, mean the defaults.
type ServerOptions struct {
	// MaxMemory and MaxDisk bound what the engine keeps, in bytes. Default 128 MiB and 1 GiB.
	MaxMemory, MaxDisk int64
	// Name is that of the engine in its cluster, unique and the same after each start. Required
	// where there is Listen.
	Name string
	// Listen is the address at which the other engines of the cluster connect, and Peers are
	// theirs, HOST:PORT. "": the engine is alone, and listens nowhere. The first time, all engines of
	// a cluster have to be there: without data they elect no leader. Later most of them are enough.
	Listen string
	Peers  []string
	// TLS authenticates both ends of connections between engines. Required, unless Listen is an
	// address of this machine.
	TLS *tls.Config
	// Logger has what the engine reports. Default [slog.Default].
	Logger *slog.Logger
}

// A Server is a NATS server with JetStream in this process. It writes each change of records, sums
// and work to the disk before it acknowledges it.
type Server struct {
	ns    *server.Server
	token string // of clients; "": the engine listens nowhere
	size  int    // engines of the cluster
	close sync.Once
}

// StartServer starts an engine that keeps its files in a directory. One process at a time may use
// it.
func StartServer(dir string, o *ServerOptions) (*Server, error) {
	o = cmp.Or(o, &ServerOptions{})
	opts := &server.Options{
		ServerName:         cmp.Or(o.Name, "farcall"),
		DontListen:         true,
		JetStream:          true,
		StoreDir:           dir,
		JetStreamMaxMemory: cmp.Or(o.MaxMemory, serverMemory),
		JetStreamMaxStore:  cmp.Or(o.MaxDisk, serverDisk),
		MaxPayload:         maxPayload,
		MaxPending:         4 * maxPayload,
		SyncAlways:         true, // without it the last two minutes are lost with the power
		NoSigs:             true,
	}
	if o.Listen != "" {
		if err := clustered(opts, o); err != nil {
			return nil, err
		}
	}
	all := slices.Sorted(slices.Values(append([]string{o.Listen}, o.Peers...)))
	s := &Server{token: opts.Authorization, size: len(slices.Compact(all))}
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("natsstore: start the engine in %s: %w", dir, err)
	}
	ns.SetLoggerV2(engineLog{cmp.Or(o.Logger, slog.Default())}, false, false, false)
	ns.Start()
	s.ns = ns
	if !ns.ReadyForConnections(startTimeout) || !ns.JetStreamEnabled() {
		s.Close()
		return nil, fmt.Errorf("natsstore: the engine in %s was not ready within %v: see its log",
			dir, startTimeout)
	}
	return s, nil
}

func clustered(opts *server.Options, o *ServerOptions) error {
	host, text, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return fmt.Errorf("natsstore: Listen %q: %w", o.Listen, err)
	}
	port, err := strconv.Atoi(text)
	switch ip := net.ParseIP(host); {
	case err != nil || port < 1 || port > 65535:
		return fmt.Errorf("natsstore: Listen %q: the port must be a number from 1 to 65535", o.Listen)
	case o.Name == "":
		return errors.New("natsstore: an engine of a cluster needs a Name that stays the same")
	case o.TLS == nil && (ip == nil || !ip.IsLoopback()):
		return fmt.Errorf("natsstore: Listen %q is reachable from other machines: TLS is required",
			o.Listen)
	}
	// An engine without a listener for clients starts no routes: it has one on this machine, which
	// asks for a secret.
	opts.DontListen, opts.Host, opts.Port = false, "127.0.0.1", server.RANDOM_PORT
	opts.Authorization, opts.MaxConn = rand.Text(), maxConn
	opts.Cluster = server.ClusterOpts{
		Name: "farcall", Host: host, Port: port, TLSConfig: o.TLS, TLSTimeout: 5,
	}
	for _, peer := range o.Peers {
		u, err := url.Parse("nats-route://" + peer)
		if err != nil || u.Port() == "" {
			return fmt.Errorf("natsstore: peer %q must be HOST:PORT", peer)
		}
		opts.Routes = append(opts.Routes, u)
	}
	return nil
}

// Peers returns how many other engines of the cluster are connected.
func (s *Server) Peers() int { return s.ns.NumRemotes() }

// Close stops the engine and waits until its files are closed.
func (s *Server) Close() {
	s.close.Do(func() {
		s.ns.Shutdown()
		s.ns.WaitForShutdown()
	})
}

// engineLog takes the log of the engine.
type engineLog struct{ *slog.Logger }

func text(format string, v []any) string { return "engine: " + fmt.Sprintf(format, v...) }

// Noticef logs the start of subsystems and the like, as details.
func (l engineLog) Noticef(format string, v ...any) { l.Debug(text(format, v)) }

func (l engineLog) Warnf(format string, v ...any)  { l.Warn(text(format, v)) }
func (l engineLog) Fatalf(format string, v ...any) { l.Error(text(format, v)) }
func (l engineLog) Errorf(format string, v ...any) { l.Error(text(format, v)) }
func (l engineLog) Debugf(format string, v ...any) { l.Debug(text(format, v)) }
func (l engineLog) Tracef(format string, v ...any) { l.Debug(text(format, v)) }
