// Package admin is the page that a gateway shows to its operators: what it
// serves, how its upstreams do, and which tools they have.
//
// The page is complete as it is served. A script reads it again every other
// second and changes what has changed, so there is one rendering of everything.
// What upstreams say is hostile text: it is escaped, bounded and stripped of
// what cannot be seen.
package admin

import (
	"bytes"
	"embed"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/internal/onhttp"
	"github.com/farcall-dev/farcall/internal/origin"
)

//go:embed assets
var assets embed.FS

//go:embed templates
var templates embed.FS

// policy lets the page load and read what is on its own origin and nothing
// else. Nothing on it is inline.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// The paths that a Handler serves, in addition to its assets below /page/.
const (
	pagePath   = "/"
	statusPath = "/api/status"
	livePath   = "/page/live" // the part of the page that changes, for its script
)

// A Handler serves the page at /, its parts below /page/ and the status as JSON
// at /api/status. The page refers to them relatively, so it may be mounted below
// another path with http.StripPrefix.
type Handler struct {
	// Origin says which pages and hosts may read in addition to those of the same
	// host. It must not be changed once the handler serves.
	Origin origin.Policy

	status func() Status
	now    func() time.Time
	pages  *template.Template
	assets map[string]onhttp.Asset
}

// New returns a Handler that shows what status returns. status is called for
// every request, from several goroutines at a time, and must not block.
func New(status func() Status) *Handler {
	h := &Handler{status: status, now: time.Now}
	h.pages = template.Must(template.New("").Funcs(functions()).ParseFS(templates, "templates/*.html"))
	h.assets, _ = onhttp.ReadAssets(assets, "assets") // it is embedded
	return h
}

// Has reports whether the path is one of those that the handler serves.
func (h *Handler) Has(path string) bool {
	switch path {
	case pagePath, statusPath, livePath:
		return true
	}
	_, _, ok := h.asset(path)
	return ok
}

// ServeHTTP answers GET and HEAD of the paths that Has knows.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cache-Control", "no-store")
	if err := h.Origin.Check(asOpened(r)); err != nil {
		http.Error(w, "Refused: "+err.Error()+".", http.StatusForbidden)
		return
	}
	if !h.Has(r.URL.Path) {
		http.Error(w, "There is nothing at this path. The overview is at / and as JSON at /api/status.", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "The overview is read with GET. MCP is posted to /mcp.", http.StatusMethodNotAllowed)
		return
	}
	switch r.URL.Path {
	case pagePath:
		h.render(w, "page", "")
	case livePath:
		h.render(w, "live", r.URL.Query().Get("tools"))
	case statusPath:
		h.json(w)
	default:
		file, name, _ := h.asset(r.URL.Path)
		file.Serve(w, r, name)
	}
}

// asOpened is the request as the origin policy shall see it. That a proxy
// follows a link of another site to the page is no attack: that site cannot
// read it, and cannot show it in a frame.
func asOpened(r *http.Request) *http.Request {
	if r.URL.Path != pagePath || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
		return r
	}
	opened := r.Clone(r.Context())
	opened.Header.Del("Sec-Fetch-Site")
	return opened
}

// render leaves the tools out when the reader has those of the digest known.
func (h *Handler) render(w http.ResponseWriter, name, known string) {
	status := h.status()
	var body bytes.Buffer
	if err := h.pages.ExecuteTemplate(&body, name, newView(&status, h.now(), known)); err != nil {
		http.Error(w, "The overview cannot be shown: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(body.Bytes()) // the reader has gone
}

func (h *Handler) json(w http.ResponseWriter) {
	body, err := jsonv2.Append(nil, h.status())
	if err != nil {
		http.Error(w, "The status cannot be written as JSON: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n'))
}

// asset returns the file of a path below /page/.
func (h *Handler) asset(url string) (file onhttp.Asset, name string, ok bool) {
	if name, ok = strings.CutPrefix(url, "/page/"); ok {
		file, ok = h.assets[name]
	}
	return file, name, ok
}

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
