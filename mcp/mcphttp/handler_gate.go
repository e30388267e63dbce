package mcphttp

import (
	"net/http"

	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/slow"
)

// gate checks where a request comes from.
type gate struct {
	policy origin.Policy
}

// open reports whether the request may go on. If not, it is answered.
func (g *gate) open(w http.ResponseWriter, r *http.Request, methods string) bool {
	if err := g.policy.Check(r); err != nil {
		refuseHTTP(w, http.StatusForbidden, "Forbidden: "+err.Error())
		return false
	}
	if len(r.Header["Origin"]) > 0 {
		g.allowOrigin(w, r, methods)
	}
	if r.Method == http.MethodOptions {
		w.Header().Set("Allow", methods)
		slow.AnswerNothing(w, http.StatusNoContent)
		return false
	}
	return true
}

// allowOrigin adds the headers of CORS (Fetch, section 3.3) for an allowed page
// of another host.
func (g *gate) allowOrigin(w http.ResponseWriter, r *http.Request, methods string) {
	from := g.policy.Cross(r)
	if from == "" {
		return
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", from)
	header.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id")
		return
	}
	header.Set("Access-Control-Allow-Methods", methods)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	header.Set("Access-Control-Max-Age", "600")
}

// refuseMethod answers a method that is not served.
func refuseMethod(w http.ResponseWriter, allowed, hint string) {
	w.Header().Set("Allow", allowed)
	refuseHTTP(w, http.StatusMethodNotAllowed, "Method not allowed: "+hint)
}
