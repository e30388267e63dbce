package farcall_test

import (
	"context"
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/farcall-dev/farcall"
)

// Ids begin with FirstID and end below 2^53, whatever FirstID is; none is used twice.
func TestFirstID(t *testing.T) {
	t.Parallel()
	const last = 1<<53 - 1
	for _, test := range []struct {
		first uint64
		want  []uint64 // of four calls; the others fail
	}{
		{0, []uint64{1, 2, 3, 4}},
		{1, []uint64{1, 2, 3, 4}},
		{1 << 40, []uint64{1 << 40, 1<<40 + 1, 1<<40 + 2, 1<<40 + 3}},
		{last - 1, []uint64{last - 1, last}},
		{last, []uint64{last}},
		{last + 1, nil},
		{math.MaxUint64, nil},
	} {
		var mu sync.Mutex
		var got []uint64
		echo := farcall.HandlerFunc(func(_ context.Context, req *farcall.Request) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			var id uint64
			for _, digit := range req.ID.String() {
				id = id*10 + uint64(digit-'0')
			}
			got = append(got, id)
			return true, nil
		})
		a, b := farcall.Pipe()
		server, client := farcall.NewPeer(a, echo, nil),
			farcall.NewPeer(b, nil, &farcall.Options{FirstID: test.first})
		for n := range 4 {
			if err := client.Call(t.Context(), "m", nil, nil); (err == nil) != (n < len(test.want)) {
				t.Errorf("FirstID %d, call %d: %v", test.first, n, err)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("FirstID %d: the ids are %d; want %d", test.first, got, test.want)
		}
		client.Close()
		server.Close()
	}
}
