package natsstore

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/farcall-dev/farcall/internal/owner"
	"github.com/farcall-dev/farcall/internal/share"
)

const (
	ownerHeader = "Farcall-Owner" // hashes
	groupHeader = "Farcall-Group"
	endHeader   = "Farcall-Expires" // Unix seconds
	sizeHeader  = "Nats-Msg-Size"

	// overhead is what a record takes beside its bytes.
	overhead = 512
	// reconcilePause is how often the watcher compares what it knows with the stream: it is not
	// told of what was removed.
	reconcilePause = time.Minute
)

// shares know what each owner has in the stream of records, of all processes: by the watcher, a
// moment later. So owners that write at several processes at once may exceed their share by what is
// under way.
type shares struct {
	mu     sync.Mutex
	ledger *share.Ledger
	held   map[string]held // by the subject of a record
}

type held struct {
	owner    owner.Key
	cost     int
	revision uint64
	end      time.Time
}

func heldOf(h nats.Header, size int, revision uint64) held {
	k := owner.Named(h.Get(ownerHeader))
	if group := h.Get(groupHeader); group != "" && !k.IsZero() {
		k = k.In(owner.Named(group))
	}
	end, _ := strconv.ParseInt(h.Get(endHeader), 10, 64)
	return held{owner: k, cost: size + overhead, revision: revision, end: time.Unix(end, 0)}
}

// fits reports whether the owner of a record has room for it.
func (s *shares) fits(subject string, m *nats.Msg, size int) bool {
	h := heldOf(m.Header, size, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked()
	grown := h.cost - s.held[subject].cost
	return grown <= 0 || s.ledger.Fits(h.owner, grown)
}

// note books a record, unless a later revision of it is known.
func (s *shares) note(subject string, header nats.Header, size int, revision uint64) {
	if size == 0 { // it was deleted
		s.forget(subject, revision)
		return
	}
	h := heldOf(header, size, revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	old, is := s.held[subject]
	if is && old.revision >= revision {
		return
	}
	if is {
		s.ledger.Give(old.owner, old.cost)
	}
	s.ledger.Add(h.owner, h.cost)
	s.held[subject] = h
}

// forget gives back the room of a revision of a record.
func (s *shares) forget(subject string, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h, is := s.held[subject]; is && h.revision <= revision {
		s.ledger.Give(h.owner, h.cost)
		delete(s.held, subject)
	}
}

func (s *shares) expireLocked() {
	if s.ledger.Free() > s.ledger.Bounds().Total/4 {
		return
	}
	now := time.Now()
	for subject, h := range s.held {
		if h.end.Before(now) {
			s.ledger.Give(h.owner, h.cost)
			delete(s.held, subject)
		}
	}
}

// subjects yields the records that are known.
func (s *shares) subjects() iter.Seq[string] {
	s.mu.Lock()
	all := slices.Sorted(maps.Keys(s.held))
	s.mu.Unlock()
	return slices.Values(all)
}

// watch begins to watch the records, once it knows those that are there.
func (s *Store) watch(ctx context.Context) (*shares, error) {
	info, err := s.streams[records].Info(ctx)
	if err != nil {
		return nil, s.failed(err)
	}
	ledger := share.NewLedger(share.Bounds{Total: int(info.Config.MaxBytes)})
	w := &shares{ledger: ledger, held: map[string]held{}}
	c, err := s.streams[records].OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, HeadersOnly: true,
		FilterSubjects: []string{s.subject(records, ">")},
	})
	if err != nil {
		return nil, s.failed(err)
	}
	caught := make(chan struct{})
	known := sync.OnceFunc(func() { close(caught) })
	if info.State.Msgs == 0 {
		known()
	}
	consume, err := c.Consume(func(m jetstream.Msg) {
		meta, err := m.Metadata()
		if err != nil {
			return
		}
		size, _ := strconv.Atoi(m.Headers().Get(sizeHeader))
		w.note(m.Subject(), m.Headers(), size, meta.Sequence.Stream)
		if meta.NumPending == 0 {
			known()
		}
	}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
		if !errors.Is(err, jetstream.ErrNoHeartbeat) { // the client starts the watcher again
			s.process.Logger.Debug("store: watch records", slog.Any("error", err))
		}
	}))
	if err != nil {
		return nil, s.failed(err)
	}
	s.process.Wait.Go(func() {
		s.reconcile(w)
		consume.Stop()
		<-consume.Closed()
	})
	select {
	case <-caught:
	case <-ctx.Done():
		return nil, s.failed(ctx.Err())
	}
	return w, nil
}

// reconcile forgets, from time to time, the records that are not in the stream any more.
func (s *Store) reconcile(w *shares) {
	tick := time.NewTicker(reconcilePause)
	defer tick.Stop()
	for {
		select {
		case <-s.process.Context.Done():
			return
		case <-tick.C:
		}
		ctx, end := s.process.Bound(s.process.Context)
		info, err := s.streams[records].Info(ctx, jetstream.WithSubjectFilter(s.subject(records, ">")))
		end()
		if err != nil {
			s.process.Logger.Debug("store: reconcile records", slog.Any("error", err))
			continue
		}
		w.retain(info.State.Subjects, info.State.LastSeq)
	}
}

// retain forgets what is not there, but for what is later than the list.
func (s *shares) retain(there map[string]uint64, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for subject, h := range s.held {
		if there[subject] == 0 && h.revision <= last {
			s.ledger.Give(h.owner, h.cost)
			delete(s.held, subject)
		}
	}
}
