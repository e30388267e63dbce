package control

import (
	"net/http"

	"github.com/farcall-dev/farcall/internal/jsonv2"
)

// A Problem is a problem document (RFC 9457): the answer to a request that failed.
type Problem struct { //nolint:errname // the term of the RFC
	Type       string    `json:"type" doc:"the kind of the problem, as urn:farcall:problem:KIND"`
	Title      string    `json:"title"`
	Status     int       `json:"status"`
	Detail     string    `json:"detail" doc:"what is wrong and what to do"`
	Candidates []string  `json:"candidates,omitempty" doc:"names that there are, the likeliest first"`
	Permission string    `json:"permission,omitempty" doc:"the call that a rule of the guard must allow"`
	Findings   []Finding `json:"findings,omitempty" doc:"what is wrong with a configuration"`
}

// A Finding is one problem of a configuration.
type Finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// problems are the kinds of problems by status.
var problems = map[int]string{
	http.StatusBadRequest: "bad-request", http.StatusForbidden: "forbidden", http.StatusNotFound: "not-found",
	http.StatusMethodNotAllowed: "method-not-allowed", http.StatusConflict: "conflict", http.StatusRequestEntityTooLarge: "too-large",
	http.StatusUnsupportedMediaType: "media-type", http.StatusUnprocessableEntity: "invalid", http.StatusTooManyRequests: "too-many-requests",
	http.StatusInternalServerError: "internal", http.StatusNotImplemented: "not-available", http.StatusBadGateway: "upstream",
	http.StatusServiceUnavailable: "unavailable",
}

// NewProblem returns a problem of a status. Detail says what is wrong and what to do.
func NewProblem(status int, detail string) *Problem {
	return &Problem{Type: "urn:farcall:problem:" + problems[status], Title: http.StatusText(status), Status: status, Detail: detail}
}

// Error implements error.
func (p *Problem) Error() string { return p.Detail }

// write answers a request with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	body, err := jsonv2.Append(nil, p)
	if err != nil {
		body = []byte(`{"type":"about:blank"}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}
