package natsstore

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/farcall-dev/farcall/store/internal/process"
)

func (s *Store) presenceSubject(id string) string { return s.subject(claims, "process-"+id) }

func (s *Store) present(ctx context.Context) error {
	ctx, end := s.process.Bound(ctx)
	defer end()
	here := &nats.Msg{Subject: s.presenceSubject(s.process.ID)}
	_, err := s.publish(ctx, here, process.PresenceTTL, nil)
	return err
}

// alive reports whether a process was there lately.
func (s *Store) alive(ctx context.Context, id string) (bool, error) {
	if id == s.process.ID {
		return true, nil
	}
	m, err := s.last(ctx, claims, s.presenceSubject(id))
	return m != nil, err
}
