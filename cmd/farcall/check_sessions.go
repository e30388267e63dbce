package main

import (
	"fmt"

	"github.com/farcall-dev/farcall/gateway"
)

// sessionsText says where sessions are.
func sessionsText(c *gateway.Config) string {
	s := &c.Sessions
	switch s.Mode {
	case "none":
		return "clients get no sessions: nothing can be asked, and nothing is sent but answers"
	case "sealed":
		text := fmt.Sprintf("sessions are sealed with %s and last %s: they survive a restart, and other replicas with the same keys serve them", countOf(len(s.Keys), "key"), brief(s.MaxAge))
		if len(s.Keys) == 0 {
			text = "sessions are sealed with a key of the cluster and last " + brief(s.MaxAge) + ": they survive a restart, and all nodes serve them"
		}
		if s.Advertise == "" {
			return text + "; answers to questions of this replica are refused at others, which advertise would change"
		}
		return text + "; answers to its questions are forwarded to " + s.Advertise
	}
	return "sessions are in memory: a restart ends them"
}
