package httprpc

import (
	"net/http"

	"github.com/farcall-dev/farcall/internal/origin"
	"github.com/farcall-dev/farcall/internal/slow"
)

// gate checks what comes before the body: where the request comes from, and
// its method.
type gate struct {
	policy  origin.Policy
	methods string // for Allow
}

// open reports whether the request may go on. If not, it is answered.
func (g *gate) open(w http.ResponseWriter, r *http.Request, method string) bool {
	if err := g.policy.Check(r); err != nil {
		refuse(w, http.StatusForbidden, "Forbidden: "+err.Error())
		return false
	}
	if len(r.Header["Origin"]) > 0 {
		g.allowOrigin(w, r)
	}
	if r.Method == method {
		return true
	}
	w.Header().Set("Allow", g.methods)
	if r.Method == http.MethodOptions {
		slow.AnswerNothing(w, http.StatusNoContent)
		return false
	}
	refuse(w, http.StatusMethodNotAllowed, "Method not allowed: use "+method)
	return false
}

// allowOrigin adds the headers of CORS (Fetch, section 3.3) for an allowed page
// of another host.
func (g *gate) allowOrigin(w http.ResponseWriter, r *http.Request) {
	from := g.policy.Cross(r)
	if from == "" {
		return
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Origin", from)
	header.Add("Vary", "Origin")
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return
	}
	header.Set("Access-Control-Allow-Methods", g.methods)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		header.Set("Access-Control-Allow-Headers", asked)
	}
	header.Set("Access-Control-Max-Age", "600")
}
