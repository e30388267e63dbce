package farcall_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farcall-dev/farcall"
	"github.com/farcall-dev/farcall/jsonrpc"
)

// A batch takes as long as its elements take that come one by one: over a connection and over a
// Responder, of a method that is slow from the beginning and of one that was fast so far.
func TestBatchIsAsFastAsItsElements(t *testing.T) {
	for _, tt := range []struct {
		elements, inFlight int
		known              bool // the method was fast so far
		most               time.Duration
	}{
		{1000, 0, false, 200 * time.Millisecond},
		{1000, 0, true, 260 * time.Millisecond},
		{1000, 250, false, 800 * time.Millisecond},
		{1, 0, false, 200 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mux := farcall.NewMux()
				farcall.Handle(mux, "sleep", func(_ context.Context, d time.Duration) (bool, error) {
					if d > 0 {
						<-time.After(d)
					}
					return true, nil
				})
				o := &farcall.Options{MaxInFlight: tt.inFlight}
				a, b := farcall.Pipe()
				peer, _ := connect(t, a, b, nil, mux, nil, o)
				r := farcall.NewResponder(mux, o)
				for range 100 {
					if !tt.known {
						break
					}
					_ = peer.Call(t.Context(), "sleep", []int{0}, nil)
					r.Respond(t.Context(), nil, []byte(`{"jsonrpc":"2.0","id":1,"method":"sleep","params":[0]}`),
						nil)
				}
				var calls []*farcall.BatchCall
				for range tt.elements {
					calls = append(calls,
						&farcall.BatchCall{Method: "sleep", Params: []time.Duration{200 * time.Millisecond}})
				}
				began := time.Now()
				if err := peer.Batch(t.Context(), calls...); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > tt.most {
					t.Errorf("the batch took %v over a connection", took)
				}
				frame := pileOf(tt.elements, "sleep", "200000000")
				began = time.Now()
				answer := r.Respond(t.Context(), nil, frame, nil)
				var all []struct{ Result bool }
				if err := json.Unmarshal(answer, &all); err != nil || len(all) != tt.elements {
					t.Fatalf("%d answers, %v", len(all), err)
				}
				for i, a := range all {
					if !a.Result {
						t.Fatalf("element %d was refused", i)
					}
				}
				if took := time.Since(began); took > 2*tt.most { // a caller alone has 15 of 16 places
					t.Errorf("the batch took %v over a Responder", took)
				}
			})
		})
	}
}

// Elements that find no place wait for those of their batch, and are refused when others have all
// places.
func TestBatchesShareResponder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mux := farcall.NewMux()
		stop := make(chan struct{})
		farcall.Handle(mux, "wait", func(context.Context, struct{}) (bool, error) {
			<-stop
			return true, nil
		})
		r := farcall.NewResponder(mux, &farcall.Options{MaxInFlight: 32})
		frame := pileOf(100, "wait", "")
		answers := make(chan []byte, 4)
		for range 4 {
			go func() { answers <- r.Respond(t.Context(), nil, frame, nil) }()
		}
		synctest.Wait()
		close(stop)
		refused := 0
		for range 4 {
			var all []struct{ Error *jsonrpc.Error }
			if err := json.Unmarshal(<-answers, &all); err != nil || len(all) != 100 {
				t.Fatalf("%d answers, %v", len(all), err)
			}
			for _, a := range all {
				if a.Error != nil {
					refused++
				}
			}
		}
		if refused > 300 {
			t.Errorf("%d of 400 were refused", refused)
		}
	})
}

// pileOf returns a batch of calls of a method.
func pileOf(n int, method, param string) []byte {
	var all []string
	for i := range n {
		all = append(all,
			fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":[%s]}`, i, method, param))
	}
	return []byte("[" + strings.Join(all, ",") + "]")
}
