package guard

import (
	"net/http"
	"strings"

	"github.com/farcall-dev/farcall/internal/origin"
)

// AllowsHost reports whether a request may ask for a host. Where every caller shows credentials any
// name will do: a web page with a name that was rebound to this server has none to show. Otherwise
// it is the host of Resource.URL.
func (s *state) AllowsHost(host string) bool {
	return !s.c.Anonymous || s.host != "" && strings.EqualFold(origin.Hostname(s.host), host)
}

// Public serves what is for everybody and needs no credentials, such as a static page, under the
// host names that [Guard.HTTP] admits.
func (g *Guard) Public(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(origin.WithVouch(r.Context(), g.state.Load())))
	})
}
