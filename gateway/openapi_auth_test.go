package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/mcp"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// Requests to an HTTP API have the credentials of those who call, and never another's.
func TestOpenAPIPrincipals(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, r.Header.Get("X-Cred"))
	}))
	t.Cleanup(api.Close)
	doc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w,
			`{"openapi":"3.1.0","info":{"title":"Who"},"paths":{"/who":{"get":{"operationId":"who"}}}}`)
	}))
	t.Cleanup(doc.Close)
	for _, lifetime := range []string{"principal", "session", "call"} {
		web := callers(t, &Upstream{
			Name: "api", OpenAPI: &OpenAPI{Document: doc.URL}, URL: api.URL, Lifetime: lifetime,
			Auth: &Credentials{
				Type: authPrincipals,
				Principals: map[string]map[string]string{
					"ada": {"X-Cred": "a"}, "bob": {"X-Cred": "b"},
					"*": {"X-Cred": "other"},
				},
			},
		})
		want := map[string]string{"ada": "a", "bob": "b", "eve": "other"}
		ended := make(chan error, len(want))
		for who := range want {
			go func() {
				c, err := mcp.Dial(t.Context(), web.URL+"/mcp/api",
					&mcp.ClientOptions{HTTP: &mcphttp.DialOptions{Header: http.Header{"X-Who": {who}}}})
				if err != nil {
					ended <- err
					return
				}
				defer c.Close()
				for range 20 {
					r, err := c.CallTool(t.Context(), "who", nil)
					if err != nil || len(r.Content) == 0 || strings.TrimSpace(r.Content[0].Text) != want[who] {
						ended <- fmt.Errorf("%s: %s got %+v, %w", lifetime, who, r, err)
						return
					}
				}
				ended <- nil
			}()
		}
		for range want {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
}
