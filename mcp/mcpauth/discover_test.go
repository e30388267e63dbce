package mcpauth

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/fetch"
)

const (
	pathPRM = "/.well-known/oauth-protected-resource/mcp"
	rootPRM = "/.well-known/oauth-protected-resource"
	pathAS  = "/.well-known/oauth-authorization-server"
	pathOID = "/.well-known/openid-configuration"
)

// gets are the metadata requests among what was visited.
func gets(seen []string) (paths []string) {
	for _, s := range seen {
		if at, ok := strings.CutPrefix(s, "GET "); ok && at != serverURL {
			paths = append(paths, strings.TrimPrefix(strings.TrimPrefix(at, "https://mcp.example"), asURL))
		}
	}
	return paths
}

func TestResourceMetadataPlaces(t *testing.T) {
	for name, test := range map[string]struct {
		challenge string
		at        string
		resource  string
		want      []string
	}{
		"where the challenge says": {
			`Bearer resource_metadata="https://mcp.example/custom"`, "/custom",
			serverURL,
			[]string{"/custom"},
		},
		"where the challenge says, rel.": {
			`Bearer resource_metadata="/custom?x=1"`, "/custom", serverURL,
			[]string{"/custom"},
		},
		"the challenge of another host": {
			`DPoP algs="ES256", resource_metadata="https://meta.example/doc", Bearer realm="x"`, "",
			serverURL,
			[]string{"https://meta.example/doc"},
		},
		"the challenge leads nowhere": {
			`Bearer resource_metadata="https://mcp.example/gone"`, pathPRM,
			serverURL,
			[]string{"/gone", pathPRM},
		},
		"below the path":         {`Bearer realm="x"`, pathPRM, serverURL, []string{pathPRM}},
		"no challenge":           {``, pathPRM, serverURL, []string{pathPRM}},
		"the root":               {``, rootPRM, "https://mcp.example", []string{pathPRM, rootPRM}},
		"the root, with a slash": {``, rootPRM, "https://mcp.example/", []string{pathPRM, rootPRM}},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			s.challenge = test.challenge
			doc := s.prm[pathPRM]
			doc["resource"] = test.resource
			s.prm = map[string]map[string]any{test.at: doc}
			w.hosts["meta.example"] = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				answer(w, 200, doc)
			})
			w.must(w.client(&Options{Visit: as.user(nil)}))
			if got := gets(w.visits()); !slices.Equal(got, append(test.want, pathAS)) {
				t.Errorf("fetched %q, want %q", got, append(test.want, pathAS))
			}
			if got := as.requests[0].Get("resource"); got != test.resource {
				t.Errorf("resource %q, want it as published, %q", got, test.resource)
			}
		})
	}
}

func TestServerMetadataPlaces(t *testing.T) {
	for name, test := range map[string]struct {
		issuer, at string
		want       []string
	}{
		"root":              {asURL, pathAS, []string{pathAS}},
		"root, OpenID":      {asURL, pathOID, []string{pathAS, pathOID}},
		"root with a slash": {asURL + "/", pathAS, []string{pathAS}},
		"path":              {asURL + "/tenant", pathAS + "/tenant", []string{pathAS + "/tenant"}},
		"path, OpenID": {
			asURL + "/tenant", pathOID + "/tenant",
			[]string{pathAS + "/tenant", pathOID + "/tenant"},
		},
		"path, OpenID behind": {
			asURL + "/a/b", "/a/b" + pathOID,
			[]string{pathAS + "/a/b", pathOID + "/a/b", "/a/b" + pathOID},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			as.at, as.iss, as.metadata["issuer"] = []string{test.at}, test.issuer, test.issuer
			s.prm[pathPRM]["authorization_servers"] = []string{test.issuer}
			w.must(w.client(&Options{Visit: as.user(nil)}))
			if got := gets(w.visits()); !slices.Equal(got, append([]string{pathPRM}, test.want...)) {
				t.Errorf("fetched %q, want %q", got, test.want)
			}
		})
	}
}

// A page for all addresses is no metadata.
func TestPagesAreNoMetadata(t *testing.T) {
	w, _, as := simple(t)
	as.at = []string{pathOID}
	w.hosts[asHost] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == pathAS {
			rw.Write([]byte("<!doctype html>"))
			return
		}
		as.ServeHTTP(rw, r)
	})
	c := w.client(&Options{})
	if p, err := c.find(t.Context(), "", ""); err != nil || p.as.Issuer != asURL {
		t.Fatalf("%v, %v", p, err)
	}
}

func TestMetadataOfOthersIsRefused(t *testing.T) {
	for name, change := range map[string]func(s *mcpServer, as *authServer){
		"resource of another host": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://evil.example/mcp"
		},
		"resource of another scheme": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "http://mcp.example/mcp"
		},
		"resource of another port": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://mcp.example:8443/mcp"
		},
		"resource of another path": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://mcp.example/other"
		},
		"resource of a longer name": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://mcp.example/mc"
		},
		"resource below the server": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://mcp.example/mcp/sub"
		},
		"resource with a user": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://mcp.example@mcp.example/mcp"
		},
		"resource with a fragment": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://mcp.example/mcp#x"
		},
		"resource with a query": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["resource"] = "https://mcp.example/mcp?x"
		},
		"no resource": func(s *mcpServer, _ *authServer) {
			delete(s.prm[pathPRM], "resource")
		},
		"issuer of another host": func(_ *mcpServer, as *authServer) {
			as.metadata["issuer"] = "https://evil.example"
		},
		"issuer with a slash more": func(_ *mcpServer, as *authServer) {
			as.metadata["issuer"] = asURL + "/"
		},
		"issuer in capitals": func(_ *mcpServer, as *authServer) {
			as.metadata["issuer"] = "https://AS.example"
		},
		"issuer with a port": func(_ *mcpServer, as *authServer) {
			as.metadata["issuer"] = asURL + ":443"
		},
		"no issuer": func(_ *mcpServer, as *authServer) {
			delete(as.metadata, "issuer")
		},
		"no token endpoint": func(_ *mcpServer, as *authServer) {
			delete(as.metadata, "token_endpoint")
		},
		"too many servers": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["authorization_servers"] = slices.Repeat([]string{asURL}, 17)
		},
		"a server that is no URL": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["authorization_servers"] = []string{"as"}
		},
		"a server with a query": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["authorization_servers"] = []string{asURL + "?x=1"}
		},
		"servers that are no list": func(s *mcpServer, _ *authServer) {
			s.prm[pathPRM]["authorization_servers"] = asURL
		},
		"token endpoint of bad type": func(_ *mcpServer, as *authServer) {
			as.metadata["token_endpoint"] = []int{1}
		},
		"scopes of bad type": func(_ *mcpServer, as *authServer) {
			as.metadata["scopes_supported"] = "a b"
		},
		"metadata without end": func(_ *mcpServer, as *authServer) {
			as.metadata["x"] = strings.Repeat("x", 2<<20)
		},
		"authorization by javascript": func(_ *mcpServer, as *authServer) {
			as.metadata["authorization_endpoint"] = "javascript:alert(1)"
		},
		"authorization by a file": func(_ *mcpServer, as *authServer) {
			as.metadata["authorization_endpoint"] = "file:///bin/sh"
		},
		"authorization in the clear": func(_ *mcpServer, as *authServer) {
			as.metadata["authorization_endpoint"] = "http://as.example/authorize"
		},
		"no authorization endpoint": func(_ *mcpServer, as *authServer) {
			delete(as.metadata, "authorization_endpoint")
		},
		"PKCE is not advertised": func(_ *mcpServer, as *authServer) {
			delete(as.metadata, "code_challenge_methods_supported")
		},
		"PKCE in the clear": func(_ *mcpServer, as *authServer) {
			as.metadata["code_challenge_methods_supported"] = []string{"plain"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, s, as := simple(t)
			change(s, as)
			status, err := w.call(t.Context(), w.client(&Options{Visit: as.user(nil)}))
			if err == nil {
				t.Fatalf("the call ends with %d", status)
			}
			if len(as.requests)+len(as.clients)+len(as.forms) > 0 {
				t.Errorf("%v, but the metadata was used", err)
			}
			if len(err.Error()) > 800 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		})
	}
}

// A public server must not make the client ask addresses that only it reaches.
func TestSSRFThroughMetadataIsBlocked(t *testing.T) {
	targets := []string{
		"http://127.0.0.1:9/x", "https://127.0.0.1/x", "https://localhost/x", "http://localhost:6379/x",
		"https://[::1]/x", "https://10.0.0.1/x",
		"https://192.168.1.1/x", "https://172.16.0.1/x", "https://169.254.169.254/x",
		"http://169.254.169.254/latest/meta-data",
		"https://[::ffff:10.0.0.1]/x", "https://[64:ff9b::7f00:1]/x", "https://[fd00::1]/x",
		"https://100.64.0.1/x", "https://0.0.0.0/x",
		"http://as.example/x", "file:///etc/passwd", "gopher://10.0.0.1/x",
	}
	for name, lead := range map[string]func(s *mcpServer, as *authServer, to string){
		"resource_metadata": func(s *mcpServer, _ *authServer, to string) {
			s.challenge = `Bearer resource_metadata="` + to + `"`
		},
		"authorization_servers": func(s *mcpServer, _ *authServer, to string) {
			s.prm[pathPRM]["authorization_servers"] = []string{to}
		},
		"token_endpoint": func(_ *mcpServer, as *authServer, to string) {
			as.metadata["token_endpoint"] = to
		},
		"registration_endpoint": func(_ *mcpServer, as *authServer, to string) {
			as.metadata["registration_endpoint"] = to
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, to := range targets {
				w, s, as := simple(t)
				lead(s, as, to)
				_, err := w.call(t.Context(), w.client(&Options{Visit: as.user(nil)}))
				if blocked := errors.Is(err, fetch.ErrAddress) ||
					strings.HasPrefix(to, "file:") && err != nil; !blocked {
					t.Errorf("%s: %v", to, err)
				}
				for _, seen := range w.visits() {
					if _, at, _ := strings.Cut(seen, " "); !strings.HasPrefix(at, "https://mcp.example/") &&
						!strings.HasPrefix(at, asURL) {
						t.Errorf("%s: %s was fetched", to, at)
					}
				}
			}
		})
	}
}

// What an operator has named may be anywhere.
func TestNamedIssuerMayBePrivate(t *testing.T) {
	w, s, _ := simple(t)
	as := w.newAS("10.0.0.1")
	s.as, s.prm[pathPRM]["authorization_servers"] = as, []string{as.issuer}
	if _, err := w.call(t.Context(), w.client(&Options{Visit: as.user(nil)})); !errors.Is(err,
		fetch.ErrAddress) {
		t.Errorf("found by metadata: %v", err)
	}
	w.must(w.client(&Options{Visit: as.user(nil), Issuer: as.issuer}))
	w.must(w.client(&Options{Visit: as.user(nil), Private: true}))
}

func TestServersOfRevisionsWithoutResourceMetadata(t *testing.T) {
	for name, test := range map[string]struct {
		metadata bool
		issuer   string
		ok       bool
	}{
		"metadata at the root": {true, "https://mcp.example", true},
		"with a slash":         {true, "https://mcp.example/", true},
		"of another":           {true, "https://evil.example", false},
		"default endpoints":    {false, "https://mcp.example", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			as := w.newAS("mcp.example")
			s := w.newServer(as)
			s.prm = nil
			as.at, as.iss, as.metadata["issuer"] = nil, "", test.issuer
			delete(as.metadata, "authorization_response_iss_parameter_supported")
			if test.metadata {
				as.at = []string{pathAS}
			}
			w.hosts["mcp.example"] = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/mcp" {
					s.ServeHTTP(rw, r)
					return
				}
				as.ServeHTTP(rw, r)
			})
			c := w.client(&Options{Visit: as.user(nil)})
			status, err := w.call(t.Context(), c)
			if ok := err == nil && status == 200; ok != test.ok {
				t.Fatalf("%d, %v", status, err)
			}
			if test.ok && as.forms[0].Get("resource") != serverURL {
				t.Errorf("resource %q", as.forms[0].Get("resource"))
			}
		})
	}
}
