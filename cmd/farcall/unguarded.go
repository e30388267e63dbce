package main

import (
	"net/http"

	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/port"
)

// unguarded checks an address for a command that authenticates no callers. Other machines must not
// reach it, unless the user insists with a flag.
func unguarded(command, address, flag string, insists bool) error {
	if err := checkAddress(address); err != nil {
		return err
	}
	if port.Reachable(address) && !insists {
		return usagef("Listen on 127.0.0.1, or add "+flag+".",
			"%s can be reached from other machines, and %s does not authenticate callers", address, command)
	}
	return nil
}

// localHosts refuses requests that a web page may have sent by a host name that its owner has let
// point to this machine (DNS rebinding). A server behind the handler cannot refuse them: it sees
// its own address as the host.
func localHosts(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := new(origin.Policy).CheckHost(r); err != nil {
			http.Error(w, "the Host header has to be an address or localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
