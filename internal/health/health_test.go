package health_test

import (
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/internal/leak"
	"github.com/farcall-dev/farcall/jsonrpc"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m)) }

type answer struct {
	Status health.Status `json:"status"`
}

// Check answers for the server, for a service, and for one that is not known. Answer does the same
// without a peer.
func TestCheck(t *testing.T) {
	draining := make(chan struct{})
	s := health.New(func(service string) health.Status {
		switch service {
		case "", "up":
			return health.Serving
		case "down":
			return health.NotServing
		}
		return health.Unknown
	}, draining)
	client, server := farcall.Pipe()
	peer := farcall.NewPeer(server, s.Before(farcall.NewMux()), nil)
	defer peer.Close()
	c := farcall.NewPeer(client, nil, nil)
	defer c.Close()
	look := func(params string, want health.Status) {
		t.Helper()
		got, err := farcall.Call[answer](t.Context(), c, health.Check, jsonrpc.Raw(params))
		if err != nil || got.Status != want {
			t.Errorf("%s: %v, %v", params, got, err)
		}
		raw, err := s.Answer(health.Check, jsonrpc.Raw(params))
		if err != nil || string(raw) != `{"status":"`+string(want)+`"}` {
			t.Errorf("%s: %s, %v", params, raw, err)
		}
	}
	look(`{}`, health.Serving)
	look(`{"service":""}`, health.Serving)
	look(`{"service":"up"}`, health.Serving)
	look(`["up"]`, health.Serving)
	look(`{"service":"down"}`, health.NotServing)
	look(`{"service":"other"}`, health.Unknown)
	for _, bad := range []string{`{"service":7}`, `[7]`, `["up","down"]`} {
		if _, err := s.Answer(health.Check, jsonrpc.Raw(bad)); err == nil {
			t.Errorf("%s: it is accepted", bad)
		}
		if _, err := farcall.Call[answer](t.Context(), c, health.Check, jsonrpc.Raw(bad)); err == nil {
			t.Errorf("%s: it is accepted", bad)
		}
	}
	if _, err := s.Answer(health.Watch, nil); err == nil {
		t.Error("Watch is answered without a stream")
	}
	close(draining)
	look(`{}`, health.NotServing)
	look(`{"service":"other"}`, health.Unknown)
}

// Watch streams the status and its changes, and ends with the server.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		draining := make(chan struct{})
		s := health.New(func(string) health.Status {
			if down.Load() {
				return health.NotServing
			}
			return health.Serving
		}, draining)
		client, server := farcall.Pipe()
		mux := farcall.NewMux()
		s.Register(mux)
		peer := farcall.NewPeer(server, mux, nil)
		defer peer.Close()
		c := farcall.NewPeer(client, nil, nil)
		defer c.Close()
		began := time.Now()
		var got []health.Status
		for v, err := range farcall.Stream[answer](t.Context(), c, health.Watch, nil) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, v.Status)
			switch len(got) {
			case 1:
				down.Store(true)
			case 2:
				down.Store(false)
			case 3:
				close(draining)
			}
		}
		want := []health.Status{health.Serving, health.NotServing, health.Serving, health.NotServing}
		if !slices.Equal(got, want) {
			t.Error(got)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
