package main

import (
	"context"
	"os"
	"runtime"
)

func main() {
	kept := ballast(os.LookupEnv)
	code := run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	runtime.KeepAlive(kept)
	os.Exit(code)
}

// ballastBytes is what the live heap of the process has at least for the garbage collector.
const ballastBytes = 8 << 20

// ballast returns memory that is never touched, and so takes none of the machine's; the caller keeps
// it. The garbage collector runs when the heap has doubled since the last time. That of a gateway
// has 5 MB, so under load it runs 25 times in a second, for which it shrinks the stacks of all
// goroutines and empties all pools. With 8 MB more it runs a third as often, for as many more
// megabytes of garbage, and a call takes a twelfth less CPU time; to a large heap they make no
// difference. Nil: GOGC or GOMEMLIMIT of the environment say how often it runs.
func ballast(lookUp func(name string) (value string, set bool)) []byte {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if _, set := lookUp(name); set {
			return nil
		}
	}
	return make([]byte, ballastBytes)
}
