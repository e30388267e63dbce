//go:build unix

package main

import (
	"os"
	"syscall"
)

// forwarded are the signals that tap passes on to its command. A terminal sends SIGINT and SIGQUIT
// to both, but a client sends them to the one that it knows.
var forwarded = []os.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// dumping are the signals that have a gateway write what its flight recorder has.
var dumping = []os.Signal{syscall.SIGUSR1}

// stopping are the signals that end a listening command.
var stopping = []os.Signal{syscall.SIGINT, syscall.SIGTERM}

// signalOf is the signal that has ended a process.
func signalOf(p *os.ProcessState) int {
	if s, ok := p.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return int(s.Signal())
	}
	return 0
}
