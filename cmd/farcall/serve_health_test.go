package main

import (
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/internal/health"
	"github.com/farcall-dev/farcall/rpc"
)

// The playground answers for its health over each transport.
func TestServeHealth(t *testing.T) {
	at := serve(t, "--log", "off").hostport(t)
	for _, target := range []string{"http://" + at + "/rpc", "ws://" + at + "/rpc", "tcp://" + at} {
		c, err := rpc.Dial(t.Context(), target, nil)
		if err != nil {
			t.Fatal(target, err)
		}
		for service, want := range map[string]string{
			"": "SERVING", "math": "SERVING",
			"none": "SERVICE_UNKNOWN",
		} {
			got, err := farcall.Call[map[string]string](t.Context(), c, health.Check,
				map[string]string{"service": service})
			if err != nil || got["status"] != want {
				t.Errorf("%s %q: %v, %v", target, service, got, err)
			}
		}
		for got, err := range farcall.Stream[map[string]string](t.Context(), c, health.Watch, nil) {
			if err != nil || got["status"] != "SERVING" {
				t.Errorf("%s: %v, %v", target, got, err)
			}
			break
		}
		_ = c.Close()
	}
}
