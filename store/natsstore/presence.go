package natsstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// A process says every presencePause that it is there, and is taken to have ended after
// presenceTTL. Only [Store.Adopt] asks. A process that is wrongly taken to have ended finds that
// the versions of its records have grown.
const (
	presencePause = 3 * time.Second
	presenceTTL   = 12 * time.Second
)

func (s *Store) presenceSubject(id string) string { return s.subject(claims, "process-"+id) }

// announce tells others that this process is there, until the store is closed.
func (s *Store) announce(ctx context.Context) error {
	if err := s.present(ctx); err != nil {
		return err
	}
	s.wait.Go(func() {
		tick := time.NewTicker(presencePause)
		defer tick.Stop()
		for {
			select {
			case <-s.context.Done():
				return
			case <-tick.C:
			}
			if err := s.present(s.context); err != nil && s.context.Err() == nil {
				s.logger.Warn("store: cannot announce this process to the others",
					slog.Any("error", err))
			}
		}
	})
	return nil
}

func (s *Store) present(ctx context.Context) error {
	ctx, end := s.bound(ctx)
	defer end()
	_, err := s.publish(ctx, &nats.Msg{Subject: s.presenceSubject(s.id)}, presenceTTL, nil)
	return err
}

// alive reports whether a process was there lately.
func (s *Store) alive(ctx context.Context, id string) (bool, error) {
	if id == s.id {
		return true, nil
	}
	m, err := s.last(ctx, claims, s.presenceSubject(id))
	return m != nil, err
}
