package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

func main() {
	var kept []byte
	if !collectorSet(os.LookupEnv) {
		young()
		time.AfterFunc(youngFor, func() { kept = ballast() })
	}
	code := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	runtime.KeepAlive(&kept)
	os.Exit(code)
}

const (
	// youngFor is how long a process may have a heap that grows more before the garbage collector runs
	// for the first time, to 16 MB in place of 4. A command that ends before needs no collection; one
	// or two would be a fifth of the CPU time of 'farcall version'.
	youngFor     = time.Second
	youngPercent = 400
	// ballastBytes is what the live heap has at least then.
	ballastBytes = 8 << 20
)

// collectorSet reports whether the environment says how often the garbage collector runs.
func collectorSet(lookUp func(name string) (value string, set bool)) bool {
	_, percent := lookUp("GOGC")
	_, limit := lookUp("GOMEMLIMIT")
	return percent || limit
}

// young lets the heap grow more until the first collection.
func young() {
	debug.SetGCPercent(youngPercent)
	unused := new([64]byte) // what finds it unused is the first collection
	runtime.AddCleanup(unused, func(percent int) { debug.SetGCPercent(percent) }, 100)
}

// ballast has the heap grow as usual from now on, and returns memory that is never touched, and so
// takes none of the machine's; the caller keeps it. The garbage collector runs when the heap has
// doubled since the last time. That of a gateway has 5 MB, so under load it runs 25 times in a
// second, for which it shrinks the stacks of all goroutines and empties all pools. With 8 MB more
// it runs a third as often, for as many more megabytes of garbage, and a call takes a twelfth less
// CPU time; to a large heap they make no difference.
func ballast() []byte {
	kept := make([]byte, ballastBytes)
	debug.SetGCPercent(100)
	return kept
}
