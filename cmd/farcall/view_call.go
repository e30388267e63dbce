package main

import (
	"errors"
	"io"

	"github.com/farcall-dev/farcall/capture"
)

// callsOf returns the numbers of the calls that belong to a request of a capture of farcall serve:
// the call that began it all, and all calls that it has caused, on both sides of a gateway. Nil:
// the record says no call.
func callsOf(path string, seq uint64) (map[uint64]bool, error) {
	r, err := capture.Open(path)
	if err != nil {
		return nil, unreadable("the capture", path, err)
	}
	defer r.Close() //nolint:errcheck // it was only read
	var start uint64
	parents, order := map[uint64]uint64{}, []uint64{}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || rec.Call == 0 {
			continue
		}
		if rec.Seq == seq {
			start = rec.Call
		}
		if _, known := parents[rec.Call]; !known {
			parents[rec.Call] = rec.Parent
			order = append(order, rec.Call)
		}
	}
	if start == 0 {
		return nil, nil
	}
	for range order { // a loop of parents has no end
		if parents[start] == 0 {
			break
		}
		start = parents[start]
	}
	calls := map[uint64]bool{start: true}
	for _, call := range order { // a parent comes first
		if parent := parents[call]; parent != 0 && calls[parent] {
			calls[call] = true
		}
	}
	return calls, nil
}
