package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/natsrpc"
)

// subscribe serves the addresses that are subjects of NATS, all or none.
func (f *serveFlags) subscribe(ctx context.Context, stderr io.Writer) error {
	for _, address := range f.addresses() {
		if !port.IsQueue(address) {
			continue
		}
		s, err := natsrpc.Listen(ctx, address, f.server, &natsrpc.Options{
			Budget: f.limits.budget, Logger: orDiscard(nil),
		})
		if err != nil {
			return &exitError{
				code: exitFailure, err: fmt.Errorf("cannot serve over NATS: %w", err),
				hint: "Is a NATS server there? nats-server starts one, on localhost:4222.",
			}
		}
		f.queues = append(f.queues, s)
		fmt.Fprintln(stderr, "farcall: ready "+port.Redacted(address))
	}
	return nil
}

// unsubscribe lets the calls that came over NATS finish.
func (f *serveFlags) unsubscribe(ctx context.Context) (err error) {
	for _, s := range f.queues {
		err = errors.Join(err, s.Close(ctx))
	}
	return err
}
