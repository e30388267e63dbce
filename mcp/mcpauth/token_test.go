package mcpauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/farcall-dev/farcall/internal/fetch"
)

func TestTokenAnswers(t *testing.T) {
	long := strings.Repeat("x", maxToken+1)
	for text, want := range map[string]string{
		`{"access_token":"x","token_type":"Bearer"}`:                                    "-1",
		`{"access_token":"x","token_type":"bearer","expires_in":3600}`:                  "3600",
		`{"access_token":"x","token_type":"BEARER","expires_in":"3600"}`:                "3600",
		`{"access_token":"x","token_type":"Bearer","expires_in":3599.7}`:                "3599",
		`{"access_token":"x","token_type":"Bearer","expires_in":-5}`:                    "-1",
		`{"access_token":"x","token_type":"Bearer","expires_in":0}`:                     "-1",
		`{"access_token":"x","token_type":"Bearer","expires_in":1e300}`:                 "-1",
		`{"access_token":"x","token_type":"Bearer","expires_in":"soon"}`:                "-1",
		`{"access_token":"x","token_type":"Bearer","expires_in":null}`:                  "-1",
		`{"access_token":"x","token_type":"Bearer","expires_in":{"a":[]}}`:              "-1",
		`{"access_token":"x","token_type":"Bearer","expires_in":"NaN"}`:                 "-1",
		`{"access_token":"x","token_type":"Bearer","scope":["a"],"refresh_token":null}`: "-1",
		`{"access_token":"x"}`:                      "no token_type",
		`{"token_type":"Bearer"}`:                   "no access_token",
		`{"access_token":"","token_type":"Bearer"}`: "no access_token",
		`{"access_token":7,` +
			`"token_type":"Bearer"}`: "access_token is no string",
		`{"access_token":"x","token_type":["Bearer"]}`:                         "token_type is no string",
		`{"access_token":"x","access_token":"y","token_type":"Bearer"}`:        "twice",
		`{"access_token":"x\r\nX-Evil: 1","token_type":"Bearer"}`:              "characters",
		`{"access_token":"x y","token_type":"Bearer"}`:                         "characters",
		`{"access_token":"x","token_type":"Bearer","refresh_token":"a\u0000"}`: "characters",
		`{"access_token":"` + long + `","token_type":"Bearer"}`:                "longer",
		`[]`:              "no JSON object",
		`"x"`:             "no JSON object",
		`null`:            "no access_token",
		``:                "not JSON",
		`<html>`:          "not JSON",
		`{"access_token"`: "not JSON",
		strings.Repeat(`{"a":`, 99) + "1" + strings.Repeat("}", 99): "not JSON",
	} {
		a, err := parseAnswer([]byte(text))
		got := fmt.Sprint(err)
		if err == nil {
			got = fmt.Sprint(a.ExpiresIn)
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%.80s: %s, want %s", text, got, want)
		}
	}
}

// Over the network, and with what is around it.
func TestTokenEndpointIsHostile(t *testing.T) {
	for name, test := range map[string]struct {
		reply func(w http.ResponseWriter)
		want  string
	}{
		"huge": {func(w http.ResponseWriter) {
			fmt.Fprintf(w, `{"x":"%s"}`, strings.Repeat("x", 2<<20))
		}, fetch.ErrTooLarge.Error()},
		"nothing": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusNoContent)
		}, "not JSON"},
		"page": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprint(w, "<h1>no</h1>")
		}, "status 502"},
		"error with 200": {func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"error":"bad_verification_code"}`)
		}, "bad_verification_code"},
		"redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://evil.example/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "status 307"},
		"unknown type": {func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"access_token":"x","token_type":"mac\u001b[2J"}`)
		}, "characters that none may have"},
		"another type": {func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"access_token":"x","token_type":"mac"}`)
		}, "unknown type \"mac\""},
		"bound to no key": {func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"access_token":"x","token_type":"DPoP"}`)
		}, "that the client does not have"},
		"error, no string": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"error":{"a":1}}`)
		}, "status 400"},
		"long words": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"error":"e","error_description":"%s"}`, strings.Repeat("é", 9999))
		}, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, as := simple(t)
			as.override = func(w http.ResponseWriter, _ url.Values) bool { test.reply(w); return true }
			_, err := w.call(t.Context(), w.client(&Options{Visit: as.user(nil)}))
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 900 {
				t.Errorf("%v", err)
			}
			for _, seen := range w.visits() {
				if strings.Contains(seen, "evil") {
					t.Errorf("%s was asked", seen)
				}
			}
		})
	}
}

func TestRegistrationAnswers(t *testing.T) {
	for text, want := range map[string]string{
		`{"client_id":"x","client_secret":"s","redirect":"https://evil.example"}`: "",
		`{"client_id":1}`:                   "\"/client_id\" is of the wrong type",
		`{}`:                                "no client_id",
		`{"client_id":"x","client_id":"y"}`: "twice",
		`null`:                              "no client_id",
		`x`:                                 "not JSON",
		`{"client_id":"x","client_secret_expires_at":"never"}`: "wrong type",
	} {
		reg, err := readRegistration([]byte(text), "http://127.0.0.1/callback")
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %s", text, err, want)
		case want == "" && (err != nil || reg.Redirect != "http://127.0.0.1/callback" || !reg.own):
			t.Errorf("%s: %v, %v", text, reg, err)
		}
	}
}

// What is secret is in no text, however a value is printed.
func TestNoSecretIsShown(t *testing.T) {
	const secret = "top-secret-value"
	o := Options{ClientID: "id", ClientSecret: secret, Enterprise: &Enterprise{ClientSecret: secret}}
	tok := &tokens{Access: secret, Refresh: secret, Key: []byte(secret)}
	reg := &registration{ClientID: "id", Secret: secret}
	s := newSession(secret, true)
	s.hold(tok)
	c, err := New(serverURL, &o)
	if err != nil {
		t.Fatal(err)
	}
	c.own.hold(tok)
	for _, v := range []any{
		o, &o, *o.Enterprise, o.Enterprise, tok, *tok, reg, *reg, s, c,
		tokenAnswer{AccessToken: secret},
		&tokenAnswer{RefreshToken: secret},
	} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
			if text := fmt.Sprintf(verb, v); strings.Contains(text, secret) {
				t.Errorf("%s of %T: %s", verb, v, text)
			}
		}
	}
	refusal := hide("about top-secret-value and more", url.Values{"refresh_token": {secret}}, "")
	if strings.Contains(refusal, secret) {
		t.Error(refusal)
	}
}

func FuzzTokenAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"access_token":"x","token_type":"Bearer","expires_in":3600,"refresh_token":"y","scope":"a b"}`,
		`{"error":"x","error_description":"y"}`,
		`{"access_token":"x","token_type":"DPoP","expires_in":"12"}`, `[]`,
		`{"client_id":"x","client_secret_expires_at":0}`, "{\"access_token\":\"\\ud800\"}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parseAnswer(body)
		if err == nil {
			if a.AccessToken == "" || a.TokenType == "" || a.ExpiresIn < -1 || !headerSafe(a.AccessToken) ||
				!headerSafe(a.RefreshToken) {
				t.Errorf("%q is taken as %#v", body, *a)
			}
			if !json.Valid(body) {
				t.Errorf("%q is no JSON", body)
			}
		} else if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q", err)
		}
		if refusal := refusalOf(body); refusal != nil && tame(refusal.code) == "" {
			t.Errorf("%q is a refusal without a reason", body)
		}
		if reg, err := readRegistration(body, "x"); err == nil &&
			(reg.ClientID == "" || reg.Redirect != "x") {
			t.Errorf("%q is a registration", body)
		}
		_, _ = readTokens(body)
		if text := tame(string(body)); strings.ContainsAny(text, "\x00\x1b\r\n\u202e") ||
			len(text) > 4*(maxTame+1) {
			t.Errorf("%q", text)
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add([]byte(`{"resource":"https://mcp.example/mcp",`+
		`"authorization_servers":["https://as.example"]}`),
		[]byte(`{"issuer":"https://as.example","token_endpoint":"https://as.example/token"}`))
	f.Add([]byte(`{"resource":"https://mcp.example"}`), []byte(`{"issuer":1}`))
	f.Add([]byte(`{"resource":"https://mcp.example/%2e%2e/mcp",`+
		`"authorization_servers":["https://as.example/%2f/../x?#"]}`), []byte(`<html>`))
	f.Fuzz(func(t *testing.T, resource, as []byte) {
		w := newWorld(t)
		serve := func(body []byte) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })
		}
		w.hosts["mcp.example"], w.hosts[asHost] = serve(resource), serve(as)
		c := w.client(nil)
		p, err := c.find(t.Context(), "", "")
		switch {
		case err == nil && (p.as.TokenEndpoint == "" || p.as.Issuer == "" ||
			!strings.HasPrefix(strings.ToLower(p.resource.ID), "https://mcp.example")):
			t.Errorf("%+v, %+v", p.resource, p.as)
		case err != nil && len(err.Error()) > 4000:
			t.Errorf("an error of %d bytes", len(err.Error()))
		case err != nil && errors.Is(err, fetch.ErrAddress):
			return
		}
		for _, seen := range w.visits() {
			if !strings.HasPrefix(seen, "GET https://") {
				t.Errorf("%s", seen)
			}
		}
	})
}
