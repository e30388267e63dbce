package gateway_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/capture"
	"github.com/farcall-dev/farcall/gateway"
	"github.com/farcall-dev/farcall/mcp/spec"
)

// recorded is what a capture has of the requests of one method, on either side of the gateway.
type recorded struct {
	client, server []*capture.Record
	byCall         map[uint64]*capture.Record
}

func recordedOf(t *testing.T, data []byte, method string) *recorded {
	t.Helper()
	r, err := capture.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	all := &recorded{byCall: map[uint64]*capture.Record{}}
	for {
		rec, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		case rec.Kind != "request":
			continue
		}
		rec = rec.Clone()
		all.byCall[rec.Call] = rec
		switch {
		case rec.Method != method:
		case rec.Upstream == "":
			all.client = append(all.client, rec)
		default:
			all.server = append(all.server, rec)
		}
	}
}

// Whatever the revisions and transports, a call of a client and the one that its server got are
// tied in a capture: the bytes of both are there.
func TestCaptureBothSides(t *testing.T) {
	t.Parallel()
	chosen := covering(ends())
	for _, server := range ends() {
		t.Run(server.rev.Name+" over "+server.transport, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			rec, err := capture.New(&capture.Options{Out: &out, Raw: true, Buffer: 64 << 20})
			if err != nil {
				t.Fatal(err)
			}
			calls := 0
			t.Run("calls", func(t *testing.T) {
				s := newStage(t)
				t.Cleanup(s.close) // after the gateway: its children report to it
				h := newHouse(t,
					&gateway.Config{Upstreams: []*gateway.Upstream{s.upstream(t, server.rev, server.transport)}},
					&gateway.Options{RPC: &farcall.Options{Observer: rec.Observer()}})
				for _, client := range ends() {
					if !chosen[[2]end{client, server}] {
						continue
					}
					v := &matrixClient{
						client: client.rev, clientOver: client.transport, server: server.rev,
						serverOver: server.transport,
						stage:      s, name: "capture", logs: make(chan string, 1000),
						changed: make(chan string, 1000),
						updated: make(chan string, 1000), listening: make(chan spec.SubscriptionFilter, 100),
					}
					calls++
					captureCalls(t, h, v)
				}
			})
			if err := rec.Close(); err != nil {
				t.Fatal(err)
			}
			all := recordedOf(t, out.Bytes(), spec.MethodToolsCall)
			if len(all.client) < 2*calls || len(all.server) < 2*calls || rec.Dropped() > 0 {
				t.Errorf("%d calls of clients and %d to the server of %d; %d lost", len(all.client),
					len(all.server), 2*calls, rec.Dropped())
			}
			q := recordedOf(t, out.Bytes(), spec.MethodElicitationCreate)
			for _, r := range q.client {
				if p := q.byCall[r.Parent]; p == nil || p.Method != spec.MethodToolsCall || p.Upstream != "" ||
					r.Dir != "down" {
					t.Errorf("the parent of the question %+v is %+v", r, p)
				}
			}
			for _, r := range all.server {
				parent := all.byCall[r.Parent]
				if parent == nil || parent.Upstream != "" || parent.Method != r.Method || !r.HasData() ||
					!parent.HasData() {
					t.Errorf("the parent of %+v is %+v", r, parent)
				}
			}
		})
	}
}

// captureCalls makes a call, and one in which the client is asked something.
func captureCalls(t *testing.T, h *house, v *matrixClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cellTime)
	defer cancel()
	c, leave, err := h.enter(ctx, v.clientOver, v.options())
	if err != nil {
		t.Error(v, err)
		return
	}
	v.Client = c
	if _, err := v.tool(ctx, "trace", nil); err != nil {
		t.Error(v, err)
	}
	_, _ = v.tool(ctx, "greet", playText{v.name}) // not every pair can ask
	if err := leave(); err != nil {
		t.Error(v, err)
	}
}
