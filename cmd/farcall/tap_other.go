//go:build !unix

package main

import "os"

// forwarded are the signals that tap passes on to its command.
var forwarded = []os.Signal{os.Interrupt}

// dumping are the signals that have a gateway write what its flight recorder has: there are none.
var dumping []os.Signal

// stopping are the signals that end a listening command.
var stopping = []os.Signal{os.Interrupt}

// signalOf is the signal that has ended a process: there are none.
func signalOf(*os.ProcessState) int { return 0 }
