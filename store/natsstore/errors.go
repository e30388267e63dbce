package natsstore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/farcall-dev/farcall/store"
)

// Codes of errors that the client does not name.
const (
	codeNoLeader        = 10008 // JetStream system temporarily unavailable
	codeNoPeers         = 10005
	codeNoResources     = 10023
	codeNoMemory        = 10028
	codeNoStorage       = 10047
	codeStoreFailed     = 10077 // beyond the limits of the stream
	codeReplicasRefused = 10074 // more replicas than engines
	codeNotDeleted      = 10057
	codeNoSequence      = 10043
)

func apiError(err error) (code jetstream.ErrorCode, is bool) {
	if api, is := errors.AsType[*jetstream.APIError](err); is {
		return api.ErrorCode, true
	}
	var js jetstream.JetStreamError
	if errors.As(err, &js) && js.APIError() != nil {
		return js.APIError().ErrorCode, true
	}
	return 0, false
}

// unavailable reports whether an error says that no server has taken the request.
func unavailable(err error) bool {
	switch code, _ := apiError(err); code {
	case codeNoLeader, codeNoPeers, codeReplicasRefused:
		return true
	}
	return slices.ContainsFunc([]error{
		nats.ErrNoResponders, jetstream.ErrNoStreamResponse, nats.ErrReconnectBufExceeded,
		nats.ErrDisconnected, nats.ErrConnectionClosed,
	}, func(gone error) bool { return errors.Is(err, gone) })
}

// conflict reports whether another revision is stored.
func conflict(err error) bool {
	code, _ := apiError(err)
	return code == jetstream.JSErrCodeStreamWrongLastSequence ||
		code == jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// failed says what an error of the engine means for a store.
func (s *Store) failed(err error) error {
	code, _ := apiError(err)
	switch {
	case err == nil, conflict(err):
		return err
	case s.process.Closed():
		return store.ErrClosed
	case unavailable(err):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case code == codeNoResources, code == codeNoMemory, code == codeNoStorage, code == codeStoreFailed,
		code == jetstream.JSErrCodeStreamMessageExceedsMaximum, errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("natsstore: no answer in time: the outcome is unknown: %w",
			errors.Join(err, context.DeadlineExceeded))
	}
	return fmt.Errorf("natsstore: %w", err)
}

// gone reports whether an error says that a revision is not there any more.
func gone(err error) bool {
	code, _ := apiError(err)
	return errors.Is(err, jetstream.ErrMsgNotFound) ||
		errors.Is(err, jetstream.ErrMsgDeleteUnsuccessful) ||
		code == codeNotDeleted || code == codeNoSequence
}
