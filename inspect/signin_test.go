package inspect

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/jsonv2"
	"github.com/farcall-dev/farcall/jsonrpc"
	"github.com/farcall-dev/farcall/mcp/mcphttp"
)

// CVE-2025-58444: a server names a place to sign in that is not a page of the web. The address does
// not reach the page.
func TestSignInElsewhere(t *testing.T) {
	t.Parallel()
	for _, endpoint := range []string{
		"javascript:alert(1)//", "data:text/html,x", "file:///etc/passwd", "ms-x:run",
	} {
		var base string
		routes := http.NewServeMux()
		routes.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch {
			case strings.Contains(r.URL.Path, "protected-resource"):
				fmt.Fprintf(w, `{"resource":"%s/mcp","authorization_servers":["%[1]s"]}`, base)
			case strings.HasPrefix(r.URL.Path, "/.well-known/"):
				fmt.Fprintf(w, `{"issuer":"%[1]s","authorization_endpoint":%[2]q,`+
					`"token_endpoint":"%[1]s/token","registration_endpoint":"%[1]s/register",`+
					`"response_types_supported":["code"],`+
					`"code_challenge_methods_supported":["S256"]}`, base, endpoint)
			case r.URL.Path == "/register":
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, `{"client_id":"c","token_endpoint_auth_method":"none"}`)
			default:
				w.Header().Set("WWW-Authenticate",
					`Bearer resource_metadata="`+base+`/.well-known/oauth-protected-resource"`)
				w.WriteHeader(http.StatusUnauthorized)
			}
		})
		web := httptest.NewServer(routes)
		t.Cleanup(web.Close)
		base = web.URL
		server := Server{Target: base + "/mcp", Protocol: protocolMCP}
		_, p, _ := inspector(t, &Options{Servers: []Server{server}, Connect: true})
		if v := p.state(1, stateFailed); !strings.Contains(v.Reason, "authorization_endpoint") {
			t.Errorf("%s: %+v", endpoint, v)
		}
		for _, e := range p.seen {
			if e.Type == eventQuestion {
				t.Errorf("%s: the page is asked %s", endpoint, e.Data)
			}
		}
	}
}

// A server that demands OAuth is connected when the user of the page has signed in, and reports why
// not when they refuse.
func TestSignIn(t *testing.T) {
	t.Parallel()
	var base string
	reply := func(w http.ResponseWriter, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, format, args...)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("/.well-known/", func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "protected-resource") {
			reply(w, `{"resource":"%s/mcp","authorization_servers":["%s"]}`, base, base)
			return
		}
		reply(w, `{"issuer":"%[1]s","authorization_endpoint":"%[1]s/authorize",`+
			`"token_endpoint":"%[1]s/token","registration_endpoint":"%[1]s/register",`+
			`"response_types_supported":["code"],`+
			`"code_challenge_methods_supported":["S256"]}`, base)
	})
	routes.HandleFunc("/register", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, `{"client_id":"c","token_endpoint_auth_method":"none"}`)
	})
	routes.HandleFunc("/authorize", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		http.Redirect(w, r, q.Get("redirect_uri")+"?code=x&state="+q.Get("state"), http.StatusFound)
	})
	routes.HandleFunc("/token", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `{"access_token":"secret-token","token_type":"Bearer","expires_in":3600}`)
	})
	served := mcphttp.NewHandler(playground(), nil)
	routes.HandleFunc("/mcp", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret-token" {
			w.Header().Set("WWW-Authenticate",
				`Bearer resource_metadata="`+base+`/.well-known/oauth-protected-resource"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		served.ServeHTTP(w, r)
	})
	web := httptest.NewServer(routes)
	t.Cleanup(web.Close)
	base = web.URL
	server := Server{Target: base + "/mcp", Protocol: protocolMCP}
	_, p, _ := inspector(t, &Options{Servers: []Server{server}, Connect: true})
	asked := func() (q questionView, address string) {
		e := p.until("the question", func(e event) bool { return e.Type == eventQuestion })
		var params struct {
			Mode string `json:"mode"`
			URL  string `json:"url"`
		}
		if err := jsonv2.Unmarshal(e.Data, &q); err != nil {
			t.Fatal(err)
		}
		if err := jsonv2.Unmarshal(q.Params, &params); err != nil || params.Mode != "url" {
			t.Fatalf("the question is %s, %v", e.Data, err)
		}
		return q, params.URL
	}
	q, _ := asked()
	p.call("answer", answerParams{ID: q.ID, Result: jsonrpc.Raw(`{"action":"decline"}`)}, nil)
	if v := p.state(1, stateFailed); !strings.Contains(v.Reason, "refused in the page") {
		t.Errorf("after a refusal: %+v", v)
	}
	p.call("connect", connectParams{Conn: 1}, nil)
	q, address := asked()
	p.call("answer", answerParams{ID: q.ID, Result: jsonrpc.Raw(`{"action":"accept"}`)}, nil)
	// As the browser does:
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	p.state(1, stateReady)
	if o := p.tool("add", `{"a":2,"b":40}`); !strings.Contains(o.Result, `"sum":42`) {
		t.Errorf("%+v", o)
	}
	for _, e := range p.seen {
		if strings.Contains(string(e.Data), "secret-token") {
			t.Errorf("the page has the token: %s", e.Data)
		}
	}
}
