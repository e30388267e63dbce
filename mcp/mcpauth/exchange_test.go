package mcpauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// The request of RFC 8693 §2.1, with the members that are used here.
func TestExchangeForm(t *testing.T) {
	form := exchangeForm("s", typeAccessToken, "", "", nil)
	if got := form.Encode(); got !=
		"grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=s&"+
			"subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token" {
		t.Errorf("%s", got)
	}
	form = exchangeForm("s", typeIDToken, typeIDJAG, "https://as.example", []string{"a", "b"})
	for name, want := range map[string]string{
		"requested_token_type": typeIDJAG,
		"audience":             "https://as.example", "scope": "a b",
	} {
		if got := form.Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

// The identity provider's grant is one for the authorization server, and nothing else is taken for
// it.
func TestIDJAG(t *testing.T) {
	const good = `{"access_token":"jag","issued_token_type":"` + typeIDJAG +
		`","token_type":"N_A","expires_in":300}`
	answer := good
	var form url.Values
	var id, secret string
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/.well-known/openid-configuration", "/.well-known/oauth-authorization-server":
			at := "http://" + r.Host
			fmt.Fprintf(w,
				`{"issuer":%q,"token_endpoint":"%s/token","authorization_endpoint":"%s/a",`+
					`"response_types_supported":["code"]}`, at, at, at)
		default:
			_ = r.ParseForm()
			form = r.PostForm
			id, secret, _ = r.BasicAuth()
			fmt.Fprint(w, answer)
		}
	}))
	t.Cleanup(idp.Close)
	e := &Enterprise{
		Issuer: idp.URL, ClientID: "me", ClientSecret: "s3cr3t",
		IDToken: func(context.Context) (string, error) {
			return "s3cr3t-id", nil
		},
	}
	c, err := New("http://127.0.0.1:1/mcp", &Options{Grant: GrantEnterprise, Enterprise: e})
	if err != nil {
		t.Fatal(err)
	}
	for _, endpoint := range []string{"", idp.URL + "/elsewhere"} {
		e.TokenURL = endpoint
		jag, err := c.idJAG(t.Context(), e, "https://as.example", "https://mcp.example", []string{"read"})
		if jag != "jag" || err != nil {
			t.Fatalf("%q, %v", jag, err)
		}
		for name, want := range map[string]string{
			"subject_token": "s3cr3t-id", "subject_token_type": typeIDToken,
			"requested_token_type": typeIDJAG,
			"audience":             "https://as.example", "resource": "https://mcp.example", "scope": "read",
		} {
			if got := form.Get(name); got != want {
				t.Errorf("%s is %q", name, got)
			}
		}
		if id != "me" || secret != "s3cr3t" {
			t.Errorf("the client is %q, %q", id, secret)
		}
	}
	for name, text := range map[string]string{
		"another token": strings.Replace(good, typeIDJAG, typeAccessToken, 1),
		"no type":       strings.Replace(good, "N_A", "Bearer", 1),
		"no grant":      strings.Replace(good, `"access_token":"jag",`, "", 1),
		"refusal":       `{"error":"invalid_grant","error_description":"s3cr3t-id is old"}`,
		"garbage":       `<html>`,
	} {
		answer = text
		if jag, err := c.idJAG(t.Context(), e, "https://as.example", "https://mcp.example",
			nil); jag != "" || err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %q, %v", name, jag, err)
		}
	}
	gone := errors.New("signed out")
	e.IDToken = func(context.Context) (string, error) { return "", gone }
	if _, err := c.idJAG(t.Context(), e, "https://as.example", "https://mcp.example", nil); !errors.Is(
		err, gone) {
		t.Errorf("%v", err)
	}
}
