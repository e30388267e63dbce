package mcpauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// challenged is what mcp/mcphttp would hand to Challenge.
func challenged(t *testing.T, status int, header, authorization string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, serverURL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return &http.Response{
		StatusCode: status, Request: r,
		Header: http.Header{"Www-Authenticate": {header}}, Body: http.NoBody,
	}
}

func TestLogin(t *testing.T) {
	w, s, as := simple(t)
	s.challenge = `Bearer scope="a"`
	store := newMemory()
	c := w.client(&Options{Visit: as.user(nil), Store: store, Name: "tester"})
	w.must(c)
	reg := as.clients["client-1"]
	if reg["application_type"] != "native" || reg["client_name"] != "tester" ||
		fmt.Sprint(reg["grant_types"]) != "[authorization_code refresh_token]" ||
		fmt.Sprint(reg["redirect_uris"]) != "[http://127.0.0.1:5555/callback]" ||
		reg["token_endpoint_auth_method"] != "none" {
		t.Errorf("registered as %v", reg)
	}
	q := as.requests[0]
	if q.Get("scope") != "a offline_access" || q.Get("resource") != serverURL ||
		q.Get("response_type") != "code" || len(q.Get("state")) < 20 ||
		len(q.Get("code_challenge")) != 43 {
		t.Errorf("asked with %v", q)
	}
	if f := as.forms[0]; f.Get("resource") != serverURL || f.Get("client_id") != "client-1" ||
		f.Get("code_verifier") == "" {
		t.Errorf("the token request is %v", f)
	}
	w.visits()
	w.must(c)
	w.must(w.client(&Options{Store: store})) // another process
	if got := w.visits(); len(got) != 2 {
		t.Errorf("with tokens, these were asked: %q", got)
	}
	st, err := c.Status(t.Context())
	if err != nil || st.Issuer != asURL || st.ClientID != "client-1" || !st.Refresh || st.Bound ||
		st.Expires != w.now.Add(time.Hour).Unix() ||
		!slices.Equal(st.Scopes, []string{"a", "offline_access"}) {
		t.Errorf("status %+v, %v", st, err)
	}
	if err := c.Login(t.Context()); err != nil || len(as.requests) != 2 || len(as.clients) != 1 {
		t.Errorf("login: %v, %d requests, %d registrations", err, len(as.requests), len(as.clients))
	}
}

func TestNobodyToAskSaysHowToLogIn(t *testing.T) {
	w, s, as := simple(t)
	c := w.client(&Options{Target: "my-server"})
	for range 2 {
		_, err := w.call(t.Context(), c)
		if !errors.Is(err, ErrLogin) || !strings.Contains(err.Error(), "`farcall login my-server`") {
			t.Fatalf("%v", err)
		}
	}
	if got := gets(w.visits()); len(got) > 0 {
		t.Errorf("for nothing, these were asked: %q", got)
	}
	if err := c.Login(t.Context()); !errors.Is(err, ErrLogin) {
		t.Errorf("login: %v", err)
	}

	store := newMemory()
	w.must(w.client(&Options{Store: store, Visit: as.user(nil)}))
	c = w.client(&Options{Store: store, Target: "my-server"})
	s.judge = func(*given) (int, string) {
		return 403, `Bearer error="insufficient_scope", scope="b:c $(reboot) --x"`
	}
	if _, err := w.call(t.Context(), c); !errors.Is(err, ErrLogin) ||
		!strings.Contains(err.Error(), "`farcall login --scope b:c my-server`") {
		t.Errorf("%v", err)
	}
	s.judge = func(*given) (int, string) { return 401, `Bearer error="invalid_token"` }
	if _, err := w.call(t.Context(), c); !errors.Is(err, ErrLogin) {
		t.Errorf("%v", err)
	}
}

func TestRegistrationOrder(t *testing.T) {
	const document = "https://client.example/metadata.json"
	for name, test := range map[string]struct {
		options   Options
		documents bool
		no        bool // dynamic registration
		want      string
		err       string
	}{
		"by hand comes first": {
			Options{ClientID: "mine", MetadataURL: document},
			true, false,
			"mine", "",
		},
		"by document":                {Options{MetadataURL: document}, true, false, document, ""},
		"by document, not supported": {Options{MetadataURL: document}, false, false, "client-1", ""},
		"unasked":                    {Options{}, true, false, "client-1", ""},
		"not at all":                 {Options{}, false, true, "", "set its client ID"},
		"by hand, elsewhere": {
			Options{ClientID: "mine", Issuer: "https://other.example"},
			false,
			false, "", "registered at https://other.example",
		},
		"by hand, at a named server": {
			Options{ClientID: "mine", Issuer: asURL},
			false, false,
			"mine", "",
		},
		"unasked, web": {
			Options{RedirectURL: "https://client.example/callback"},
			false,
			false, "client-1", "",
		},
		"unasked, on its own port": {
			Options{RedirectURL: "http://localhost:3000/callback"},
			false, false,
			"client-1", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, as := simple(t)
			as.metadata["client_id_metadata_document_supported"] = test.documents
			if test.no {
				delete(as.metadata, "registration_endpoint")
			}
			o := test.options
			o.Visit = as.user(nil)
			_, err := w.call(t.Context(), w.client(&o))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if err != nil || as.requests[0].Get("client_id") != test.want {
				t.Errorf("%v, %v", as.requests, err)
			}
			if reg := as.clients["client-1"]; reg != nil {
				if want := map[bool]string{true: "web", false: "native"}[strings.HasPrefix(o.RedirectURL,
					"https:")]; reg["application_type"] != want {
					t.Errorf("registered as %v, want %s", reg, want)
				}
			}
		})
	}
}

// RFC 9207 §2.4, to the byte; an error of another is not even shown.
func TestIss(t *testing.T) {
	for name, test := range map[string]struct {
		advertised bool
		iss        []string
		ok         bool
	}{
		"right":                   {true, []string{asURL}, true},
		"right, not advertised":   {false, []string{asURL}, true},
		"missing":                 {true, nil, false},
		"missing, not advertised": {false, nil, true},
		"wrong":                   {true, []string{"https://evil.example"}, false},
		"wrong, not advertised":   {false, []string{"https://evil.example"}, false},
		"a slash more":            {true, []string{asURL + "/"}, false},
		"in capitals":             {true, []string{"https://AS.example"}, false},
		"with the default port":   {true, []string{asURL + ":443"}, false},
		"empty":                   {false, []string{""}, false},
		"twice":                   {true, []string{asURL, asURL}, false},
		"right and wrong":         {true, []string{asURL, "https://evil.example"}, false},
	} {
		for _, failed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, failed), func(t *testing.T) {
				w, _, as := simple(t)
				as.metadata["authorization_response_iss_parameter_supported"] = test.advertised
				_, err := w.call(t.Context(), w.client(&Options{Visit: as.user(func(q url.Values) {
					delete(q, "iss")
					if test.iss != nil {
						q["iss"] = test.iss
					}
					if failed {
						q.Del("code")
						q.Set("error", "access_denied")
						q.Set("error_description", "from-elsewhere")
					}
				})}))
				switch {
				case failed && test.ok != strings.Contains(fmt.Sprint(err), "access_denied: from-elsewhere"):
					t.Errorf("the error of the callback: %v", err)
				case !failed && test.ok != (err == nil):
					t.Errorf("%v", err)
				case !test.ok && len(as.forms) > 0:
					t.Error("the code was sent")
				}
			})
		}
	}
}

func TestCallbackIsChecked(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(q url.Values)
		want string
	}{
		"state of another": {func(q url.Values) { q.Set("state", "x") }, "another request"},
		"no state":         {func(q url.Values) { q.Del("state") }, "another request"},
		"two states":       {func(q url.Values) { q.Add("state", q.Get("state")) }, "twice"},
		"two codes":        {func(q url.Values) { q.Add("code", "x") }, "twice"},
		"no code":          {func(q url.Values) { q.Del("code") }, "no code"},
		"error":            {func(q url.Values) { q.Set("error", "server_error") }, "server_error"},
		"error with escapes": {func(q url.Values) {
			q.Set("error", "x\x1b[2J\u202e\n")
			q.Set("error_description", strings.Repeat("y", 9999))
		}, "x\ufffd[2J\ufffd\ufffd: yyy"},
		"code of another": {func(q url.Values) {
			q.Set("code", "stolen-code-1")
		}, "unknown code (secret)"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, as := simple(t)
			_, err := w.call(t.Context(), w.client(&Options{Visit: as.user(test.edit)}))
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 900 {
				t.Errorf("%v", err)
			}
		})
	}
}

// The state of an attempt counts once, whatever comes back.
func TestStateCountsOnce(t *testing.T) {
	a := &attempt{as: &server{Issuer: asURL}, reg: &registration{}, state: "s", begun: true}
	back := &url.URL{RawQuery: "state=s&code=c"}
	if code, err := a.code(back); code != "c" || err != nil {
		t.Fatal(code, err)
	}
	if code, err := a.code(back); err == nil {
		t.Errorf("the second time: %q", code)
	}
	if code, err := a.code(&url.URL{RawQuery: "state=&code=c"}); err == nil {
		t.Errorf("without a state: %q", code)
	}
}

// Credentials are for the authorization server that gave them.
func TestAuthorizationServerChanges(t *testing.T) {
	w, s, first := simple(t)
	second := w.newAS("second.example")
	first.metadata["token_endpoint_auth_methods_supported"] = []string{"client_secret_basic"}
	first.confident = true
	store := newMemory()
	c := w.client(&Options{Visit: first.user(nil), Store: store})
	w.must(c)
	s.as, s.prm[pathPRM]["authorization_servers"] = second, []string{second.issuer}
	second.n = 100 // other client IDs
	w.must(c)
	if len(second.clients) != 1 || second.requests[0].Get("client_id") != "client-101" {
		t.Errorf("at the second server: %v, %v", second.clients, second.requests)
	}
	for i, f := range second.forms {
		if f.Get("client_id") == "client-1" || f.Get("refresh_token") != "" ||
			second.headers[i].Get("Authorization") != "" {
			t.Errorf("the second server was sent what is of the first: %v", f)
		}
	}
	s.as, s.prm[pathPRM]["authorization_servers"] = first, []string{first.issuer}
	w.must(c)
	if len(first.clients) != 1 {
		t.Errorf("back at the first: %d registrations", len(first.clients))
	}
	// A server that does nothing but name others does not open browsers for ever.
	opened := 0
	for i := range 10 {
		to := []*authServer{second, first}[i%2]
		s.as, s.prm[pathPRM]["authorization_servers"] = to, []string{to.issuer}
		before := len(first.requests) + len(second.requests)
		_, _ = w.call(t.Context(), c)
		opened += len(first.requests) + len(second.requests) - before
	}
	if opened > maxSteps {
		t.Errorf("%d times more", opened)
	}
}

func TestClientIDIsBoundToItsServer(t *testing.T) {
	w, s, first := simple(t)
	second := w.newAS("second.example")
	store := newMemory()
	w.must(w.client(&Options{Visit: first.user(nil), Store: store, ClientID: "mine"}))
	s.as, s.prm[pathPRM]["authorization_servers"] = second, []string{second.issuer}
	c := w.client(&Options{Visit: first.user(nil), Store: store, ClientID: "mine"})
	if _, err := w.call(t.Context(), c); err == nil ||
		!strings.Contains(err.Error(), "registered at "+asURL) || len(second.requests) > 0 {
		t.Fatalf("%v", err)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.pass(rest)
	w.must(c)
}

func TestRegistrationIsLost(t *testing.T) {
	w, _, as := simple(t)
	store := newMemory()
	c := w.client(&Options{Visit: as.user(nil), Store: store})
	w.must(c)
	lost := true
	as.override = func(w http.ResponseWriter, form url.Values) bool {
		if lost = lost && form.Get("client_id") == "client-1"; lost {
			as.refuse(w, "invalid_client", "who?")
		}
		return lost
	}
	if err := c.Login(t.Context()); err != nil || len(as.clients) != 2 {
		t.Errorf("%v, %d registrations", err, len(as.clients))
	}
	w.must(c)
}

func TestLogoutRevokes(t *testing.T) {
	w, _, as := simple(t)
	store := newMemory()
	c := w.client(&Options{Visit: as.user(nil), Store: store, Scopes: []string{"a"}})
	w.must(c)
	if err := c.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(as.revoked)
	if len(as.revoked) != 2 || !strings.HasPrefix(as.revoked[0], "access-") ||
		!strings.HasPrefix(as.revoked[1], "refresh-") {
		t.Errorf("revoked %q", as.revoked)
	}
	if m, ok := store.(*memory); !ok || len(m.all) > 0 {
		t.Errorf("left in the store: %v", m.all)
	}
	if st, err := c.Status(t.Context()); err != nil || st.Issuer != "" {
		t.Errorf("%+v, %v", st, err)
	}
	if err := c.Logout(t.Context()); err != nil {
		t.Errorf("twice: %v", err)
	}
}

func TestTokensStayAtTheirOrigin(t *testing.T) {
	w, _, as := simple(t)
	c := w.client(&Options{Visit: as.user(nil)})
	w.must(c)
	for _, address := range []string{
		"https://evil.example/mcp", "http://mcp.example/mcp", "https://mcp.example:8443/mcp",
		"https://mcp.example.evil.example/mcp",
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Authorize(t.Context(), r); err == nil || r.Header.Get("Authorization") != "" {
			t.Errorf("%s: %v, %v", address, err, r.Header)
		}
		// Nor does the challenge of another server count.
		resp := &http.Response{StatusCode: http.StatusUnauthorized, Request: r, Header: http.Header{}}
		if again, err := c.Challenge(t.Context(), resp); again || err != nil {
			t.Errorf("%s: %v, %v", address, again, err)
		}
	}
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://MCP.example:443/other",
		http.NoBody)
	if err := c.Authorize(t.Context(), r); err != nil || r.Header.Get("Authorization") == "" {
		t.Errorf("the same origin, otherwise written: %v", err)
	}
}

// No user gets a browser opened for each call.
func TestRefusalRests(t *testing.T) {
	w, _, as := simple(t)
	visits := 0
	c := w.client(
		&Options{Visit: func(context.Context, string, func(string) (string, error)) (*url.URL, error) {
			visits++
			return nil, errors.New("the user has closed the browser")
		}})
	for range 5 {
		if _, err := w.call(t.Context(), c); err == nil ||
			!strings.Contains(err.Error(), "closed the browser") {
			t.Fatal(err)
		}
	}
	w.pass(rest)
	_, _ = w.call(t.Context(), c)
	if err := c.Login(t.Context()); err == nil || visits != 3 {
		t.Errorf("%d visits, and %v", visits, err)
	}
	_ = as
}

func TestOptionsAreChecked(t *testing.T) {
	for name, o := range map[string]Options{
		"grant":                {Grant: "password"},
		"client credentials":   {Grant: GrantClient, ClientID: "x"},
		"assertion":            {Grant: GrantAssertion},
		"subject":              {Grant: GrantExchange},
		"enterprise":           {Grant: GrantEnterprise, Enterprise: &Enterprise{Issuer: "https://x"}},
		"secret and key":       {ClientID: "x", ClientSecret: "s", Key: "k"},
		"secret without ID":    {ClientSecret: "s"},
		"key":                  {ClientID: "x", Key: "k"},
		"issuer":               {Issuer: "as.example"},
		"issuer in the clear":  {Issuer: "http://as.example"},
		"document":             {MetadataURL: "http://client.example/x"},
		"document at the root": {MetadataURL: "https://client.example/"},
		"redirect":             {RedirectURL: "http://client.example/callback"},
		"redirect elsewhere":   {RedirectURL: "myapp://callback"},
		"scope":                {Scopes: []string{"a b"}},
	} {
		if c, err := New(serverURL, &o); err == nil {
			t.Errorf("%s: %v", name, c)
		}
	}
	for _, address := range []string{
		"", "mcp.example", "ftp://mcp.example", "http://mcp.example/mcp",
		"https://u:p@mcp.example/mcp", "://",
	} {
		if _, err := New(address, nil); err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, address := range []string{
		serverURL, "http://localhost:1/mcp", "http://127.0.0.1/mcp",
		"http://[::1]:1/mcp",
	} {
		if _, err := New(address, nil); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
}
