package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/farcall-dev/farcall"
)

// guardFair is five callers, each with a call at a time, beside one who floods the server.
const guardFair = "guard: five callers beside a flood"

const (
	fairCallers = 5
	fairTotal   = 16 // calls that the server takes at once
	fairWork    = time.Millisecond
	fairPause   = 2 * time.Millisecond  // between calls of the five
	floodPause  = 10 * time.Millisecond // of a connection of the flood that was refused
)

// A fairResult is how long the calls of the five took, in ns, by round.
type fairResult struct {
	p50, p99       [2][]float64 // without the flood, and beside it
	calls, refused int          // let through and not: of the five, beside the flood
	flood, let     int          // calls of the flood, and those that were let through
}

// slowMethods take some time, without computing.
func slowMethods() *farcall.Mux {
	mux := farcall.NewMux()
	mux.Handle("echo",
		farcall.HandlerFunc(func(ctx context.Context, req *farcall.Request) (any, error) {
			select {
			case <-time.After(fairWork):
			case <-ctx.Done():
			}
			return req.Params, nil
		}))
	return mux
}

// measureFair lets the five call, without the flood and beside it in turns.
func measureFair(rounds int, each time.Duration) (result, error) {
	r := result{group: guardFair, name: "farcall", fair: &fairResult{}}
	tokens, err := newTokens()
	if err != nil {
		return r, err
	}
	order, err := json.Marshal(guardOrder{Serve: "slow", Way: guardJWT, JWKS: tokens.jwks})
	if err != nil {
		return r, err
	}
	c, err := startChild("guard " + string(order))
	if err != nil {
		return r, err
	}
	defer c.stop()
	callers, err := openGuarded(c.address, guardCall, false, guardJWT, tokens, fairCallers+1)
	if err != nil {
		return r, err
	}
	defer callers.close()
	flood, err := dialMany(c.address, inFlight)
	if err != nil {
		return r, err
	}
	defer closeAll(flood)
	frame := callers.frames[fairCallers].text // all with the token of one more
	for range rounds {
		for beside := range 2 {
			var took []time.Duration
			end := time.Now().Add(each)
			var all sync.WaitGroup
			var mu sync.Mutex
			var errs []error
			run := func(conn *webConn, text []byte, pause, refusedPause time.Duration, note noteFunc) {
				all.Go(func() {
					err := callUntil(end, conn, text, pause, refusedPause, func(d time.Duration, refused bool) {
						mu.Lock()
						defer mu.Unlock()
						note(d, refused)
					})
					if err != nil {
						mu.Lock()
						defer mu.Unlock()
						errs = append(errs, err)
					}
				})
			}
			for i := range fairCallers {
				run(callers.conns[i], callers.frames[i].text, fairPause, fairPause,
					func(d time.Duration, refused bool) {
						if refused {
							r.fair.refused++
							return
						}
						if took = append(took, d); beside == 1 {
							r.fair.calls++
						}
					})
			}
			for _, conn := range flood[:beside*len(flood)] {
				run(conn, frame, 0, floodPause, func(_ time.Duration, refused bool) {
					if r.fair.flood++; !refused {
						r.fair.let++
					}
				})
			}
			all.Wait()
			switch {
			case len(errs) > 0:
				return r, errs[0]
			case len(took) == 0:
				return r, errors.New("no call was let through")
			}
			slices.Sort(took)
			r.fair.p50[beside] = append(r.fair.p50[beside], float64(took[len(took)/2].Nanoseconds()))
			r.fair.p99[beside] = append(r.fair.p99[beside], float64(took[len(took)*99/100].Nanoseconds()))
		}
	}
	return r, nil
}

// A noteFunc learns what a call took, and whether it was refused.
type noteFunc func(took time.Duration, refused bool)

// callUntil calls until a time, with a pause after each answer.
func callUntil(
	end time.Time, conn *webConn, text []byte, pause, refusedPause time.Duration, note noteFunc,
) error {
	for time.Now().Before(end) {
		began := time.Now()
		body, err := conn.exchange(text)
		if err != nil {
			return err
		}
		refused := bytes.Contains(body, []byte(`"error"`))
		note(time.Since(began), refused)
		if refused {
			time.Sleep(refusedPause)
		} else {
			time.Sleep(pause)
		}
	}
	return nil
}

// fairTable can be empty, like idleTable.
func fairTable(all results) *table {
	t := &table{
		head: []string{
			guardFair, "median call", "p99", "calls", "of them refused", "calls of the flood",
			"of them refused",
		},
	}
	for _, r := range all {
		f := r.fair
		if f == nil {
			continue
		}
		t.add("without the flood", duration(median(f.p50[0])), duration(median(f.p99[0])), "", "", "", "")
		t.add("beside it", duration(median(f.p50[1])), duration(median(f.p99[1])),
			strconv.Itoa(f.calls+f.refused), strconv.Itoa(f.refused), strconv.Itoa(f.flood),
			strconv.Itoa(f.flood-f.let))
	}
	return t
}

func dialMany(address string, n int) (conns []*webConn, err error) {
	for range n {
		conn, err := dialWeb(address)
		if err != nil {
			closeAll(conns)
			return nil, err
		}
		conns = append(conns, conn)
	}
	return conns, nil
}

func closeAll(conns []*webConn) {
	for _, conn := range conns {
		conn.Close()
	}
}
