package admin

import (
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// A Status is what a gateway does at one moment. As JSON it is the answer of
// /api/status: nothing in it may be a secret.
type Status struct {
	Name     string    `json:"name"`
	Version  string    `json:"version"`
	Since    time.Time `json:"since"` // when the gateway started
	Listen   []string  `json:"listen"`
	Draining bool      `json:"draining"` // takes no new calls, is about to stop

	Sessions  int   `json:"sessions"`
	InFlight  int   `json:"inFlight"`  // calls
	Suspended int   `json:"suspended"` // calls that wait for an answer of their caller
	Calls     int64 `json:"calls"`     // of clients, since the start
	Errors    int64 `json:"errors"`    // calls of them that were refused, or answered by an error or a failed tool

	Upstreams []UpstreamStatus `json:"upstreams"` // in the order of the configuration
}

// An UpstreamStatus is one server behind the gateway.
type UpstreamStatus struct {
	Name     string `json:"name"`     // no two have the same
	Target   string `json:"target"`   // its command or URL, without secrets
	Profile  string `json:"profile"`  // "mcp" or what else it speaks
	Lifetime string `json:"lifetime"` // who has a connection: "shared", "principal", "session", "call"
	// State is "idle", "starting", "up", "down", "open" (the circuit breaker is)
	// or "disabled"; another one is shown as it is.
	State    string    `json:"state"`
	Since    time.Time `json:"since,omitzero"` // of State
	Revision string    `json:"revision"`       // of MCP, "" until it is known
	Server   string    `json:"server"`         // name and version, as it says itself

	Connections int   `json:"connections"`
	Children    int   `json:"children"` // processes
	Restarts    int   `json:"restarts"`
	InFlight    int   `json:"inFlight"`
	Queued      int   `json:"queued"`
	Calls       int64 `json:"calls"`
	Errors      int64 `json:"errors"`
	Retries     int64 `json:"retries"`
	Garbage     int64 `json:"garbage"` // lines of children that were no messages
	Dropped     int64 `json:"dropped"` // answers, questions and notices that belong to no call

	P50 time.Duration `json:"-"` // as p50Ms; 0: not known yet
	P99 time.Duration `json:"-"` // as p99Ms

	LastError string   `json:"lastError"`
	Stderr    []string `json:"stderr"` // the last lines, oldest first

	Tools []ToolStatus `json:"tools"`
}

// MarshalJSON writes the latencies in milliseconds.
func (u UpstreamStatus) MarshalJSON() ([]byte, error) {
	type plain UpstreamStatus
	return jsonv2.Append(nil, struct {
		plain
		P50 float64 `json:"p50Ms"`
		P99 float64 `json:"p99Ms"`
	}{plain(u), milliseconds(u.P50), milliseconds(u.P99)})
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// A ToolStatus is one tool of an upstream.
type ToolStatus struct {
	Name        string `json:"name"`  // as the upstream has it
	Shown       string `json:"shown"` // as clients see it, "" when that is Name
	Description string `json:"description"`
	Blocked     string `json:"blocked,omitempty"` // why clients do not see it
	Diff        string `json:"diff,omitempty"`    // what changed since it was pinned
}
