package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/farcall-dev/farcall/internal/port"
	"github.com/farcall-dev/farcall/natsrpc"
)

// sockets are the addresses that have listeners.
func (f *serveFlags) sockets() (out []string) {
	for _, address := range f.addresses() {
		if !port.IsQueue(address) {
			out = append(out, address)
		}
	}
	return out
}

// subscribe serves the addresses that are subjects of NATS, all or none.
func (f *serveFlags) subscribe(ctx context.Context, stderr io.Writer) error {
	for _, address := range f.addresses() {
		if !port.IsQueue(address) {
			continue
		}
		s, err := natsrpc.Listen(ctx, address, f.server, &natsrpc.Options{
			Version: serviceVersion(), Budget: f.limits.budget, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return &exitError{
				code: exitFailure, err: fmt.Errorf("cannot serve %s: %w", address, err),
				hint: "Is a NATS server there? nats-server starts one, on localhost:4222.",
			}
		}
		f.queues = append(f.queues, s)
		fmt.Fprintln(stderr, "farcall: ready "+address)
	}
	return nil
}

// serviceVersion is the version of this program where it is one of three numbers, else "".
func serviceVersion() string {
	v := strings.TrimPrefix(versionName(), "v")
	if v == "" || v[0] < '0' || v[0] > '9' {
		return ""
	}
	return v
}

// overNATS returns what sends requests over NATS for a client of HTTP.
func overNATS(config *tls.Config) *natsrpc.Transport {
	return &natsrpc.Transport{TLS: config, Logger: slog.New(slog.DiscardHandler)}
}

// unsubscribe lets the calls that came over NATS finish.
func (f *serveFlags) unsubscribe(ctx context.Context) (err error) {
	for _, s := range f.queues {
		err = errors.Join(err, s.Close(ctx))
	}
	return err
}
