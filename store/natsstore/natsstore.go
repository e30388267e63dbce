// Package natsstore answers one question: how do several processes share a store.Store over NATS?
//
// The engine is NATS JetStream: one in this process ([StartServer]), which listens nowhere unless
// it has peers, or a server that is there already. Its settings follow from what is promised:
//
//   - Claims are in memory, on all replicas. They need no disk: a store that has lost them begins
//     later, and Since says so. Each Claim looks, after it was stored, whether the store is still
//     the one that this process knows.
//   - Records, sums and work are in files. [StartServer] syncs each write. At a server that is
//     there already, what was acknowledged before a loss of power of most replicas may be lost
//     unless it has sync_interval: always; a process that is killed loses nothing.
//   - Each decision is a write with the revision that it replaces. Reads are answered by the leader
//     of a stream: direct reads, which may be stale, are off.
//   - Four streams, each with a limit of bytes, and one watcher for each process.
package natsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/farcall-dev/farcall/store"
	"github.com/farcall-dev/farcall/store/internal/process"
)

const (
	defaultSize  = 32 << 20  // of claims, and of sums
	defaultLarge = 256 << 20 // of records, and of work

	attempt      = 2 * time.Second
	retryWait    = 100 * time.Millisecond
	conflictWait = 2 * time.Millisecond
	retries      = 20               // while a stream has no leader
	leaderless   = 20 * time.Second // after which a stream will have none: two elections
)

// Options adjust a store. The zero value, and nil, mean the defaults.
type Options struct {
	// Server is an engine of this process to use in place of a URL.
	Server *Server
	// Name tells several stores of one engine apart: letters, digits, - and _. Default "farcall".
	Name string
	// Replicas is how many engines keep each change: 1, 3 or 5. Default 1.
	Replicas int
	// Skew is by how much the clocks of the processes may differ. Claims and sums are kept longer
	// by it. Default 1 minute.
	Skew time.Duration
	// Lease is how long a worker keeps an item without a sign of life. Default 30 s.
	Lease time.Duration
	// MaxClaims and MaxSums bound the memory of claims and the disk of sums, in bytes: default 32
	// MiB, some 100,000 keys. MaxRecords and MaxWork bound records and work: default 256 MiB.
	MaxClaims, MaxSums, MaxRecords, MaxWork int64
	// Connect are further options of the connection: credentials, TLS.
	Connect []nats.Option
	// Logger has what happens to the connection. Default [slog.Default].
	Logger *slog.Logger

	// leaderless is after how long without a leader claims begin again. Default 20 s; a test cannot
	// wait so long.
	leaderless time.Duration
}

// A Store is a store.Store over an engine.
type Store struct {
	opts    Options
	process process.Process[*bus]
	nc      *nats.Conn
	js      jetstream.JetStream
	streams [4]jetstream.Stream
	shares  *shares

	mu    sync.Mutex
	birth *birth
	pulls map[string]jetstream.Consumer // by the name of a queue
}

var _ store.Store = (*Store)(nil)

// The streams.
const (
	claims = iota
	sums
	records
	work
)

var (
	streamOf   = [...]string{"once", "sums", "records", "work"}
	errRebuilt = errors.New(
		"natsstore: the store has lost its claims since this process saw it last; this one is refused")
)

// Open connects to an engine, at a URL as nats.Connect takes it, and makes the streams that are not
// there. It waits for a quorum until ctx ends.
func Open(ctx context.Context, url string, o *Options) (*Store, error) {
	o = cmp.Or(o, &Options{})
	s := &Store{opts: *o, pulls: map[string]jetstream.Consumer{}}
	s.opts.Replicas = cmp.Or(o.Replicas, 1)
	s.opts.leaderless = cmp.Or(o.leaderless, leaderless)
	s.process.Name, s.process.Skew, s.process.Lease = o.Name, o.Skew, o.Lease
	s.process.Logger = o.Logger
	if err := s.process.Open(ctx, "natsstore"); err != nil {
		return nil, err
	}
	if err := s.connect(url); err != nil {
		s.process.Close()
		return nil, err
	}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Store) connect(url string) error {
	opts := []nats.Option{
		nats.Name(s.process.Name + " " + s.process.ID),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(retryWait),
		nats.ReconnectJitter(retryWait, retryWait),
		nats.ReconnectBufSize(-1), // what cannot be sent now must not be sent later
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				s.process.Logger.Warn("store: the connection to the engine ended; it is made again",
					slog.Any("error", err))
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { s.process.Tell((*bus).gap) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			if !errors.Is(err, nats.ErrSlowConsumer) { // a gap, which its subscriber sees
				s.process.Logger.Warn("store: the engine reports an error", slog.Any("error", err))
			}
		}),
	}
	if s.opts.Server != nil {
		opts = append(opts, nats.InProcessServer(s.opts.Server.ns))
		if s.opts.Server.token != "" {
			opts = append(opts, nats.Token(s.opts.Server.token))
		}
	}
	nc, err := nats.Connect(url, append(opts, s.opts.Connect...)...)
	if err != nil {
		return fmt.Errorf("natsstore: connect: %w", err)
	}
	s.nc = nc
	s.js, err = jetstream.New(nc, jetstream.WithDefaultTimeout(process.OperationTimeout))
	if err != nil {
		nc.Close()
	}
	return err
}

// begin makes the streams, and tells other processes that this one is there.
func (s *Store) begin(ctx context.Context) error {
	for kind := range s.streams {
		stream, err := s.stream(ctx, kind)
		if err != nil {
			return err
		}
		s.streams[kind] = stream
	}
	if _, err := s.born(ctx, true); err != nil {
		return err
	}
	var err error
	if s.shares, err = s.watch(ctx); err != nil {
		return err
	}
	return s.process.Announce(ctx, s.present)
}

// stream makes a stream, or adjusts the one that is there.
func (s *Store) stream(ctx context.Context, kind int) (jetstream.Stream, error) {
	c := jetstream.StreamConfig{
		Name:       s.process.Name + "-" + streamOf[kind],
		Subjects:   []string{s.subject(kind, ">")},
		Storage:    jetstream.FileStorage,
		Discard:    jetstream.DiscardNew,
		Replicas:   s.opts.Replicas,
		Duplicates: 100 * time.Millisecond, // ids of messages are not used
		MaxBytes: [...]int64{
			cmp.Or(s.opts.MaxClaims, defaultSize), cmp.Or(s.opts.MaxSums, defaultSize),
			cmp.Or(s.opts.MaxRecords, defaultLarge), cmp.Or(s.opts.MaxWork, defaultLarge),
		}[kind],
	}
	switch kind {
	case work:
		c.Retention = jetstream.WorkQueuePolicy
	case claims:
		c.Storage = jetstream.MemoryStorage
		fallthrough
	default:
		c.MaxMsgsPerSubject, c.AllowMsgTTL = 1, true
	}
	var reason error
	for began := time.Now(); ; {
		// Without a leader the engines do not answer: ask again.
		try, end := context.WithTimeout(ctx, attempt)
		stream, err := s.js.CreateOrUpdateStream(try, c)
		end()
		if err == nil {
			return stream, nil
		}
		if reason == nil || !errors.Is(err, context.DeadlineExceeded) {
			reason = err
		}
		code, refused := apiError(err)
		if refused && !unavailable(err) {
			return nil, fmt.Errorf("natsstore: stream %s: %w", c.Name, err)
		}
		// Where each engine is a replica, those that are there are a quorum without the missing one.
		whole := s.opts.Server != nil && s.opts.Server.size <= s.opts.Replicas
		switch age := time.Since(began); {
		case kind != claims || !whole:
		case code == codeNoPeers && age > s.opts.leaderless/4:
			c.Replicas = s.opts.Server.size/2 + 1 // those that come later raise it again
		case age > s.opts.leaderless:
			began = time.Now()
			s.rebuild(ctx, c.Name)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("natsstore: the engine has no quorum for %d replicas: "+
				"start more nodes (all, for the first time), or look at their addresses: %w",
				c.Replicas, reason)
		case <-time.After(retryWait):
		}
	}
}

// rebuild removes the stream of claims, which has no leader: engines that have started have no
// claims, and elect none among themselves while one is missing that may have some. That one claims
// nothing alone. The store begins later then.
func (s *Store) rebuild(ctx context.Context, name string) {
	ctx, end := context.WithTimeout(ctx, attempt)
	defer end()
	if _, err := s.js.AccountInfo(ctx); err != nil {
		return // the engines have no leader at all
	}
	err := s.js.DeleteStream(ctx, name)
	s.process.Logger.Warn("store: most engines have lost their claims, and one is missing: "+
		"the store begins again, and refuses what was signed before", slog.Any("error", err))
}

// subject returns a subject of a stream.
func (s *Store) subject(kind int, rest string) string {
	return s.process.Name + "." + streamOf[kind] + "." + rest
}

// Close implements [store.Store]. It does not stop the engine.
func (s *Store) Close() error {
	if s.process.Close() {
		s.nc.Close()
	}
	return nil
}

// publish writes a message. expect is the revision that it replaces; nil: none is asked for.
func (s *Store) publish(
	ctx context.Context, m *nats.Msg, ttl time.Duration, expect *uint64,
) (revision uint64, err error) {
	opts := []jetstream.PublishOpt{
		jetstream.WithRetryWait(retryWait), jetstream.WithRetryAttempts(retries),
	}
	if expect != nil {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(*expect))
	}
	if ttl > 0 {
		opts = append(opts, jetstream.WithMsgTTL(ttl))
	}
	ack, err := s.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, s.failed(err)
	}
	return ack.Sequence, nil
}

// last returns the message of a subject, as the leader of the stream has it; nil: there is none.
func (s *Store) last(
	ctx context.Context, kind int, subject string,
) (*jetstream.RawStreamMsg, error) {
	for try := 0; ; try++ {
		m, err := s.streams[kind].GetLastMsgForSubject(ctx, subject)
		switch {
		case err == nil:
			return m, nil
		case errors.Is(err, jetstream.ErrMsgNotFound):
			return nil, nil //nolint:nilnil // there is none
		case !unavailable(err) || try == retries:
			return nil, s.failed(err)
		}
		select {
		case <-ctx.Done():
			return nil, s.failed(ctx.Err())
		case <-time.After(retryWait):
		}
	}
}

// keep returns how long the engine keeps what is to be kept until a time: in whole seconds, and not
// shorter for any clock.
func (s *Store) keep(until time.Time) time.Duration {
	d := time.Until(until) + s.process.Skew
	return max((d + time.Second - 1).Truncate(time.Second), time.Second)
}

// pause waits a moment for what is under way.
func (s *Store) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return s.failed(ctx.Err())
	case <-time.After(conflictWait):
		return nil
	}
}

func sequence(m *jetstream.RawStreamMsg) *uint64 {
	n := uint64(0)
	if m != nil {
		n = m.Sequence
	}
	return &n
}
