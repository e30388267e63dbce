package control

import (
	"net/http"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/origin"
)

// StatusPath is where the status is, which is older than the other operations.
const StatusPath = "/api/status"

// ServeStatus answers GET and HEAD with a status as JSON. check says which pages and hosts may read
// it in addition to those of the same host.
func ServeStatus(
	w http.ResponseWriter, r *http.Request, check origin.Policy, status func() *Status,
) {
	header := w.Header()
	protect(header)
	if err := check.Check(r); err != nil {
		http.Error(w, "Refused: "+err.Error()+".", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The status is read with GET.", http.StatusMethodNotAllowed)
		return
	}
	body, err := jsonv2.Append(nil, status())
	if err != nil {
		http.Error(w, "The status cannot be written as JSON: "+err.Error(),
			http.StatusInternalServerError)
		return
	}
	header.Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the reader has gone
}

// A Status is the gateway with all of its upstreams. Nothing in it may be a secret.
type Status struct {
	Overview

	Upstreams []UpstreamStatus `json:"upstreams"` // in the order of the configuration
}

// An UpstreamStatus is all that is known of one server.
type UpstreamStatus struct {
	Upstream

	Children int      `json:"children"` // Processes
	Retries  int64    `json:"retries"`
	Garbage  int64    `json:"garbage"` // lines of children that were no messages
	Dropped  int64    `json:"dropped"` // answers, questions and notices that belong to no call
	Stderr   []string `json:"stderr"`  // the last lines, oldest first
	Tools    []Tool   `json:"tools"`
}
