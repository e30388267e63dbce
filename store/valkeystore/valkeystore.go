// Package valkeystore answers one question: how do several processes share a store.Store over
// Valkey?
//
// Redis from version 7.0 on serves as well. Each operation is one script, which the server runs at
// once, so there is an order of all operations. What is promised holds as long as one server has
// the data:
//
//   - Replication does not wait: after a failover the last records, sums and work may be lost. So
//     they may after a crash of the server, unless it has appendfsync always.
//   - Claims need neither: a server that has started, or has become the primary, begins to remember
//     then, and Since says so.
//   - The server must not evict keys: Open looks.
package valkeystore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

const defaultSize = 256 << 20

// Options adjust a store. The zero value, and nil, mean the defaults.
type Options struct {
	// Name tells several stores of one server apart: letters, digits, - and _. Default "farcall".
	Name string
	// Skew is by how much the clocks of the processes may differ. Claims and sums are kept longer
	// by it. Default 1 minute.
	Skew time.Duration
	// Lease is how long a worker keeps an item without a sign of life. Default 30 s.
	Lease time.Duration
	// MaxRecords and MaxWork bound records and work, in bytes. Default 256 MiB. Claims and sums
	// have the memory of the server.
	MaxRecords, MaxWork int64
	// Logger has what happens to the connection. Default [slog.Default].
	Logger *slog.Logger
}

// A Store is a store.Store over a server.
type Store struct {
	opts    Options
	process process.Process[*bus]
	client  *redis.Client

	mu    sync.Mutex
	birth string // that this process relies on
}

var _ store.Store = (*Store)(nil)

var errRebuilt = errors.New("valkeystore: " +
	"the server has started since this process saw it last; this claim is refused")

// Open connects to a server at a URL: redis://, rediss:// or unix://.
func Open(ctx context.Context, url string, o *Options) (*Store, error) {
	o = cmp.Or(o, &Options{})
	s := &Store{opts: *o}
	s.opts.MaxRecords = cmp.Or(o.MaxRecords, defaultSize)
	s.opts.MaxWork = cmp.Or(o.MaxWork, defaultSize)
	s.process.Name, s.process.Skew, s.process.Lease = o.Name, o.Skew, o.Lease
	s.process.Logger = o.Logger
	if err := s.process.Open(ctx, "valkeystore"); err != nil {
		return nil, err
	}
	parsed, err := redis.ParseURL(url)
	if err != nil {
		s.process.Close()
		return nil, fmt.Errorf("valkeystore: %w", err)
	}
	parsed.MaxRetries = -1 // an operation that was sent must not be sent again
	parsed.DialerRetries = 1
	parsed.ContextTimeoutEnabled = true
	parsed.OnConnect = s.connected
	s.client = redis.NewClient(parsed)
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// begin looks at the server, and announces this process to the others.
func (s *Store) begin(ctx context.Context) error {
	ctx, end := s.process.Bound(ctx)
	defer end()
	memory, err := s.client.Info(ctx, "memory").Result()
	if err != nil {
		return s.failed(err)
	}
	if policy := field(memory, "maxmemory_policy"); policy != "noeviction" {
		return fmt.Errorf("valkeystore: the server has maxmemory-policy %q and would drop claims: "+
			"set it to noeviction", policy)
	}
	if err := s.relearn(ctx); err != nil {
		return err
	}
	return s.process.Announce(ctx, s.present)
}

// field returns a line of what INFO answered.
func field(info, name string) string {
	for line := range strings.Lines(info) {
		if k, v, _ := strings.Cut(strings.TrimSpace(line), ":"); k == name {
			return v
		}
	}
	return ""
}

// connected runs on each new connection, before it is used. A server with another run id has
// started since, or is another one, and may have lost claims: it begins to remember now.
func (s *Store) connected(ctx context.Context, c *redis.Conn) error {
	info, err := c.Info(ctx, "server").Result()
	if err != nil {
		return err
	}
	run := field(info, "run_id")
	if run == "" {
		return errors.New("valkeystore: the server does not tell its run_id")
	}
	return born.Eval(ctx, c, []string{s.key("birth")}, run, rand.Text()).Err()
}

// relearn takes the birth that the server has now for the one to rely on.
func (s *Store) relearn(ctx context.Context) error {
	b, err := s.client.Get(ctx, s.key("birth")).Result()
	if err != nil {
		return s.failed(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.birth = b
	return nil
}

// Close implements [store.Store].
func (s *Store) Close() error {
	if !s.process.Close() {
		return nil
	}
	return s.client.Close()
}

// key returns a key of the server. All of a store are in one slot of a cluster.
func (s *Store) key(rest string) string { return "{" + s.process.Name + "}:" + rest }

// keep returns for how many milliseconds the server keeps something, for any clock.
func (s *Store) keep(until time.Time) int64 {
	return max((time.Until(until)+s.process.Skew).Milliseconds()+1, 1)
}

// run runs a script with one or several keys.
func (s *Store) run(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (any, error) {
	if s.process.Closed() {
		return nil, store.ErrClosed
	}
	ctx, end := s.process.Bound(ctx)
	defer end()
	v, err := script.Run(ctx, s.client, keys, args...).Result()
	return v, s.failed(err)
}

// number runs a script that returns a number.
func (s *Store) number(
	ctx context.Context, script *redis.Script, keys []string, args ...any,
) (int64, error) {
	v, err := s.run(ctx, script, keys, args...)
	if err != nil {
		return 0, err
	}
	n, is := v.(int64)
	if !is {
		return 0, fmt.Errorf("valkeystore: the server answered %T for a number", v)
	}
	return n, nil
}

// failed says what an error of the server means for a store.
func (s *Store) failed(err error) error {
	var dial *net.OpError
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return err
	case s.process.Closed(), errors.Is(err, redis.ErrClosed):
		return store.ErrClosed
	case errors.As(err, &dial) && dial.Op == "dial", errors.Is(err, redis.ErrPoolTimeout),
		refused(err, "LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY"):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case refused(err, "OOM"):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	return fmt.Errorf("valkeystore: %w", err)
}

// refused reports whether the server answered with one of these errors, and did nothing.
func refused(err error, prefixes ...string) bool {
	answer, is := errors.AsType[redis.Error](err)
	begins := func(p string) bool { return strings.HasPrefix(answer.Error(), p) }
	return is && slices.ContainsFunc(prefixes, begins)
}

// milliseconds reads the time of a birth: RUN:RANDOM:MILLISECONDS.
func milliseconds(birth string) (time.Time, error) {
	ms, err := strconv.ParseInt(birth[strings.LastIndexByte(birth, ':')+1:], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("valkeystore: the birth %q has no time", birth)
	}
	return time.UnixMilli(ms), nil
}
